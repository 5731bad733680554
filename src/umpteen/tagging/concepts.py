"""Labels that are concepts of a vocabulary: given by URI, notation or name, and named in any language."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from umpteen.data.corrections import Correction
from umpteen.data.files import PathLike
from umpteen.data.label_lists import check_label_lists
from umpteen.data.matrix import Csr, as_csr, make_csr
from umpteen.errors import DataError, ModelCorruptError, ModelError, ParamError
from umpteen.evaluation.hierarchy import close_upwards
from umpteen.nearest import search_names
from umpteen.storage.store import Part
from umpteen.trained.model import TrainedModel
from umpteen.vocabulary.concepts import Vocabulary
from umpteen.vocabulary.reading import read_vocabulary

#: The part of a model that keeps the vocabulary; "vocabulary" is that of words.
CONCEPTS = "concepts"
#: Labels that a message names; to look for what resembles one takes some tenths of a second.
_SHOWN = 5


def open_vocabulary(vocabulary: Vocabulary | PathLike | None) -> Vocabulary | None:
    """A tagger's parameter `vocabulary`: a vocabulary, or the file of one."""
    if vocabulary is None or isinstance(vocabulary, Vocabulary):
        return vocabulary
    if isinstance(vocabulary, (bytes, int, float, list, dict)):
        raise ParamError(f"vocabulary must be a Vocabulary or a file, but is a {type(vocabulary).__name__}")
    return read_vocabulary(vocabulary)


def name_concepts(vocabulary: Vocabulary, labels: Iterable[Iterable[str]]) -> list[list[str]]:
    """Labels given as URIs, notations or names, as the vocabulary's names; those of a concept that another replaces
    become the other's. Labels that the vocabulary does not have are left out, with a warning that shows what
    resembles them; if they are more than half, the vocabulary must be another one, and they are refused."""
    lists = check_label_lists(labels)
    counts = Counter(label for row in lists for label in row)
    names = vocabulary.names()
    found: dict[str, str] = {}
    unknown: list[str] = []
    for label in counts:
        concepts = vocabulary.find_all(label)
        if len(concepts) == 1:
            found[label] = names[vocabulary.current(concepts[0])]
        else:
            unknown.append(label)
    if unknown:
        _report(vocabulary, sorted(unknown, key=lambda label: (-counts[label], label)), counts)
    return [list(dict.fromkeys(found[label] for label in row if label in found)) for row in lists]


def _report(vocabulary: Vocabulary, unknown: Sequence[str], counts: Counter[str]) -> None:
    n_given, n_unknown = counts.total(), sum(counts[label] for label in unknown)
    reasons = "; ".join(_reason(vocabulary, label) for label in unknown[:_SHOWN])
    more = f"; and {len(unknown) - _SHOWN:,} more" if len(unknown) > _SHOWN else ""
    said = f"{len(unknown):,} of {len(counts):,} labels ({n_unknown:,} of {n_given:,} times)"
    if 2 * n_unknown > n_given:
        raise DataError(f"most labels must be in the vocabulary, but {said} are not: {reasons}{more}")
    warnings.warn(f"{said} are left out: {reasons}{more}", stacklevel=5)


def _reason(vocabulary: Vocabulary, label: str) -> str:
    try:
        vocabulary.find(label)
    except DataError as error:
        return str(error)
    raise AssertionError(label)


class LabelConcepts:
    """The concept of each label of a model.

    Attributes
    ----------
    vocabulary : Vocabulary
    numbers : array of int32
        The number of each label's concept; -1 for a label that is none.
    """

    def __init__(self, vocabulary: Vocabulary, numbers: NDArray[np.int32], label_names: Sequence[str]) -> None:
        self.vocabulary, self.numbers, self._label_names = vocabulary, numbers, label_names

    @classmethod
    def make(cls, vocabulary: Vocabulary, label_names: Sequence[str]) -> LabelConcepts:
        """The concepts of labels that have the vocabulary's names."""
        ids = {name: i for i, name in enumerate(vocabulary.names())}
        return cls(vocabulary, np.array([ids.get(name, -1) for name in label_names], np.int32), label_names)

    @classmethod
    def open(cls, model: TrainedModel) -> LabelConcepts | None:
        """What a model keeps, which is not trusted; None if it has no vocabulary. Labels that joined the model later
        are looked up by their names."""
        part = model.parts.get(CONCEPTS)
        if part is None:
            return None
        if model.label_names is None:
            raise ModelCorruptError("a model with a vocabulary must have label names, but has none")
        vocabulary = Vocabulary.from_part(part)
        numbers = part.array("labels", "int32")
        if len(numbers) > model.n_labels or (
            len(numbers) and not -1 <= int(numbers.min()) <= int(numbers.max()) < len(vocabulary)
        ):
            raise ModelCorruptError("the labels' concepts must be in the vocabulary, but are not")
        new = [model.label_names[i] for i in range(len(numbers), model.n_labels)]
        if new:
            numbers = np.concatenate([numbers, cls.make(vocabulary, new).numbers])
        return cls(vocabulary, numbers, model.label_names)

    def to_part(self) -> Part:
        part = self.vocabulary.to_part()
        return Part({**part.arrays, "labels": self.numbers}, part.scalars)

    # --- labels to names -----------------------------------------------------------------------------------------

    def names(self, language: str | None = None) -> Sequence[str]:
        """Label names by id, in a language; where a label is no concept, as the model calls it."""
        if language is None:
            return self._label_names
        names = self.vocabulary.names(language)
        return [names[i] if i >= 0 else self._label_names[k] for k, i in enumerate(self.numbers.tolist())]

    def uri(self, label: int) -> str:
        number = int(self.numbers[label])
        return str(self.vocabulary.uris[number]) if number >= 0 else ""

    def notation(self, label: int) -> str:
        number = int(self.numbers[label])
        return str(self.vocabulary.notations[number]) if number >= 0 else ""

    def describe(self, label: int) -> dict[str, str]:
        """The URI and the notation of a label, as far as it has them."""
        found = {"uri": self.uri(label), "notation": self.notation(label)}
        return {key: value for key, value in found.items() if value}

    @cached_property
    def columns(self) -> dict[str, list[str]]:
        """The same of all labels, each as a column; left out where no label has one."""
        labels = range(len(self.numbers))
        found = {"uri": [self.uri(i) for i in labels], "notation": [self.notation(i) for i in labels]}
        return {key: values for key, values in found.items() if any(values)}

    # --- hierarchy -----------------------------------------------------------------------------------------------

    def ancestors(self) -> Csr:
        """n_labels x n_labels, sparse: each label, and all labels above it, however many concepts are between."""
        known = np.flatnonzero(self.numbers >= 0)
        place = make_csr(
            np.ones(len(known), np.float32), self.numbers[known], np.append(0, np.cumsum(self.numbers >= 0)),
            (len(self.numbers), len(self.vocabulary)),
        )  # fmt: skip
        found = place @ close_upwards(self.vocabulary.broader_matrix()) @ place.T
        return as_csr((found + sp.identity(len(self.numbers), np.float32)).sign(), "ancestors")

    def roll_up(self, label: int, steps: int) -> list[int]:
        """The concepts so many steps above a label, or the last above which there are none; none if it is none."""
        found = [int(self.numbers[label])] if self.numbers[label] >= 0 else []
        for _ in range(steps):
            found = list(dict.fromkeys(up for i in found for up in self.vocabulary.broader(i) or [i]))
        return found

    # --- names to labels -----------------------------------------------------------------------------------------

    def find(self, label: str) -> int | None:
        """The id of the label that is a concept, by URI, notation or name in any language; None if there is none."""
        found = self.vocabulary.find_all(label)
        return self._labels.get(self.vocabulary.current(found[0])) if len(found) == 1 else None

    def label_of(self, concept: int) -> int | None:
        """The id of the label that is a concept; None if there is none."""
        return self._labels.get(concept)

    def search(self, query: str, names: Sequence[str]) -> list[int]:
        """The ids of labels that a query finds, best first: the one whose URI or notation it is; else those with such
        a name, or another term in any language."""
        if query not in names and (label := self.find(query)) is not None:
            return [label]
        terms = [(self._labels[i], term.text) for i, term in self.vocabulary.iter_terms() if i in self._labels]
        owners = [*range(len(names)), *(label for label, _ in terms)]
        found = search_names(query, [*names, *(text for _, text in terms)])
        return list(dict.fromkeys(owners[i] for i in found))

    def resolve(self, model: TrainedModel, labels: Any) -> Any:
        """Labels to leave out or to give alone: what is no label name of a model may be another name of one."""
        if labels is None or isinstance(labels, (str, int, np.integer)):
            return labels if not isinstance(labels, str) else self.resolve(model, [labels])
        return [label if not isinstance(label, str) else self._resolve(model, label) for label in labels]

    def _resolve(self, model: TrainedModel, label: str) -> str | int:
        if label in model.ids_by_name:
            return label
        found = self.find(label)
        return label if found is None else found

    def translate(self, model: TrainedModel, labels: Iterable[Iterable[str]]) -> list[list[str]]:
        """Label lists with the model's names, or the vocabulary's for concepts that are no label yet; what the
        vocabulary does not have stays as it is."""
        return [[self._translate(model, label) for label in row] for row in check_label_lists(labels)]

    def _translate(self, model: TrainedModel, label: str) -> str:
        if label in model.ids_by_name:
            return label
        found = self.vocabulary.find_all(label)
        if len(found) != 1:
            return label
        concept = self.vocabulary.current(found[0])
        return self._label_names[self._labels[concept]] if concept in self._labels else self._concept_names[concept]

    def correct(self, model: TrainedModel, said: Correction) -> Correction:
        """A correction with the model's names."""
        right, wrong = self.translate(model, [said.right, said.wrong])
        return replace(said, right=right, wrong=wrong)

    @cached_property
    def _labels(self) -> dict[int, int]:
        return {number: label for label, number in enumerate(self.numbers.tolist()) if number >= 0}

    @cached_property
    def _concept_names(self) -> list[str]:
        return self.vocabulary.names()


def check_concepts(model: TrainedModel, path: object) -> LabelConcepts | None:
    """`LabelConcepts.open` with the model's path in messages."""
    try:
        return LabelConcepts.open(model)
    except ModelError as error:
        raise type(error)(f"{path}: {error}") from error
