"""Models inside models: the members of a blend, and the candidate tree.

A nested model is a record in the manifest of the outer one, parts under a prefix, and shards:

    record = {"header": its own entries, "n_shards": how many shards it has, "shared": the names of its parts}

The outer model decides where the shards are: a blend's own shards are those of its members, one after the other;
those of a candidate tree are parts under the prefix too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from umpteen.errors import ModelCorruptError
from umpteen.storage.saving import shard_name
from umpteen.storage.store import Part

if TYPE_CHECKING:
    from umpteen.trained.model import TrainedModel

#: Entries of the outer model that nested ones do not repeat.
_OUTER_ENTRIES = ("text", "fingerprint")
#: The manifest entry of a candidate tree, and the prefix of its parts.
CANDIDATE_TREE = "candidates"
_CANDIDATE_PREFIX = "candidates-"


class Nested(NamedTuple):
    """A model as stored inside another one."""

    record: dict[str, Any]
    parts: dict[str, Part]  # by their names with the prefix
    shards: list[Part]


class Contents(NamedTuple):
    """The arguments of `TrainedModel.open`."""

    header: dict[str, Any]
    parts: dict[str, Part]
    shards: list[Part]


def nest(model: TrainedModel, prefix: str, *, without: Iterable[str] = ()) -> Nested:
    """What an outer model stores of an inner one; it already has the parts named in `without`."""
    left_out = set(without)
    own = {name: part for name, part in model.parts.items() if name not in left_out}
    shards = model.scorer.to_parts()
    header = {key: value for key, value in model.header.items() if key not in _OUTER_ENTRIES}
    record = {"header": header, "n_shards": len(shards), "shared": sorted(own)}
    return Nested(record, {prefix + name: part for name, part in own.items()}, shards)


def unnest(
    record: Any, outer: Mapping[str, Any], parts: Mapping[str, Part], prefix: str, shards: Sequence[Part]
) -> Contents:
    """The contents of a nested model, which must have the same numbers of features and labels as the outer one.

    Parameters
    ----------
    record, outer
        Its record, and the entries of the outer model's manifest; neither is trusted.
    parts
        The parts of the outer model.
    shards
        The shards of the nested model.
    """
    if not isinstance(record, dict) or not isinstance(record.get("header"), dict):
        raise ModelCorruptError(f"the record of a nested model must have a header, but is {record!r:.100}")
    header = record["header"]
    for key in ("n_features", "n_labels"):
        if header.get(key) != outer[key]:
            raise ModelCorruptError(f"a nested model must have {key} {outer[key]}, but has {header.get(key)!r:.100}")
    if (n_shards := count_shards(record, len(shards))) != len(shards):
        raise ModelCorruptError(f"a nested model must have {n_shards} shards, but has {len(shards)}")
    names = record.get("shared")
    if names is None:  # the first candidate trees did not list their parts
        names = [name.removeprefix(prefix) for name in parts if name.startswith(prefix)]
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ModelCorruptError(
            f"shared, the parts of a nested model, must be a list of names, but is {names!r:.100}"
        )
    missing = [name for name in names if prefix + name not in parts]
    if missing:
        raise ModelCorruptError(f"the part {prefix}{missing[0]:.100} of a nested model is missing")
    return Contents(header, {name: parts[prefix + name] for name in names}, list(shards))


def count_shards(record: Any, most: int) -> int:
    """How many shards a nested model has, of those that are there for it."""
    n_shards = record.get("n_shards") if isinstance(record, dict) else None
    if type(n_shards) is not int or not 1 <= n_shards <= most:
        raise ModelCorruptError(f"n_shards of a nested model must be in [1, {most}], but is {n_shards!r:.100}")
    return n_shards


def nest_candidate_tree(tree: TrainedModel) -> tuple[dict[str, Any], dict[str, Part]]:
    """The manifest entries and the parts that store a candidate tree in a model."""
    record, parts, shards = nest(tree, _CANDIDATE_PREFIX)
    own = {_CANDIDATE_PREFIX + shard_name(i): shard for i, shard in enumerate(shards)}
    return {CANDIDATE_TREE: record}, parts | own


def open_candidate_tree(header: Mapping[str, Any], parts: Mapping[str, Part]) -> Contents | None:
    """The contents of a model's candidate tree; None if it has none."""
    if CANDIDATE_TREE not in header:
        return None
    record = header[CANDIDATE_TREE]
    names = [_CANDIDATE_PREFIX + shard_name(i) for i in range(count_shards(record, len(parts)))]
    missing = [name for name in names if name not in parts]
    if missing:
        raise ModelCorruptError(f"the part {missing[0]} of the candidate tree is missing")
    inner = {name: part for name, part in parts.items() if name not in names}
    return unnest(record, header, inner, _CANDIDATE_PREFIX, [parts[name] for name in names])
