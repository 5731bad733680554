"""Labels whose terms stand in a text, ranked by what annotators made of such terms."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from umpteen.data.files import PathLike
from umpteen.data.label_lists import check_label_lists
from umpteen.data.matrix import Csr, as_csr
from umpteen.errors import DataError, ModelCorruptError, ModelError, ParamError
from umpteen.lexical.candidates import Candidates, Neighbours, find_candidates, without_rates
from umpteen.lexical.counts import N_FOLDS, Counts, Rates
from umpteen.lexical.places import TermFound, find_places
from umpteen.lexical.rule import Rule
from umpteen.lexical.terms import TermTable
from umpteen.models.scorer import Ranking
from umpteen.params import check_count, check_share
from umpteen.storage.remote import open_model
from umpteen.storage.saving import save_parts
from umpteen.storage.store import ModelReader, Part
from umpteen.threads import resolve_threads
from umpteen.vocabulary.concepts import Vocabulary
from umpteen.vocabulary.reading import read_vocabulary

_METHOD = "lexical"
_SHARD = "terms"
#: Candidates that the rule is learned from, at most: some hundred weights need no more.
_MOST_CANDIDATES = 200_000
#: Added to log-odds in rows of concepts, where 0 stands for a concept that was not found; they end 1 before it.
SHIFT = 16.0
#: Candidates and labels that tell more than the rule before training.
_FEWEST = 50


#: Of so many labels in training so small a share stands in the texts only if these are in another language.
_ENOUGH_LABELS, _FOUND_SHARE = 100, 0.02


class LexicalMatcher:
    """Suggests concepts of a vocabulary whose terms stand in a text: preferred, alternative and hidden names.

    Words are compared as stems. All words of a term must stand in one sentence, in any order; side by side and in
    order they count for more. It suggests without training, too; `fit` learns from labelled texts, few or many, which
    terms annotators follow, and how much place, frequency, length, ambiguity and neighbours count. Labels without a
    text are suggested like others.

    Parameters
    ----------
    vocabulary : Vocabulary or path
        Also the file of one.
    languages : list of str, optional
        Codes such as ``["en"]`` of the terms to look for; those of the texts. By default the language of the
        vocabulary's names, or all if it has none.
    threads : int, optional

    Examples
    --------
    >>> import umpteen
    >>> from umpteen.vocabulary.concepts import Concept, Term
    >>> fish = Concept("u:1", [Term("fish", "en", "preferred"), Term("herrings", "en", "alternative")])
    >>> trade = Concept("u:2", [Term("fish trade", "en", "preferred")])
    >>> matcher = umpteen.LexicalMatcher(umpteen.Vocabulary.build([fish, trade], language="en"))
    >>> [name for name, _ in matcher.suggest("The fish trade of the North")]
    ['fish trade', 'fish']
    >>> matcher.explain("Quotas for herring", "fish").term.text
    'herrings'
    """

    #: The names of what it keeps.
    PARTS: ClassVar[tuple[str, ...]] = ("concepts", "terms", "counts", "rule", "new_rule")

    def __init__(
        self,
        vocabulary: Vocabulary | PathLike,
        languages: Sequence[str] | None = None,
        threads: int | None = None,
    ) -> None:
        self.vocabulary = vocabulary if isinstance(vocabulary, Vocabulary) else read_vocabulary(vocabulary)
        self.threads = threads
        table = TermTable.build(self.vocabulary, languages)
        self._set(
            table, Counts.empty(len(self.vocabulary), len(table.entry_concepts)), Rule.untrained(), Rule.untrained()
        )

    def _set(self, table: TermTable, counts: Counts, rule: Rule, new_rule: Rule) -> None:
        self.languages = table.languages
        self._table, self._counts, self._rule, self._new_rule = table, counts, rule, new_rule
        self._rates, self._is_new = counts.rates(None), counts.is_new(None)
        self._neighbours = Neighbours(self.vocabulary)

    def __repr__(self) -> str:
        trained = f"trained on {self.n_rows_:,} texts" if self.n_rows_ else "untrained"
        return f"LexicalMatcher({len(self.vocabulary):,} concepts, languages {self.languages}, {trained})"

    @property
    def n_rows_(self) -> int:
        """Texts it was trained on; 0 before `fit`."""
        return int(self._counts.n_texts.sum())

    @property
    def n_bytes(self) -> int:
        """Bytes of its arrays, with the vocabulary's."""
        return sum(part.n_bytes for part in self.to_parts().values())

    # --- fit -----------------------------------------------------------------------------------------------------

    def fit(self, texts: Iterable[str], labels: Iterable[Iterable[str]]) -> Self:
        """Learns from texts and their labels, given as URIs, notations or names.

        Nothing is kept of the texts but counts: how often each concept was found, and chosen where it was found. A
        concept that no text has as a label may be new, so it is judged by its terms alone.
        """
        self._fit(list(texts), labels)
        return self

    def fit_transform(self, texts: Iterable[str], labels: Iterable[Iterable[str]]) -> Csr:
        """`fit`, and `transform` of the same texts, each as if it had not been among those in which concepts and
        terms were counted: what others learn from these rows holds for new texts too."""
        listed = list(texts)
        counts = self._fit(listed, labels)
        rates = [counts.rates(fold) for fold in range(N_FOLDS)]
        is_new = [counts.is_new(fold) for fold in range(N_FOLDS)]
        blocks, first = [], 0
        for candidates in self._candidates(listed):
            scores = np.zeros(len(candidates.texts))
            for fold in range(N_FOLDS):
                mine = (first + candidates.texts) % N_FOLDS == fold
                scores[mine] = self._score(candidates.some(mine), rates[fold], is_new[fold])
            blocks.append(_as_rows(candidates, scores, len(self.vocabulary)))
            first += candidates.n_texts
        return as_csr(sp.vstack(blocks, format="csr"), "the concepts found")

    def _fit(self, listed: list[str], labels: Iterable[Iterable[str]]) -> Counts:
        """Learns, and returns what was counted, by fold."""
        rows = self.find_concepts(labels)
        if len(listed) != len(rows):
            raise DataError(f"each of the {len(listed)} texts needs a list of labels, but there are {len(rows)}")
        if not listed:
            raise DataError("there must be at least one text, but there are none")
        counts, kept = self._count(listed, rows)
        self._warn_of_strangers(counts)
        X, chosen = self._join(kept, counts)
        enough = min(int(chosen.sum()), int((~chosen).sum())) >= _FEWEST
        self._counts, self._rates, self._is_new = counts.sums(), counts.rates(None), counts.is_new(None)
        if enough:
            threads = resolve_threads(self.threads)
            self._rule = Rule.fit(X, chosen, threads)
            self._new_rule = Rule.fit(without_rates(X), chosen, threads)
        else:
            self._rule = self._new_rule = Rule.untrained()
        return counts

    def _warn_of_strangers(self, counts: Counts) -> None:
        """Warns if labels hardly ever stand in their texts, as where these are in another language."""
        n_found, n_labels = int(counts.concepts_chosen.sum()), int(counts.labels.sum())
        if n_labels >= _ENOUGH_LABELS and n_found < _FOUND_SHARE * n_labels:
            shown = ", ".join(map(repr, self.languages))
            warnings.warn(
                f"only {n_found:,} of {n_labels:,} labels stand in their texts with one of their terms; are the "
                f"texts in the language of the terms, {shown}?",
                stacklevel=4,
            )

    def find_concepts(self, labels: Iterable[Iterable[str]]) -> list[NDArray[np.int64]]:
        """The numbers of concepts; of those that others replace, the others'."""
        lists = check_label_lists(labels)
        numbers: dict[str, int] = {}
        for label in {label for row in lists for label in row}:
            numbers[label] = self.vocabulary.current(self.vocabulary.find(label))
        return [np.unique([numbers[label] for label in row]).astype(np.int64) for row in lists]

    def _count(self, texts: list[str], rows: list[NDArray[np.int64]]) -> tuple[Counts, list[_Batch]]:
        """What annotators did, and the candidates of the first texts."""
        n_concepts = len(self.vocabulary)
        counts = Counts.empty(n_concepts, len(self._table.entry_concepts), N_FOLDS)
        kept: list[_Batch] = []
        first = n_kept = 0
        for candidates in self._candidates(texts):
            labels = rows[first : first + candidates.n_texts]
            wanted = np.repeat(np.arange(len(labels)), [len(row) for row in labels]) * n_concepts
            wanted = wanted + np.concatenate(labels)  # rise
            chosen = _is_in(candidates.texts * n_concepts + candidates.concepts, wanted)
            counts.add(candidates, chosen, first, labels)
            if n_kept < _MOST_CANDIDATES:
                kept.append(_Batch(first, candidates, chosen))
                n_kept += len(chosen)
            first += candidates.n_texts
        return counts, kept

    def _join(self, kept: list[_Batch], counts: Counts) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """Features and answers; what is known of a concept is from texts of other folds."""
        X, chosen = [], []
        rates = [counts.rates(fold) for fold in range(N_FOLDS)]
        for batch in kept:
            for fold, known in enumerate(rates):
                mine = (batch.first + batch.candidates.texts) % N_FOLDS == fold
                part = batch.candidates.some(mine)
                part.add_rates(known)
                X.append(part.X)
                chosen.append(batch.chosen[mine])
        joined = np.concatenate(X)[:_MOST_CANDIDATES]
        return joined, np.concatenate(chosen)[:_MOST_CANDIDATES]

    # --- suggest -------------------------------------------------------------------------------------------------

    def rank(
        self, texts: Iterable[str], top_k: int = 10, threshold: float = 0.0, threads: int | None = None
    ) -> Ranking:
        """The numbers of concepts, best first, padded with -1, and probabilities of at least `threshold`; of many
        texts.

        Before training the values in [0, 1] order the concepts and are not probabilities.
        """
        check_count("top_k", top_k)
        check_share("threshold", threshold)
        found = [
            _best(candidates, self._score(candidates), top_k, threshold)
            for candidates in self._candidates(texts, threads)
        ]
        if not found:
            return np.zeros((0, top_k), np.int32), np.zeros((0, top_k), np.float32)
        return np.concatenate([ids for ids, _ in found]), np.concatenate([values for _, values in found])

    def transform(self, texts: Iterable[str], threads: int | None = None) -> Csr:
        """Log-odds of the concepts that texts have terms of, n_texts x concepts: each plus `SHIFT`, so that what was
        found is above 0."""
        blocks = [
            _as_rows(candidates, self._score(candidates), len(self.vocabulary))
            for candidates in self._candidates(texts, threads)
        ]
        if not blocks:
            return as_csr(np.zeros((0, len(self.vocabulary)), np.float32), "the concepts found")
        return as_csr(sp.vstack(blocks, format="csr"), "the concepts found")

    def suggest(self, texts: Any, top_k: int = 10, threshold: float = 0.0, language: str | None = None) -> Any:
        """Names and probabilities of the concepts that a text has terms of, best first; for several texts lists."""
        one = isinstance(texts, str)
        names = self.vocabulary.names(language)
        found = [
            [(names[i], float(value)) for i, value in zip(row, values, strict=True) if i >= 0]
            for row, values in zip(*self.rank([texts] if one else texts, top_k, threshold), strict=True)
        ]
        return found[0] if one else found

    def explain(self, text: str, label: str | int) -> TermFound | None:
        """The term of a concept that a text has, its language and kind, and the words it is made of; None if there is
        none."""
        number = self.vocabulary.find(label) if isinstance(label, str) else int(label)
        if not 0 <= number < len(self.vocabulary):
            raise ParamError(f"label must be a concept's number below {len(self.vocabulary)}, but is {number}")
        return self.find_terms(text).get(number)

    def find_terms(self, text: str) -> dict[int, TermFound]:
        """By the number of each concept that a text has a term of, the one that says most."""
        (candidates,) = self._candidates([text])
        pairs = zip(candidates.concepts.tolist(), candidates.entries.tolist(), strict=True)
        return {concept: find_places(text, self._table, self.vocabulary, entry) for concept, entry in pairs}

    def _candidates(self, texts: Iterable[str], threads: int | None = None) -> Iterator[Candidates]:
        """The candidates of a batch of texts at a time."""
        for matches in self._table.match(texts, self.threads if threads is None else threads):
            yield find_candidates(matches, self._table, self._neighbours)

    def _score(
        self, candidates: Candidates, rates: Rates | None = None, is_new: NDArray[np.bool_] | None = None
    ) -> NDArray[np.float64]:
        """Log-odds; by default by what is known from all texts."""
        candidates.add_rates(self._rates if rates is None else rates)
        is_new = (self._is_new if is_new is None else is_new)[candidates.concepts]
        new, scores = self._new_rule.score(without_rates(candidates.X)), self._rule.score(candidates.X)
        return np.where(is_new, new, scores)

    # --- save and load -------------------------------------------------------------------------------------------

    def save(self, path: PathLike, *, overwrite: bool = False) -> None:
        """Writes a model directory: JSON and arrays, which `load` maps."""
        parts = self.to_parts()
        save_parts(path, {"method": _METHOD}, [parts.pop(_SHARD)], 1, parts, overwrite=overwrite)

    @classmethod
    def load(cls, path: PathLike | ModelReader, *, checksums: bool = False, threads: int | None = None) -> Self:
        """Opens what `save` wrote. Nothing in it is run; everything that is followed is checked."""
        reader = open_model(path, checksums=checksums)
        if reader.manifest.get("method") != _METHOD:
            raise ModelError(f"{reader.path}: must hold a LexicalMatcher, but does not; open it with umpteen.load")
        try:
            (shard,) = reader.shard_names
            return cls.from_parts(
                {name: reader.part(shard if name == _SHARD else name) for name in cls.PARTS}, threads
            )
        except ModelError as error:
            raise type(error)(f"{reader.path}: {error}") from error
        except ValueError as error:
            raise ModelCorruptError(f"{reader.path}: a matcher must have one shard ({error})") from error

    def to_parts(self) -> dict[str, Part]:
        kept = (
            self.vocabulary.to_part(), self._table.to_part(), self._counts.to_part(), self._rule.to_part(),
            self._new_rule.to_part(),
        )  # fmt: skip
        return dict(zip(self.PARTS, kept, strict=True))

    @classmethod
    def from_parts(cls, parts: dict[str, Part], threads: int | None = None) -> Self:
        matcher = cls.__new__(cls)
        matcher.vocabulary, matcher.threads = Vocabulary.from_part(parts["concepts"]), threads
        table = TermTable.from_part(parts["terms"], matcher.vocabulary)
        counts = Counts.from_part(parts["counts"], len(matcher.vocabulary), len(table.entry_concepts))
        matcher._set(table, counts, *(Rule.from_part(parts[name]) for name in ("rule", "new_rule")))
        return matcher


class _Batch(NamedTuple):
    """Candidates of some texts, and which of them are labels."""

    first: int
    candidates: Candidates
    chosen: NDArray[np.bool_]


def _is_in(keys: NDArray[np.int64], rising: NDArray[np.int64]) -> NDArray[np.bool_]:
    if not len(rising):
        return np.zeros(len(keys), bool)
    found: NDArray[np.bool_] = rising[np.minimum(np.searchsorted(rising, keys), len(rising) - 1)] == keys
    return found


def _as_rows(candidates: Candidates, scores: NDArray[np.float64], n_concepts: int) -> Any:
    """A sparse row for each text; candidates stand in the order of texts and concepts."""
    values = (np.clip(scores, -SHIFT + 1, SHIFT - 1) + SHIFT).astype(np.float32)
    indptr = np.append(0, np.cumsum(np.bincount(candidates.texts, minlength=candidates.n_texts)))
    return sp.csr_matrix((values, candidates.concepts, indptr), shape=(candidates.n_texts, n_concepts))


def _best(candidates: Candidates, scores: NDArray[np.float64], top_k: int, threshold: float) -> Ranking:
    """The best concepts of each text that are likely enough; of equals those with the lower number."""
    ids = np.full((candidates.n_texts, top_k), -1, np.int32)
    values = np.zeros((candidates.n_texts, top_k), np.float32)
    order = np.lexsort((candidates.concepts, -scores, candidates.texts))
    texts = candidates.texts[order]
    place = np.arange(len(order)) - np.searchsorted(texts, texts)
    probabilities = 1 / (1 + np.exp(-scores[order]))
    kept = (place < top_k) & (probabilities >= threshold)
    ids[texts[kept], place[kept]] = candidates.concepts[order][kept]
    values[texts[kept], place[kept]] = probabilities[kept]
    return ids, values
