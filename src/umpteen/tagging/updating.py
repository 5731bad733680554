"""A model whose vocabulary has a new edition: labels keep their ids, and follow their concepts."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import count

import numpy as np

from umpteen.storage.names import Names
from umpteen.storage.store import Part
from umpteen.tagging.concepts import CONCEPTS, LabelConcepts
from umpteen.trained.model import TrainedModel
from umpteen.vocabulary.concepts import Vocabulary
from umpteen.vocabulary.updating import update_vocabulary

RETIRED = "retired"


@dataclass
class VocabularyUpdate:
    """What a new edition of a vocabulary changed.

    Attributes
    ----------
    n_before, n_after : int
        Concepts, without deprecated ones.
    added, removed, deprecated : list of str
        Names of concepts that are new, that the new edition lacks, and that it has deprecated.
    renamed : list of (str, str)
        Labels of the model with another name than before: the old one and the new one.
    merged : list of (str, str)
        Labels whose concept another label's has replaced: both names. Only the second is suggested.
    retired : list of str
        All labels that are suggested no more, from now on or already before, with their names of today.
    restored : list of str
        Labels that were suggested no more, and now are again.
    """

    n_before: int
    n_after: int
    added: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    deprecated: list[str] = field(default_factory=list)
    renamed: list[tuple[str, str]] = field(default_factory=list)
    merged: list[tuple[str, str]] = field(default_factory=list)
    retired: list[str] = field(default_factory=list)
    restored: list[str] = field(default_factory=list)


def update_model(
    model: TrainedModel, concepts: LabelConcepts, new: Vocabulary
) -> tuple[TrainedModel, VocabularyUpdate]:
    """The model with a new edition of its vocabulary.

    A label is the concept it was, under that concept's new name, or the one that has replaced it. Of several labels
    that are one concept now, the one that always was it stays, else the one with the most rows; the others are
    retired, as are those of concepts that are deprecated or gone: these keep ids and weights, but are not ranked.
    """
    assert model.label_names is not None
    old_names = list(model.label_names)
    updated = update_vocabulary(concepts.vocabulary, new)
    concept_names = updated.names()
    own = _own_concepts(concepts, concept_names)
    now = [updated.current(i) if i >= 0 else -1 for i in own]
    holders = _choose_holders(own, now, model.train_counts.counts.tolist())
    gone = [i >= 0 and bool(updated.deprecated[i]) for i in now]
    retired = [k for k, i in enumerate(now) if i >= 0 and (gone[k] or holders[i] != k)]
    numbers = [own[k] if k in set(retired) else i for k, i in enumerate(now)]
    names = _name_labels(old_names, numbers, concept_names)

    change = _compare(concepts.vocabulary, updated, new, concept_names)
    change.renamed = [pair for pair in zip(old_names, names, strict=True) if pair[0] != pair[1]]
    change.merged = [(names[k], names[holders[now[k]]]) for k in retired if not gone[k]]
    change.retired = [names[k] for k in retired]
    change.restored = [names[k] for k in model.retired.tolist() if k not in set(retired)]
    part = LabelConcepts(updated, np.array(numbers, np.int32), names).to_part()
    parts = {name: kept for name, kept in model.parts.items() if name != RETIRED}
    parts |= {"names": Names.encode(names).to_part(), CONCEPTS: part}
    if retired:
        parts[RETIRED] = Part({"labels": np.array(retired, np.int32)})
    return TrainedModel(model.header, parts, model.scorer, model.threads), change


def _own_concepts(concepts: LabelConcepts, concept_names: list[str]) -> list[int]:
    """The concept of each label. One that was none so far may have the name of a concept that is new."""
    own: list[int] = concepts.numbers.tolist()
    places = {name: i for i, name in enumerate(concept_names)}
    taken = set(own)
    for k, i in enumerate(own):
        found = places.get(concepts.names()[k], -1) if i < 0 else i
        if i < 0 and found not in taken:
            own[k] = found
            taken.add(found)
    return own


def _choose_holders(own: list[int], now: list[int], counts: list[int]) -> dict[int, int]:
    """The label that stands for each concept."""
    best: dict[int, tuple[bool, int, int]] = {}
    for k, i in enumerate(now):
        if i >= 0:
            rank = (own[k] != i, -counts[k], k)
            best[i] = min(best.get(i, rank), rank)
    return {i: k for i, (_, _, k) in best.items()}


def _name_labels(old_names: list[str], numbers: list[int], concept_names: list[str]) -> list[str]:
    """Names by label, each another: a label that is no concept may have the name of one that is another label."""
    names = [concept_names[i] if i >= 0 else old_names[k] for k, i in enumerate(numbers)]
    used = {name for name, i in zip(names, numbers, strict=True) if i >= 0}
    for k, i in enumerate(numbers):
        if i < 0 and names[k] in used:
            names[k] = next(name for n in count(k) if (name := f"{old_names[k]} ({n})") not in used)
        used.add(names[k])
    return names


def _compare(old: Vocabulary, updated: Vocabulary, new: Vocabulary, names: list[str]) -> VocabularyUpdate:
    change = VocabularyUpdate(int((~old.deprecated).sum()), int((~updated.deprecated).sum()), names[len(old) :])
    kept = {*new.uris} - {""}
    for i in range(len(old)):
        if updated.deprecated[i] and not old.deprecated[i]:
            in_new = updated.uris[i] in kept if updated.uris[i] else False
            (change.deprecated if in_new else change.removed).append(names[i])
    return change
