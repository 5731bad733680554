"""The manifest: what a model is, checked so that the rest of the code can trust it.

It is data: finite numbers of at most 64 bits, in files whose size is checked before they are read.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from umpteen.data.files import PathLike
from umpteen.errors import ModelCorruptError, ModelExistsError, ModelFormatError
from umpteen.storage.arrays import DTYPES, NAME, size_of
from umpteen.storage.steady import MANIFEST, MOST_MANIFEST, read_steadily

FORMAT = "umpteen-model"
#: The version written, and those read. Since 2, an array's header identifies its content; see storage/arrays.py.
FORMAT_VERSION = 2
READABLE = (1, 2)
CHECKSUM = "manifest_sha256"
#: How deep the entries of a JSON file may be nested: more than a blend's member with a candidate tree needs.
MOST_LEVELS = 32
#: How many objects and lists a JSON file may have: those of 50,000 shards. Each takes far more memory than its two
#: characters.
MOST_OBJECTS = 1 << 20
#: How many values the manifest may have beside parts and shards: it is copied whenever a model is.
MOST_VALUES = 1 << 18

_SHA256 = re.compile(r"[0-9a-f]{64}")


def first_manifest(header: Mapping[str, Any], shard_names: list[str]) -> dict[str, Any]:
    """The manifest while shards are missing."""
    manifest = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "complete": False,
        **header,
        "planned": shard_names,
        "parts": {},
    }
    # Through JSON and back, so that what is compared on resume is what is stored.
    checked: dict[str, Any] = json.loads(json.dumps(manifest))
    return checked


def read_manifest(path: PathLike, *, checksums: bool = False) -> dict[str, Any]:
    """The manifest of a model directory, its structure checked so that the rest of the code can trust it."""
    file = Path(path) / MANIFEST
    return read_steadily(Path(path), lambda _, content: parse_manifest(file, content, checksums=checksums))[0]


def parse_manifest(file: object, content: bytes, *, checksums: bool = False) -> dict[str, Any]:
    """The manifest without its checksum; checks its structure and, on request, its content."""
    manifest = parse_json(file, content)
    expected = manifest.pop(CHECKSUM, None)
    if manifest.get("format") != FORMAT:
        raise ModelFormatError(f"{file}: format must be {FORMAT!r}, but is {manifest.get('format')!r:.80}")
    version = manifest.get("format_version")
    if version not in READABLE or type(version) is not int:
        raise ModelFormatError(
            f"{file}: format_version must be {' or '.join(map(str, READABLE))} for this umpteen, but is "
            f"{version!r:.80}; use the version that wrote the model, or train it again"
        )
    _require(file, isinstance(manifest.get("complete"), bool), "complete must be true or false")
    _check_shards(file, manifest)
    header = {key: value for key, value in manifest.items() if key not in ("parts", "shards", "planned")}
    _require(file, not _has_many_values(header), f"beside parts there must be at most {MOST_VALUES:,} values")
    parts = manifest.get("parts")
    _require(file, isinstance(parts, dict), "parts must be an object")
    for name, record in parts.items():  # type: ignore[union-attr]
        _require(file, bool(NAME.fullmatch(name)), f"a part's name must match {NAME.pattern}, but is {name!r:.80}")
        check_record(file, record, version, f"parts.{name}.")
    if manifest["complete"]:
        for name in manifest["shards"]:
            _require(file, name in parts, f"shard {name} has no entry in parts")  # type: ignore[operator]
    if checksums:
        _require(file, expected is not None, f"it must have a checksum, {CHECKSUM}, but has none")
        found = _sum_manifest(manifest)
        _require(file, expected == found, f"the SHA-256 of its entries must be {expected!r:.80}, but is {found}")
    return manifest


def _check_shards(file: object, manifest: dict[str, Any]) -> None:
    key = "shards" if manifest["complete"] else "planned"
    names = manifest.get(key)
    good = isinstance(names, list) and all(isinstance(name, str) and NAME.fullmatch(name) for name in names)
    _require(file, good, f"{key} must be a list of names")
    _require(file, len(set(names)) == len(names), f"{key} must name each shard once")  # type: ignore[arg-type]
    if manifest["complete"]:
        _require(file, bool(names), "shards must name at least one shard, but is empty")


def format_manifest(manifest: dict[str, Any]) -> bytes:
    """The content of the file: the manifest and its checksum."""
    content = format_json(manifest | {CHECKSUM: _sum_manifest(manifest)})
    if len(content) > MOST_MANIFEST:
        raise ModelFormatError(
            f"a manifest must have at most {MOST_MANIFEST:,} bytes, but has {len(content):,}; use larger shards"
        )
    return content


def _sum_manifest(manifest: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()


def refuse_unless_same(path: object, old: dict[str, Any], new: dict[str, Any], resume: bool) -> None:
    if not resume:
        raise ModelExistsError(
            f"{path}: an unfinished model is there; resume its training, remove it or choose another directory"
        )
    old = {"planned": old.get("shards")} | old  # a finished model's manifest calls it so
    for key in new:
        if key not in ("complete", "parts") and old.get(key) != new[key]:
            raise ModelExistsError(
                f"{path}: the unfinished model there has a different {key}, so its training cannot be resumed "
                f"({_difference(old.get(key), new[key])}); remove it or choose another directory"
            )


def _difference(old: Any, new: Any) -> str:
    if isinstance(old, dict) and isinstance(new, dict):
        changed = [key for key in {**old, **new} if old.get(key) != new.get(key)]
        return ", ".join(f"{key} was {old.get(key)!r} and is {new.get(key)!r}" for key in changed)[:300]
    if isinstance(old, list):
        return "the lists differ"
    return f"was {old!r} and is {new!r}"[:300]


def check_record(file: object, record: Any, version: int, where: str = "") -> None:
    """Compares a part's record with its grammar; `where` is its place in the file."""
    good = isinstance(record, dict) and isinstance(record.get("scalars"), dict)
    _require(file, good and isinstance(record.get("arrays"), dict), f"{where}scalars and arrays must be objects")
    many = _has_many_values(record["scalars"])
    _require(file, not many, f"{where}scalars must have at most {MOST_VALUES:,} values, but have more")
    for key, entry in record["arrays"].items():
        at = f"{where}arrays.{key}"
        _require(file, bool(NAME.fullmatch(key)), f"{at:.200}: an array's name must match {NAME.pattern}")
        _require(file, isinstance(entry, dict), f"{at} must be an object")
        dtype, shape, sha256 = entry.get("dtype"), entry.get("shape"), entry.get("sha256")
        _require(file, isinstance(dtype, str) and dtype in DTYPES, f"{at}.dtype must be one of {', '.join(DTYPES)}")
        good = isinstance(shape, list) and len(shape) <= 4 and all(_is_count(n) for n in shape)
        _require(file, good, f"{at}.shape must be at most four counts")
        # NumPy multiplies them, leaving out zeros.
        good = math.prod(n or 1 for n in shape) < 2**60
        _require(file, good, f"{at}.shape must not be larger than any memory, but is {shape}")
        good = isinstance(sha256, str) and bool(_SHA256.fullmatch(sha256))
        _require(file, good, f"{at}.sha256 must be 64 hexadecimal digits")
        found, size = entry.get("bytes"), size_of(entry, version)
        _require(file, _is_count(found) and found == size, f"{at}.bytes must be {size}, but is {found!r:.80}")


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < 2**63


def _require(file: object, condition: bool, rule: str) -> None:
    if not condition:
        raise ModelCorruptError(f"{file}: {rule}")


class _Twice(Exception):
    """A key that an object has twice."""


class _Unbounded(Exception):
    """A number that does not fit into 64 bits."""


def parse_json(file: object, content: bytes) -> dict[str, Any]:
    """A JSON object in UTF-8, each key once, whose numbers are finite and have at most 64 bits."""
    if (n_objects := content.count(b"{") + content.count(b"[")) > MOST_OBJECTS:
        raise ModelCorruptError(
            f"{file}: must have at most {MOST_OBJECTS:,} objects and lists, but has {n_objects:,}"
        )
    try:
        value = json.loads(
            content.decode(),  # json itself would guess at other encodings
            parse_int=_integer,
            parse_float=_number,
            parse_constant=_refuse,
            object_pairs_hook=_object,
        )
    except _Unbounded as error:
        raise ModelCorruptError(
            f"{file}: {_find_number(content):.200} must be a finite number of at most 64 bits, but is {error!s:.40}"
        ) from None
    except _Twice as error:
        raise ModelCorruptError(f"{file}: a key must stand once in an object, but {error!s:.80} is twice") from None
    except (ValueError, RecursionError) as error:
        raise ModelCorruptError(f"{file}: not valid JSON ({error})") from error
    if not isinstance(value, dict):
        raise ModelCorruptError(f"{file}: must be a JSON object")
    if _is_deep(value):
        raise ModelCorruptError(f"{file}: its entries may be nested {MOST_LEVELS} deep, but are deeper")
    return value


def _has_many_values(value: Any) -> bool:
    """Whether there are so many that copying them would take long."""
    n, pending = 0, [value]
    while pending:
        item = pending.pop()
        below = item.values() if isinstance(item, dict) else item if isinstance(item, list) else ()
        n += len(below)
        if n > MOST_VALUES:
            return True
        pending += below
    return False


def _is_deep(value: dict[str, Any]) -> bool:
    """Whether values are nested so deep that copying or comparing them might meet Python's limit."""
    level: list[Any] = [value]
    for _ in range(MOST_LEVELS):
        below = (item for holder in level for item in (holder.values() if isinstance(holder, dict) else holder))
        level = [item for item in below if isinstance(item, (dict, list))]
        if not level:
            return False
    return True


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):  # readers would differ about which of the values counts
        [(key, _)] = Counter(key for key, _ in pairs).most_common(1)
        raise _Twice(repr(key))
    return found


def _integer(text: str) -> int:
    if len(text) > 20 or not -(2**63) <= int(text) < 2**63:
        raise _Unbounded(text)
    return int(text)


def _number(text: str) -> float:
    if not math.isfinite(float(text)):
        raise _Unbounded(text)
    return float(text)


def _refuse(text: str) -> Any:
    raise _Unbounded(text)


class _Text(str):
    """A number as it is written."""

    def is_bounded(self) -> bool:
        try:
            _number(self) if set(self) & set(".eE") else _integer(self)
        except (_Unbounded, ValueError):
            return False
        return True


def _find_number(content: bytes) -> str:
    """The place of the first number that is too large, as a path of keys."""
    try:
        pending = [("", json.loads(content, parse_int=_Text, parse_float=_Text, parse_constant=_Text))]
    except (ValueError, RecursionError):  # something after it is wrong too
        return "a number"
    while pending:
        path, value = pending.pop()
        if isinstance(value, _Text) and not value.is_bounded():
            return path
        below = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        pending += [(f"{path}.{key}" if path else str(key), item) for key, item in below][::-1]
    return "a number"


def format_json(value: Any) -> bytes:
    return (json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n").encode("utf-8")
