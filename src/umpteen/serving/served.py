"""A model directory that answers requests."""

from __future__ import annotations

import datetime
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from msgspec import UNSET
from numpy.typing import NDArray

from umpteen import _native
from umpteen.data.matrix import Csr, make_csr
from umpteen.errors import DataError, ModelChangedError, ParamError
from umpteen.evaluation.report import frequency_chart
from umpteen.models.explanation import Explanation
from umpteen.models.scorer import Ranking
from umpteen.nearest import did_you_mean, find_nearest
from umpteen.serving import schema
from umpteen.serving.batching import Lane, Outcome
from umpteen.serving.counts import Counts
from umpteen.serving.kept import read_metrics
from umpteen.serving.learning import Teacher
from umpteen.serving.problems import FromModel, Problem, without_trace
from umpteen.serving.settings import Settings
from umpteen.serving.versions import shorten
from umpteen.storage.steady import MANIFEST
from umpteen.storage.store import ModelReader
from umpteen.tagger import Tagger, load
from umpteen.tagging.explaining import TextExplanation, add_up
from umpteen.tagging.growing import can_learn
from umpteen.tagging.rows import TextRows, rank_rows, why_none
from umpteen.trained.model import TrainedModel

#: Decoded label names to keep; some are used again and again, and most of a million never.
_NAMES_KEPT = 1 << 16
_FREQUENT = 20
#: Names and terms that a search looks at.
_MOST_FOUND = 5000
#: Labels that one the model lacks is compared with, the most frequent ones: some milliseconds at most.
_COMPARED, _LONGEST_COMPARED = 2000, 100
#: Rows in one kernel call: enough to keep the kernel busy, few enough to answer the first in milliseconds.
_ROWS_PER_CALL = 256
#: Less work than this, in seconds or characters, is done before a second thread would have started. When many
#: requests share a call, the other cores are busy reading and writing, and each thread visits a forest's nodes again.
_WORTH_THREADS = 0.002
_WORTH_THREADS_AMONG_MANY = 0.01
_MANY_CHARACTERS = 500_000
#: What comes before the score of a suggestion.
_SCORE = b'"score":'


@dataclass(slots=True, eq=False)
class SuggestJob:
    """A request for suggestions, for one text or for a batch."""

    options: schema.SuggestOptions
    documents: Sequence[schema.Document | schema.SuggestRequest]
    batch: bool


@dataclass(frozen=True, eq=False)
class _Texts:
    """What the answers say of the texts themselves."""

    words: list[int]
    unknown: list[int]
    known_share: list[float]
    least_known: list[float]

    @classmethod
    def of(cls, rows: TextRows, least_known: NDArray[np.float64]) -> _Texts | None:
        if rows.words is None:
            return None
        unknown, total = rows.words
        return cls(total.tolist(), unknown.tolist(), rows.known_share.tolist(), least_known.tolist())

    def write(self, row: int, results: bytes) -> bytes:
        """The end of an answer, after its results."""
        counts = b',"words":%d,"unknown_words":%d' % (self.words[row], self.unknown[row])
        if results != b"[]":
            return counts + b"}"
        return counts + b',"note":%b}' % msgspec.json.encode(why_none(self.known_share[row], self.least_known[row]))


def _shared_settings(
    ask: schema.SuggestOptions,
) -> tuple[str, str | None, tuple[str, ...], tuple[str, ...] | None, str | None]:
    """What requests must have in common to be ranked together."""
    kind = "decided" if ask.top_k is None else "auto" if ask.top_k == "auto" else "number"
    threshold = "number" if isinstance(ask.threshold, float) else ask.threshold
    return kind, threshold, tuple(ask.exclude), None if ask.include is None else tuple(ask.include), ask.language


class OpenModel:
    """One version of a model directory. It never changes, so any thread may use it; a changed directory is opened as
    another one."""

    def __init__(self, path: str, threads: int, *, verify: bool = False, expected: str | None = None) -> None:
        """Opens a directory; with `verify` compares every byte with its checksum, and with `expected` refuses any
        version but that one."""
        resolved = Path(path).resolve()  # a link may change to another model while this one is opened
        self._reader = ModelReader(resolved, checksums=verify)
        self.version, self._directory = shorten(self._reader.version), resolved.name
        if expected is not None and self.version != expected:
            raise ModelChangedError(f"{path}: version {expected} was tried, but now version {self.version} is there")
        loaded = load(self._reader)
        self.model: TrainedModel = loaded.fitted() if isinstance(loaded, Tagger) else loaded
        self._threads = threads
        self._pace = Pace()
        self.tagger: Tagger | None = loaded if isinstance(loaded, Tagger) and loaded.features_ is not None else None
        #: The columns that texts come from, where the model knows them.
        self.fields = None if self.tagger is None or self.tagger.fields_ is None else self.tagger.fields_.unlabelled()
        self.takes = "text" if self.tagger is not None else "features"
        self.learns = self.tagger is not None and can_learn(self.tagger.fitted(), self.tagger.method)
        self.label, begin = _namers(self.model.label_names, self._describe)
        self._begins: dict[str, Callable[[int], bytes]] = {"": begin}  # by language
        self._metrics = read_metrics(self._reader)
        self._changed = as_time((resolved / MANIFEST).stat().st_mtime)
        self._warm_up()

    def _warm_up(self) -> None:
        """Loads what the first request would have to."""
        document = schema.Document(text="é") if self.tagger is not None else schema.Document(features={})
        outcome = self.suggest([SuggestJob(schema.SuggestOptions(), [document], batch=False)])[0]
        if isinstance(outcome, Exception):
            raise outcome

    # --- labels -------------------------------------------------------------------------------------------------

    def _ids(self, labels: Sequence[str]) -> list[int]:
        """Ids of labels; in a model without names, a label is its id."""
        return [self._id(label) for label in labels]

    def _id(self, label: str) -> int:
        model = self.model
        found = model.ids_by_name.get(label) if model.label_names is not None else _parse_id(label, model.n_labels)
        if found is None and self.tagger is not None and self.tagger.concepts_ is not None:
            found = self.tagger.concepts_.find(label)
        if found is None:
            named = "" if model.label_names is not None else f"; its labels are ids below {model.n_labels}"
            if model.label_names is not None and len(label) <= _LONGEST_COMPARED:
                named = did_you_mean(label, map(self.label, self._most_frequent(_COMPARED)))
            raise Problem(404, "unknown_label", f"the model has no label {label!r:.100}{named}")
        return found

    # --- suggest ------------------------------------------------------------------------------------------------

    def suggest(self, jobs: Sequence[SuggestJob]) -> list[Outcome]:
        """Answers requests with as few kernel calls as their settings allow."""
        try:
            return self._suggest(jobs)
        except Exception as error:
            if len(jobs) == 1:
                return [without_trace(error)]
            return [self.suggest([job])[0] for job in jobs]  # so that only the faulty one fails

    def _suggest(self, jobs: Sequence[SuggestJob]) -> list[Outcome]:
        rows_of = [len(job.documents) for job in jobs]
        starts = np.cumsum([0, *rows_of]).tolist()
        given = self._to_rows([document for job in jobs for document in job.documents])
        least_known = np.repeat([job.options.min_known for job in jobs], rows_of)
        texts = _Texts.of(given, least_known)
        groups: dict[Any, list[int]] = {}  # settings a kernel call has to share -> jobs
        for number, job in enumerate(jobs):
            groups.setdefault(_shared_settings(job.options), []).append(number)
        answers: list[Outcome] = [b""] * len(jobs)
        for (*key, language), members in groups.items():
            rows = [row for number in members for row in range(starts[number], starts[number + 1])]
            some = given if len(groups) == 1 else given.take(rows)
            labels, scores = self._rank(some, least_known[rows], [jobs[number].options for number in members], *key)
            begin = self._begin_in(language)
            found = iter(self._write(labels, scores, [jobs[number] for number in members], begin))
            for number in members:
                results = [next(found) for _ in jobs[number].documents]
                answers[number] = self._answer(jobs[number], results, texts, starts[number])
        return answers

    def _rank(
        self,
        rows: TextRows,
        least_known: NDArray[np.float64],
        options: Sequence[schema.SuggestOptions],
        kind: str,
        threshold: str | None,
        exclude: tuple[str, ...],
        include: tuple[str, ...] | None,
    ) -> Ranking:
        """Ranks the rows of some requests at once: as many labels as any of them asks for."""
        top_k: int | str | None = None
        least: float | str | None = None if threshold == "number" else threshold
        if kind == "auto":
            top_k = "auto"
        elif kind == "number":
            top_k = min(max(int(ask.top_k) for ask in options), self.model.n_labels)  # type: ignore[arg-type]
        elif threshold == "number":
            least = min(ask.threshold for ask in options)  # type: ignore[type-var]
        worth = _WORTH_THREADS if len(options) == 1 else _WORTH_THREADS_AMONG_MANY
        n_rows = rows.X.shape[0]
        threads = self._threads if n_rows * self._pace.row_seconds > worth else 1
        with self._pace.measure(n_rows, threads):
            return rank_rows(
                self.model,
                rows,
                top_k,
                least,
                self._ids(exclude) if exclude else None,
                self._ids(include) if include is not None else None,
                threads,
                min_known=least_known,
            )

    def _begin_in(self, language: str | None) -> Callable[[int], bytes]:
        """What begins suggestions with names in a language."""
        key = (language or "").casefold()  # so that a client cannot fill it with EN, En and eN
        found = self._begins.get(key)
        if found is None:
            if self.tagger is None or self.tagger.concepts_ is None:
                raise ParamError("language must be left out, since the model has no vocabulary")
            names = self.tagger.names_in(language)
            found = self._begins[key] = _namers(names, self._describe)[1]
        return found

    def _describe(self, label: int) -> dict[str, str]:
        concepts = None if self.tagger is None else self.tagger.concepts_
        return {} if concepts is None else concepts.describe(label)

    def _write(
        self,
        labels: NDArray[np.int32],
        scores: NDArray[np.float32],
        jobs: Sequence[SuggestJob],
        begin: Callable[[int], bytes],
    ) -> list[bytes]:
        """The rows' suggestions within `top_k` and `threshold`: each a list of `schema.Suggestion` in JSON, assembled
        from pieces that are made once."""
        wanted = [job.options.top_k for job in jobs]
        most = [labels.shape[1] if top_k is None or isinstance(top_k, str) else int(top_k) for top_k in wanted]
        least = [job.options.threshold if isinstance(job.options.threshold, float) else 0.0 for job in jobs]
        n_rows = [len(job.documents) for job in jobs]
        support = self.model.count_support(scores)
        kinds = labels.astype(np.int64) << 32 | (0 if support is None else support)  # what there is to say but scores
        found, which = np.unique(np.where(labels >= 0, kinds, -1), return_inverse=True)
        if len(found) and found[0] < 0:
            found, which = found[1:], which - 1  # none
        begins = map(begin, (found >> 32).tolist())
        if support is not None:
            begins = map(_add_support, begins, (found & 0xFFFFFFFF).tolist())
        return _native.write_suggestions(
            which.reshape(labels.shape).astype(np.int32),
            scores,
            list(begins),
            np.repeat(np.array(most, np.int64), n_rows),
            np.repeat(np.array(least, np.float64), n_rows),
        )

    def _answer(self, job: SuggestJob, results: list[bytes], texts: _Texts | None, row: int) -> bytes:
        """A `schema.SuggestResponse`, or a list of `schema.BatchResult`."""
        ends = [b"}" if texts is None else texts.write(row + i, found) for i, found in enumerate(results)]
        if not job.batch:
            return b'{"results":%b%b' % (results[0], ends[0])
        ids = [msgspec.json.encode(getattr(document, "document_id", None)) for document in job.documents]
        parts = [b'{"document_id":%b,"results":%b%b' % part for part in zip(ids, results, ends, strict=True)]
        return b"[%b]" % b",".join(parts)

    def _to_rows(self, documents: Sequence[Any]) -> TextRows:
        """X, and the number of words of each text."""
        if self.tagger is not None:
            texts = [document.text for document in documents]
            if UNSET in texts:
                raise DataError("this model needs a text or a record, but a document has neither")
            if any(document.features is not UNSET for document in documents):
                raise DataError("this model needs a text, but a document has features")
            many = sum(map(len, texts)) > _MANY_CHARACTERS
            return self.tagger.vectorize(texts, threads=self._threads if many else 1)
        features = [document.features for document in documents]
        if UNSET in features or any(document.text is not UNSET for document in documents):
            raise DataError("this model needs features, not a text: it was trained on numbers")
        return TextRows(to_matrix(features, self.model.n_features), None)

    # --- explain, search, describe ------------------------------------------------------------------------------

    def explain(self, ask: schema.ExplainRequest) -> bytes:
        X = self._to_rows([ask]).X
        label = self._id(ask.label) if ask.label is not None else int(self.model.predict_topk(X, 1)[0][0, 0])
        if label < 0:
            raise Problem(404, "unknown_label", "no label can be ranked for this text, so none can be explained")
        found: Explanation | TextExplanation
        words: list[tuple[str, float]]
        if self.tagger is not None:
            assert isinstance(ask.text, str)
            found = self.tagger.explain_row(ask.text, X, label)
            words, spans, unknown = found.words, found.spans, found.unknown
        else:
            found = self.model.explain(X, label)
            features = map(str, found.features.tolist())
            words, spans, unknown = list(zip(features, found.contributions.tolist(), strict=True)), [], []
        unit = self.model.to_unit(np.array([found.score], np.float32))
        support = self.model.count_support(unit)
        return msgspec.json.encode(
            schema.ExplainResponse(
                label=self.label(label),
                label_id=label,
                score=round(float(unit[0]), 6),
                family=found.family,
                meaning=self.model.scorer.meaning,
                raw_score=found.score if np.isfinite(found.score) else None,
                base=found.base,
                account=[
                    schema.AccountLine(*line) for line in add_up(words, found.base, found.explained, found.score)
                ],
                words=[schema.Word(word, value) for word, value in words],
                spans=[schema.Span(*span) for span in spans],
                unknown=unknown,
                votes=found.votes,
                note=found.note,
                support=UNSET if support is None else int(support[0]),
                terms=getattr(found, "terms", []),
                text=UNSET if ask.record is UNSET else str(ask.text),
            )
        )

    def find_labels(self, query: str, most: int) -> bytes:
        """Labels whose names contain a text: first the name itself, then names that begin with it, then frequent
        ones. Of models with a vocabulary, terms in all its languages are names too. If there are none, labels whose
        names resemble it."""
        counts: NDArray[np.int64] = self.model.train_counts.counts
        names = self.model.label_names
        if not query:
            ids = self._most_frequent(most)
        elif names is not None:
            folded = query.casefold()
            found = [(self.label(i), i) for i in names.find(query, _MOST_FOUND)]
            found += self._find_terms(query)
            terms: dict[int, str] = {}  # by label, the best name of each
            for text, i in sorted(
                found, key=lambda hit: _fit(hit[0].casefold(), folded, int(counts[hit[1]]), hit[1])
            ):
                terms.setdefault(i, text)
            ids = list(terms)[:most] or self._resembling(query)[:most]
            return msgspec.json.encode(schema.LabelsResponse(self._hits(ids, terms)))
        else:
            found_id = _parse_id(query, len(counts))
            ids = [] if found_id is None else [found_id]
        return msgspec.json.encode(schema.LabelsResponse(self._hits(ids)))

    def _resembling(self, query: str) -> list[int]:
        known = {} if len(query) > _LONGEST_COMPARED else {self.label(i): i for i in self._most_frequent(_COMPARED)}
        return [known[name] for name in find_nearest(query, known, n=10)]

    def _most_frequent(self, most: int) -> list[int]:
        counts = self.model.train_counts.counts
        order: list[int] = np.lexsort((np.arange(len(counts)), -counts))[:most].tolist()
        return order

    def _find_terms(self, query: str) -> list[tuple[str, int]]:
        """Terms of the vocabulary, and the labels they name."""
        concepts = None if self.tagger is None else self.tagger.concepts_
        if concepts is None:
            return []
        found = concepts.vocabulary.find_terms(query, _MOST_FOUND)
        return [(_sound(text), label) for i, text in found if (label := concepts.label_of(i)) is not None]

    def _hits(self, ids: Sequence[int], terms: Mapping[int, str] | None = None) -> list[schema.LabelHit]:
        counts = self.model.train_counts.counts
        hits = []
        for i in ids:
            name, term = self.label(i), (terms or {}).get(i)
            known = {key: _sound(value) for key, value in self._describe(i).items()}
            hits.append(
                schema.LabelHit(name, i, int(counts[i]), **known, term=UNSET if term in (None, name) else str(term))
            )
        return hits

    def summary(self, model_id: str) -> dict[str, Any]:
        model = self.model
        return {
            "model_id": model_id,
            "method": model.method,
            "family": model.family,
            "input": self.takes,
            "n_labels": model.n_labels,
            "n_features": model.n_features,
            "n_train_rows": model.train_counts.n_rows,
            "calibrated": model.calibration is not None,
            "modification_time": self._changed,
            "version": self.version,
            "directory": self._directory,
            "learns": self.learns,
            "fields": None if self.fields is None else self.fields.text_names(),
        }

    def facts(self, model_id: str) -> bytes:
        counts = self.model.train_counts.counts
        vectorizer = self.tagger.features_ if self.tagger is not None else None
        features = vectorizer.get_params() if vectorizer is not None else {}
        return msgspec.json.encode(
            schema.ModelFacts(
                **self.summary(model_id),
                bytes=self._reader.n_bytes(),
                parameters=self.model.params,
                features={name: value for name, value in features.items() if name != "threads"},
                metrics=self._metrics,
                most_frequent=self._hits(self._most_frequent(_FREQUENT)),
                labels_without_rows=int((counts == 0).sum()),
                umpteen_version=str(self.model.header.get("umpteen_version")),
            ),
            enc_hook=repr,  # features of another library
        )

    def frequencies(self) -> bytes:
        """A chart of how often each label occurs."""
        counts = self.model.train_counts.counts
        return frequency_chart(counts if counts.any() else np.ones(1, np.int64)).encode()


class Pace:
    """The seconds one thread needs to rank a row, from experience. Only the suggesting thread writes it."""

    def __init__(self) -> None:
        self.row_seconds = 0.0

    @contextmanager
    def measure(self, n_rows: int, threads: int) -> Iterator[None]:
        started = time.perf_counter()
        yield
        taken = (time.perf_counter() - started) * threads / n_rows
        self.row_seconds += 0.1 * (min(taken, 0.1) - self.row_seconds)


def _parse_id(label: str, n_labels: int) -> int | None:
    """The label id in a text, or None if it is not one."""
    digits = label.lstrip("0") or "0"
    if not label or not label.isascii() or not label.isdigit() or len(digits) > 12:
        return None
    return int(digits) if int(digits) < n_labels else None


def _namers(
    names: Sequence[str] | None, describe: Callable[[int], dict[str, str]]
) -> tuple[Callable[[int], str], Callable[[int], bytes]]:
    """Two functions of a label's id: its name, or the id as text, and the beginning of its suggestion in JSON, with
    what else there is to say of it."""

    @lru_cache(_NAMES_KEPT)
    def name_of(label: int) -> str:
        name = str(label) if names is None else names[label]
        return _sound(name)

    @lru_cache(_NAMES_KEPT)
    def begin(label: int) -> bytes:
        known = b"".join(b'"%b":%b,' % (key.encode(), _encode(value)) for key, value in describe(label).items())
        return b'{"label":%b,"label_id":%d,%b%b' % (msgspec.json.encode(name_of(label)), label, known, _SCORE)

    return name_of, begin


def _add_support(begin: bytes, support: int) -> bytes:
    """The beginning of a suggestion, with on how many predictions its probability rests."""
    return b'%b"support":%d,%b' % (begin[: -len(_SCORE)], support, _SCORE)


def _fit(name: str, wanted: str, count: int, label: int) -> tuple[bool, bool, int, int]:
    """How well a name fits what is looked for: the least is best."""
    return name != wanted, not name.startswith(wanted), -count, label


def _sound(text: str) -> str:
    return text if text.isascii() else text.encode("utf-8", "replace").decode()  # a lone surrogate becomes a "?"


def _encode(text: str) -> bytes:
    return msgspec.json.encode(_sound(text))


class Served:
    """A model under its id: the version that answers now, and its lanes."""

    def __init__(self, model_id: str, path: str, settings: Settings, counts: Counts) -> None:
        self.id = model_id
        self._threads, self._verify = settings.kernel_threads, settings.verify
        self.model = OpenModel(path, self._threads, verify=self._verify)
        self._next: OpenModel | None = None
        self.path, self._next_path = path, path
        self.teacher = Teacher(model_id, settings)
        limits = {"max_waiting": settings.max_waiting, "timeout": settings.timeout}
        self.suggestions: Lane[SuggestJob] = Lane(
            model_id,
            self._suggest,
            max_rows=_ROWS_PER_CALL,
            on_call=lambda rows: counts.batch(model_id, rows),
            **limits,  # type: ignore[arg-type]
        )
        self.questions: Lane[Callable[[OpenModel], bytes]] = Lane(
            f"{model_id} (questions)", self._ask,
            max_rows=1, max_waiting=max(16, settings.max_waiting // 16), timeout=settings.timeout,
        )  # fmt: skip

    def _suggest(self, jobs: list[SuggestJob]) -> list[Outcome]:
        model = self.model  # may be replaced meanwhile
        return [_with_version(outcome, model.version) for outcome in model.suggest(jobs)]

    def _ask(self, asked: list[Callable[[OpenModel], bytes]]) -> list[Outcome]:
        model = self.model
        return [_outcome(ask, model) for ask in asked]

    def prepare(self, path: str, version: str) -> None:
        """Opens the version of a directory that was tried. The current one answers until `settle`."""
        self._next = None  # no third one in memory
        self._next = OpenModel(path, self._threads, verify=self._verify, expected=version)
        self._next_path = path

    def settle(self, use: bool) -> None:
        """Uses what was prepared, if anything was, or drops it."""
        if use and self._next is not None:
            self.model, self.path = self._next, self._next_path
        self._next = None

    async def close(self) -> None:
        await self.suggestions.close()
        await self.questions.close()


def _with_version(outcome: Outcome, version: str) -> Outcome:
    if isinstance(outcome, bytes):
        return outcome, version
    return FromModel(outcome, version) if isinstance(outcome, Exception) else outcome


def _outcome(ask: Callable[[OpenModel], bytes], model: OpenModel) -> Outcome:
    try:
        return ask(model), model.version
    except Exception as error:
        return FromModel(error, model.version)


def as_time(seconds: float) -> str:
    """A file's time as text; it may be any number."""
    try:
        return datetime.datetime.fromtimestamp(seconds, datetime.UTC).isoformat(timespec="seconds")
    except (ValueError, OverflowError, OSError):
        return ("9999-12-31T23:59:59" if seconds > 0 else "0001-01-01T00:00:00") + "+00:00"


def to_matrix(rows: Sequence[dict[int, float] | list[float]], n_features: int) -> Csr:
    """Rows of features, each as values by id or as all values, as CSR float32."""
    as_ids: list[dict[int, float]] = []
    for row in rows:
        if isinstance(row, list):
            if len(row) != n_features:
                raise DataError(f"features must have {n_features} numbers, but have {len(row)}")
            row = {i: value for i, value in enumerate(row) if value != 0}
        as_ids.append(row)
    lengths = np.fromiter(map(len, as_ids), np.int64, len(as_ids))
    n = int(lengths.sum())
    indices = np.fromiter(chain.from_iterable(as_ids), np.int64, n)
    if n and int(indices.max()) >= n_features:
        raise DataError(f"feature ids must be below {n_features}, but one is {int(indices.max())}")
    with np.errstate(over="ignore"):  # infinite values are refused later, by row and column
        data = np.fromiter(chain.from_iterable(row.values() for row in as_ids), np.float64, n).astype(np.float32)
    row_of = np.repeat(np.arange(len(as_ids)), lengths)
    if (np.diff(row_of * np.int64(n_features) + indices) <= 0).any():
        order = np.lexsort((indices, row_of))
        indices, data = indices[order], data[order]
    indptr = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
    return make_csr(data, indices.astype(np.int32), indptr, (len(as_ids), n_features))


def find(models: dict[str, Served], model_id: str | None) -> Served:
    """The model with an id, or the first one."""
    if model_id is None:
        return next(iter(models.values()))
    if model_id not in models:
        raise Problem(404, "unknown_model", f"there is no model {model_id!r:.100}; there are {', '.join(models)}")
    return models[model_id]
