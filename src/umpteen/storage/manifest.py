"""The manifest: what a model is, checked so that the rest of the code can trust it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from umpteen.data.files import PathLike
from umpteen.errors import ModelCorruptError, ModelExistsError, ModelFormatError, ModelMissingError
from umpteen.storage.arrays import DTYPES, NAME

FORMAT = "umpteen-model"
FORMAT_VERSION = 1
MANIFEST = "manifest.json"
CHECKSUM = "manifest_sha256"


def first_manifest(header: Mapping[str, Any], shard_names: list[str]) -> dict[str, Any]:
    """What stands in the manifest while shards are missing."""
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
    path = Path(path)
    file = path / MANIFEST
    if not path.exists():
        raise ModelMissingError(f"{path}: there is no such model directory")
    if not file.is_file():
        raise ModelMissingError(f"{path}: holds no {MANIFEST}, so it is not a model directory")
    return check_manifest(file, parse_json(file, file.read_bytes()), checksums=checksums)


def check_manifest(file: object, manifest: dict[str, Any], *, checksums: bool = False) -> dict[str, Any]:
    """The manifest without its checksum, if its structure is right and, if asked, its content too."""
    said = manifest.pop(CHECKSUM, None)
    if manifest.get("format") != FORMAT:
        raise ModelFormatError(f"{file}: format must be {FORMAT!r}, but is {manifest.get('format')!r}")
    version = manifest.get("format_version")
    if version != FORMAT_VERSION or isinstance(version, bool):
        raise ModelFormatError(
            f"{file}: format_version must be {FORMAT_VERSION}, the one this umpteen reads, but is {version!r}; "
            "use the version that wrote the model, or train it again"
        )
    _require(file, isinstance(manifest.get("complete"), bool), "complete must be true or false")
    shards = manifest.get("shards" if manifest["complete"] else "planned")
    _require(file, _is_name_list(shards), "the list of shards must be a list of names")
    parts = manifest.get("parts")
    _require(file, isinstance(parts, dict), "parts must be an object")
    for name, record in parts.items():  # type: ignore[union-attr]
        _require(file, bool(NAME.fullmatch(name)), f"a part's name must match {NAME.pattern}, but is {name!r}")
        check_record(file, record)
    if manifest["complete"]:
        for name in shards:  # type: ignore[union-attr]
            _require(file, name in parts, f"shard {name} has no entry in parts")  # type: ignore[operator]
    if checksums:
        _require(file, said is not None, f"it must have a checksum, {CHECKSUM}, but has none")
        try:
            found = _sum_manifest(manifest)
        except RecursionError:
            raise ModelCorruptError(f"{file}: its entries are nested too deep") from None
        _require(file, said == found, f"the SHA-256 of its entries must be {said!r:.80}, but is {found}")
    return manifest


def format_manifest(manifest: dict[str, Any]) -> bytes:
    """What stands in the file: the manifest and its checksum."""
    return format_json(manifest | {CHECKSUM: _sum_manifest(manifest)})


def _sum_manifest(manifest: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()


def refuse_unless_same(path: object, old: dict[str, Any], new: dict[str, Any], resume: bool) -> None:
    if not resume:
        raise ModelExistsError(
            f"{path}: an unfinished model is there; resume its training, remove it or choose another directory"
        )
    old = {"planned": old.get("shards")} | old  # what a finished model's manifest calls it
    for key in new:
        if key not in ("complete", "parts") and old.get(key) != new[key]:
            raise ModelExistsError(
                f"{path}: an unfinished model is there whose {key} differs, so its training cannot be resumed "
                f"({_difference(old.get(key), new[key])}); remove it or choose another directory"
            )


def _difference(old: Any, new: Any) -> str:
    if isinstance(old, dict) and isinstance(new, dict):
        changed = [key for key in {**old, **new} if old.get(key) != new.get(key)]
        return ", ".join(f"{key} was {old.get(key)!r} and is {new.get(key)!r}" for key in changed)[:300]
    if isinstance(old, list):
        return "another list"
    return f"was {old!r} and is {new!r}"[:300]


def check_record(file: object, record: Any) -> None:
    good = isinstance(record, dict) and isinstance(record.get("scalars"), dict)
    _require(file, good and isinstance(record.get("arrays"), dict), "a part needs scalars and arrays")
    for key, entry in record["arrays"].items():
        shape = entry.get("shape") if isinstance(entry, dict) else None
        _require(
            file,
            bool(NAME.fullmatch(key))
            and isinstance(shape, list)
            and len(shape) <= 4
            and all(_is_count(n) for n in shape)
            and entry.get("dtype") in DTYPES
            and _is_count(entry.get("bytes"))
            and isinstance(entry.get("sha256"), str),
            f"array {key!r} needs a dtype, a shape, its bytes and its sha256",
        )


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63


def _is_name_list(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(name, str) and NAME.fullmatch(name) for name in value)


def _require(file: object, condition: bool, rule: str) -> None:
    if not condition:
        raise ModelCorruptError(f"{file}: {rule}")


def parse_json(file: object, content: bytes) -> dict[str, Any]:
    try:
        value = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise ModelCorruptError(f"{file}: not valid JSON ({error})") from error
    if not isinstance(value, dict):
        raise ModelCorruptError(f"{file}: must be a JSON object")
    return value


def format_json(value: Any) -> bytes:
    return (json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n").encode("utf-8")
