"""Channels: the ways a tagger with a vocabulary ranks labels, and how they become one ranking.

    rows        a method that learns from texts and their labels
    terms       LexicalMatcher: terms of the vocabulary that stand in the text
    label-text  LabelText: what labels with the same words have learned

Each channel is trained twice: without some texts, for which it then ranks labels, so that a blend can learn when to
trust which channel, above all by how many texts a label has (trained/blend_rule.py); and on all texts. Texts are held
out at random, so that some of their labels have no other text: as much as that will happen to new texts. A channel
without which held-out texts are ranked better, by more than chance, or that the blend does not use, is left out; so
are terms, if none stands in these texts.
"""

from __future__ import annotations

import shutil
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from umpteen import __version__
from umpteen.choosing.contest import ndcg_by_row
from umpteen.data.dataset import Dataset
from umpteen.data.matrix import Csr, as_csr, make_csr
from umpteen.data.preprocessing import Preprocessing
from umpteen.data.propensity import count_labels
from umpteen.data.split import split_rows
from umpteen.errors import ParamError
from umpteen.evaluation.metrics import find_hits
from umpteen.lexical.matcher import SHIFT, LexicalMatcher
from umpteen.memory import format_bytes
from umpteen.methods.base import Method
from umpteen.methods.blend import Blend
from umpteen.methods.find_rule import find_rule
from umpteen.methods.held_out import calibration_dir
from umpteen.methods.label_text import LabelText
from umpteen.methods.training import train_model
from umpteen.models.calibration import Calibration
from umpteen.models.linear import MAX_LABELS_PER_SHARD, LinearModel, LinearShard
from umpteen.models.scorer import Ranking
from umpteen.progress import Listener
from umpteen.storage.names import Names
from umpteen.storage.store import Part
from umpteen.tagging.concepts import LabelConcepts
from umpteen.tagging.label_terms import is_of_one_text, with_label_terms
from umpteen.tagging.storage import MATCHER
from umpteen.text.features import TextFeatures
from umpteen.text.with_terms import WithTerms, join
from umpteen.trained.blend import COMMON_PARTS, DEFAULT_N_CANDIDATES
from umpteen.trained.blend_rule import measure_frequency, pair, rank
from umpteen.trained.model import TrainedModel
from umpteen.vocabulary.concepts import Vocabulary

ROWS, TERMS, LABEL_TEXT = CHANNELS = ("rows", "terms", "label-text")
#: The name, as a method, of the terms alone.
LEXICAL = "lexical"
#: The manifest's entry.
ENTRY = "channels"
#: With "auto" the share of texts held out; of fewer texts than `_FEW`, more.
_SHARE, _LARGER_SHARE, _FEW = 0.1, 0.2, 5000
#: Fewer held-out texts with labels say nothing about channels.
_LEAST_ROWS = 10
#: Standard errors by which rankings must be better without a channel: only two of them know labels without texts.
_BETTER = 1.0
#: How far down rankings are compared.
_TOP_K = 10
#: Rows that the probabilities of terms alone are learned from, at most.
_MOST_ROWS = 50_000


class Channel(NamedTuple):
    """What became of a channel.

    Attributes
    ----------
    name, method : str
    weight : float
        How much it moves scores: 1 in all; 0 if it was left out.
    seconds : float
        Processor time of its training, of both models.
    n_bytes : int
        What the model keeps of it.
    """

    name: str
    method: str
    weight: float
    seconds: float
    n_bytes: int


def check_channels(channels: Any) -> tuple[str, ...] | None:
    """The parameter `channels`, checked."""
    if channels is None:
        return None
    listed = [channels] if isinstance(channels, str) else list(channels)
    if not listed or len(set(listed)) < len(listed) or any(name not in CHANNELS for name in listed):
        raise ParamError(f"channels must be some of {', '.join(CHANNELS)}, each once, but is {channels!r:.100}")
    return tuple(name for name in CHANNELS if name in listed)


def held_out_share(calibration: float | str, n_rows: int) -> float:
    """The share of texts that channels are compared on."""
    if calibration == "auto":
        return _LARGER_SHARE if n_rows < _FEW else _SHARE
    return float(calibration) if float(calibration) < 1 else 1 / float(calibration)


def leave_out(
    channels: tuple[str, ...], wanted: bool, base: TextFeatures | None, n_labelled: int, share: float
) -> tuple[str, ...]:
    """The channels that texts like these can have. Those that were asked for are refused instead."""
    problems = {}
    if LABEL_TEXT in channels and (base is None or not is_of_one_text(base)):
        problems[LABEL_TEXT] = "the features are not words or characters of one text"
    left = tuple(name for name in channels if name not in problems)
    if len(left) > 1 and int(n_labelled * share) < _LEAST_ROWS:
        reason = f"of {n_labelled} texts with labels too few can be held out to learn when to trust which channel"
        problems |= dict.fromkeys(left[1:], reason)
    for name, reason in problems.items():
        if wanted:
            raise ParamError(f"channels must be without {name}, as {reason}")
    if problems:
        reasons = "; ".join(dict.fromkeys(problems.values()))
        warnings.warn(f"left out: {', '.join(problems)}, as {reasons}", stacklevel=5)
    return tuple(name for name in channels if name not in problems)


def add_terms(
    base: TextFeatures,
    X: Csr,
    texts: Sequence[str],
    labels: Sequence[Sequence[str]],
    vocabulary: Vocabulary,
    threads: int | None = None,
) -> tuple[WithTerms, Csr]:
    """Features with the terms of a vocabulary, and their rows of the texts they were learned from."""
    matcher = LexicalMatcher(vocabulary, threads=getattr(base, "threads", None) if threads is None else threads)
    terms = matcher.fit_transform([str(text) for text in texts], labels)
    return WithTerms(base, matcher), join(X, terms)


# --- train ----------------------------------------------------------------------------------------------------------


@dataclass
class _Training:
    """Trains channels on some rows or all."""

    channels: tuple[str, ...]
    rows: Method | None  # the method of the channel "rows"
    features: TextFeatures
    data: Dataset
    vocabulary: Vocabulary
    beside: Path | None
    progress: bool | Listener
    fold_header: dict[str, Any]
    seconds: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.n_words = self.features.n_words if isinstance(self.features, WithTerms) else None
        X = as_csr(self.data.X, "X")
        self.words = X if self.n_words is None else Preprocessing(normalize=False, columns=self.n_words).transform(X)

    def method(self, channel: str) -> Method:
        if channel == ROWS:
            assert self.rows is not None
            return type(self.rows)(**self.rows.get_params())
        base = self.features.base if isinstance(self.features, WithTerms) else self.features
        made = LabelText() if self.rows is None else LabelText(threads=self.rows.threads, engine=self.rows.engine)
        method = with_label_terms(made, self.vocabulary, base, self.data.label_names or ())
        terms = as_csr(method.get_params()["label_terms"], "terms")
        shape = (terms.shape[0], self.data.X.shape[1])  # no label has words in the columns of terms
        return method.set_params(label_terms=make_csr(terms.data, terms.indices, terms.indptr, shape))

    def train(self, channel: str, which: str, some: Any, **extra: Any) -> TrainedModel:
        started = time.process_time()
        Y = self.data.Y if some is None else self.data.Y[some]
        if channel == TERMS:
            assert isinstance(self.features, WithTerms)
            model = terms_model(self.features, self.vocabulary, Y, self.data.label_names or (), **extra)
        else:
            X = self.words if some is None else self.words[some]
            place = (
                None if self.beside is None else self.beside / (which if channel == ROWS else f"{which}-{channel}")
            )
            model = train_model(
                self.method(channel), X, Y, place, accept_finished=True, progress=self.progress, **extra
            )  # fmt: skip
            model = _with_columns(model, self.n_words)
        self.seconds[channel] = self.seconds.get(channel, 0.0) + time.process_time() - started
        return model


def train_channels(
    channels: tuple[str, ...],
    rows: Method | None,
    features: TextFeatures,
    data: Dataset,
    vocabulary: Vocabulary,
    model_dir: Any,
    *,
    share: float,
    seed: int,
    header: Mapping[str, Any],
    parts: Mapping[str, Part],
    progress: bool | Listener,
) -> tuple[TrainedModel, list[Channel]]:
    """Trains channels and blends them; writes the model if there is a place for it.

    Parameters
    ----------
    rows
        The method of the channel "rows".
    features, data
        As `Tagger.prepare` makes them: with columns for terms, if these are a channel.
    share
        Of the texts, to be held out.
    header, parts
        More to keep in the model.
    """
    if rows is not None:
        rows.validate()
    work = _Training(
        channels, rows, features, data, vocabulary, calibration_dir(model_dir), progress, dict(header)
    )  # fmt: skip
    common = {name: part for name, part in parts.items() if name in COMMON_PARTS}
    extra: dict[str, Any] = {"extra_parts": common, "label_names": data.label_names}
    Y = as_csr(data.Y, "Y", values=False)
    kept, weights = channels, {channels[0]: 1.0}
    calibration = blend = None
    if channels == (TERMS,):
        calibration = _calibrate_terms(features, vocabulary, data)
    else:
        held = split_rows(Y, share, seed=seed, keep=0)
        held_X, held_Y = features.as_new(data.X[~held], data.X[held]), Y[held]
        labelled = np.flatnonzero(np.diff(held_Y.indptr) > 0)
        held_X, held_Y = as_csr(held_X[labelled], "X"), as_csr(held_Y[labelled], "Y")
        models = {name: work.train(name, "fold-0", ~held, extra_header=dict(header)) for name in channels}
        silent = isinstance(features, WithTerms) and not (held_X.indices >= features.n_words).any()
        kept = choose_channels(
            {name: model for name, model in models.items() if not (silent and name == TERMS)}, held_X, held_Y
        )  # fmt: skip
        while len(kept) > 1:
            blend = Blend([models[name] for name in kept]).fit(held_X, held_Y)
            weights = dict(zip(kept, map(float, blend.weights_), strict=True))
            if all(weights.values()):
                break
            kept, blend = tuple(name for name in kept if weights[name]), None
        else:
            weights = {kept[0]: 1.0}
            calibration = models[kept[0]].calibrate(held_X, held_Y).parts["calibration"]
    if TERMS not in kept and isinstance(features, WithTerms):  # nothing reads their columns
        words = as_csr(data.X[:, : features.n_words], "X")
        work = replace(work, features=features.base, data=Dataset(words, Y, data.label_names))
        parts = {name: part for name, part in parts.items() if not name.startswith(MATCHER)}
    members = [work.train(name, "all", None, extra_header=dict(header), **extra) for name in kept]
    made = members[0] if blend is None else blend.over(members).fitted()
    sizes = {
        name: sum(part.n_bytes for part in member.scorer.to_parts())
        for name, member in zip(kept, members, strict=True)
    }
    methods = {TERMS: LEXICAL, LABEL_TEXT: LABEL_TEXT, ROWS: "" if rows is None else rows.name}
    found = [
        Channel(name, methods[name], weights.get(name, 0.0), work.seconds[name], sizes.get(name, 0))
        for name in channels
    ]
    entry = [{"channel": c.name, "method": c.method, "weight": round(c.weight, 6)} for c in found]
    own = {} if calibration is None else {"calibration": calibration}
    model = TrainedModel(
        {**made.header, **header, ENTRY: entry}, {**made.parts, **parts, **own}, made.scorer, made.threads
    )  # fmt: skip
    if model_dir is not None:
        model.save(model_dir)
        if work.beside is not None:
            shutil.rmtree(work.beside, ignore_errors=True)
    return model, found


def choose_channels(models: Mapping[str, TrainedModel], X: Csr, Y: Csr) -> tuple[str, ...]:
    """The channels without which held-out rows are not ranked better: while one is such that they are, by more than
    chance, it is left out. Each half of the rows is ranked by what the other half says."""
    frequency = measure_frequency([model.train_counts.counts for model in models.values()])
    width = min(DEFAULT_N_CANDIDATES, Y.shape[1])
    rankings = {name: model.predict_topk(X, width) for name, model in models.items()}
    halves = [np.arange(X.shape[0]) % 2 == half for half in (0, 1)]

    def propose(name: str, learned: Any, some: Any) -> Ranking:
        labels, scores = rankings[name]
        hits = find_hits(Y[learned], labels[learned])
        n_true = np.bincount(Y[learned].indices, minlength=Y.shape[1])
        curve = Calibration.fit(labels[learned], scores[learned], hits, n_true)
        return labels[some], curve.to_probabilities(scores[some])

    proposals = {
        name: [(propose(name, half, half), propose(name, half, ~half)) for half in halves] for name in models
    }

    def quality(names: Sequence[str]) -> NDArray[np.float64]:
        values = []
        for i, half in enumerate(halves):
            learned, judged = ([proposals[name][i][k] for name in names] for k in (0, 1))
            if len(names) == 1:
                labels = np.ascontiguousarray(judged[0][0][:, :_TOP_K])
            else:
                rule = find_rule(learned, as_csr(Y[half], "Y"), frequency)
                pairs = pair(judged, Y.shape[1])
                scores = rule.score(pairs.probabilities, frequency[pairs.labels])
                labels, _ = rank(pairs, scores, int((~half).sum()), _TOP_K)
            values.append(ndcg_by_row(as_csr(Y[~half], "Y"), labels))
        return np.concatenate(values)

    kept = list(models)
    best = quality(kept)
    while len(kept) > 1:
        without = {name: quality([other for other in kept if other != name]) for name in kept}
        name = max(kept, key=lambda each: without[each].mean())
        gain = without[name] - best
        if gain.mean() <= _BETTER * gain.std() / np.sqrt(len(gain)):
            break
        kept, best = [other for other in kept if other != name], without[name]
    return tuple(kept)


# --- the terms as a model -------------------------------------------------------------------------------------------


def terms_model(
    features: WithTerms,
    vocabulary: Vocabulary,
    Y: Csr,
    names: Sequence[str],
    *,
    extra_header: Mapping[str, Any] | None = None,
    extra_parts: Mapping[str, Part] | None = None,
    label_names: Sequence[str] | None = None,
) -> TrainedModel:
    """A linear model that gives each label the value in its concept's column: `WithTerms` has done the work."""
    n_labels, n_features = len(names), features.n_features_
    concepts = LabelConcepts.make(vocabulary, names).numbers.astype(np.int64)
    shards = []
    for start in range(0, n_labels, MAX_LABELS_PER_SHARD):
        own = concepts[start : start + MAX_LABELS_PER_SHARD]
        known = own >= 0
        indptr = np.append(0, np.cumsum(known))
        columns = (features.n_words + own[known]).astype(np.int32)
        W = make_csr(np.ones(len(columns), np.float32), columns, indptr, (len(own), n_features))
        bias = np.where(known, -SHIFT, -np.inf)
        shards.append(LinearShard.from_weights(W, bias, np.arange(start, start + len(own))))
    header = {
        "umpteen_version": __version__,
        "method": LEXICAL,
        "family": LinearModel.family,
        "params": {},
        "n_train_rows": Y.shape[0],
        "n_features": n_features,
        "n_labels": n_labels,
        "preprocessing": Preprocessing(normalize=False).to_json(),
        **(extra_header or {}),
    }
    parts = {"labels": Part({"counts": count_labels(Y, "Y").counts}), **(extra_parts or {})}
    if label_names is not None:
        parts["names"] = Names.encode([str(name) for name in label_names]).to_part()
    return TrainedModel(header, parts, LinearModel(shards, n_features, n_labels))


def _calibrate_terms(features: TextFeatures, vocabulary: Vocabulary, data: Dataset) -> Part | None:
    """Probabilities of terms alone. Rows of training texts are as good as held-out ones here: each was made as if its
    own labels had not been counted."""
    assert isinstance(features, WithTerms)
    step = max(1, -(-data.X.shape[0] // _MOST_ROWS))
    X, Y = as_csr(data.X[::step], "X"), as_csr(data.Y[::step], "Y", values=False)
    labelled = np.flatnonzero(np.diff(Y.indptr) > 0)
    if not len(labelled):
        return None
    model = terms_model(features, vocabulary, Y, data.label_names or ())
    return model.calibrate(X[labelled], Y[labelled]).parts["calibration"]


def _with_columns(model: TrainedModel, n_words: int | None) -> TrainedModel:
    """A model that does not look at the columns of terms."""
    if n_words is None:
        return model
    steps = model.header["preprocessing"] | {"columns": n_words}
    return TrainedModel(model.header | {"preprocessing": steps}, model.parts, model.scorer, model.threads)


def describe_channels(found: Sequence[Channel]) -> str:
    """What became of channels, and what they cost, in a line each."""
    lines: list[str] = []
    for channel in found:
        kept = f"weight {channel.weight:.2f}, {format_bytes(channel.n_bytes)}"
        fate = kept if channel.weight else "left out, since held-out texts are ranked no worse without it"
        lines.append(
            f"{'' if lines else 'channels':<10} {channel.name} ({channel.method}): {fate}; trained in "
            f"{channel.seconds:.1f} s of processor time"
        )
    return "\n".join(lines)
