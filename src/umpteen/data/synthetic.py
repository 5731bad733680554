"""Synthetic data like the field's real data sets: long-tailed labels, sparse text-like features, any size.

How a row is made
    A row draws a topic, which is a group of labels, and then its labels: half of them from the topic, the
    rest from all, always in proportion to a power law. It also mentions some labels that it does not have:
    the noise. Its text is a bag of words: half of the words come from a Zipf vocabulary that all rows share,
    the other half from the signatures of the labels it mentions. A signature is a few features, most of them
    the label's own, some shared with its topic, so that trees over labels can group labels.
    Values are (1 + ln tf) * idf.

What depends on what
    The concept (label and feature popularity, topics, signatures, idf) depends on the seed, n_features,
    n_labels and the per-row settings. Train and test rows share it. Rows are made in blocks, and each block
    has its own random stream, derived from seed, part and block. Only `Generator.random` and
    `Generator.integers` are used: they are cheap, and NumPy is least likely to change them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Integral, Real
from types import MappingProxyType
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from umpteen.data.dataset import Dataset
from umpteen.data.matrix import INT32_MAX, Csr, make_csr
from umpteen.errors import ParamError
from umpteen.nearest import did_you_mean

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

LABELS_PER_ROW: Final = 5.0
FEATURES_PER_ROW: Final = 50.0

# Changing any of these changes the bytes of every data set.
# A block has at most this many rows and draws, which bounds the memory needed beside the result.
_BLOCK_ROWS, _BLOCK_DRAWS = 2048, 2**20
# Popularity of rank r is (r + 10) ** -exponent. The shift keeps the first labels from being in every row:
# with it, the most frequent label of eurlex-4k is in about 8 % of the rows, that of delicious in about 30 %.
_RANK_SHIFT = 10.0
_TOPIC_SHARE = 0.5
_TOPIC_FEATURES = 16
_BACKGROUND_SHARE = 0.5
_MIN_SIGNATURE, _MAX_SIGNATURE = 4, 32
_FILL_ROUNDS = 32

# First part of a stream's key, so that no two uses draw the same numbers.
_CONCEPT, _LABELS, _LEFT_OUT, _FEATURES = range(4)
_PARTS = {"train": 0, "test": 1}


@dataclass(frozen=True)
class DatasetShape:
    """The sizes of a public data set; the averages are per training row."""

    n_features: int
    n_labels: int
    n_train: int
    n_test: int
    labels_per_row: float
    features_per_row: float


SHAPES: Final[Mapping[str, DatasetShape]] = MappingProxyType(
    {
        "mediamill": DatasetShape(120, 101, 30_993, 12_914, 4.38, 120.0),
        "bibtex": DatasetShape(1_836, 159, 4_880, 2_515, 2.40, 69.0),
        "delicious": DatasetShape(500, 983, 12_920, 3_185, 19.03, 18.0),
        "eurlex-4k": DatasetShape(5_000, 3_993, 15_539, 3_809, 5.31, 237.0),
        "amazoncat-13k": DatasetShape(203_882, 13_330, 1_186_239, 306_782, 5.04, 71.0),
        "wiki10-31k": DatasetShape(101_938, 30_938, 14_146, 6_616, 18.64, 673.0),
        "delicious-200k": DatasetShape(782_585, 205_443, 196_606, 100_095, 75.54, 301.0),
        "wikilshtc-325k": DatasetShape(1_617_899, 325_056, 1_778_351, 587_084, 3.19, 42.0),
        "amazon-670k": DatasetShape(135_909, 670_091, 490_449, 153_025, 5.45, 76.0),
    }
)


def make_synthetic(
    n_rows: int | None = None,
    n_features: int | None = None,
    n_labels: int | None = None,
    *,
    labels_per_row: float | None = None,
    features_per_row: float | None = None,
    like: str | None = None,
    scale: float = 1.0,
    part: Literal["train", "test"] = "train",
    exponent: float = 1.0,
    noise: float = 0.2,
    seed: int = 0,
) -> Dataset:
    """Makes learnable multi-label data with a long tail of rare labels. Same arguments, same bytes.

    Every row has at least one label and one feature. In the training part every label has at least one row,
    if the rows have at least that many labels in all. The shape of amazon-670k takes about a quarter of a minute
    on one core, and memory for twice the result.

    Parameters
    ----------
    n_rows, n_features, n_labels : int, optional
        The sizes; needed unless `like` gives them.
    labels_per_row, features_per_row : float, optional
        Approximate averages; 5 and 50 unless `like` gives them. At most half of the labels, and all features.
        From half of the features on, rows are a random subset of the features plus the signatures.
    like : str, optional
        Take missing arguments from a public data set: one of `SHAPES`, in upper or lower case.
    scale : float
        Multiplies rows, features and labels of `like`, not those passed as arguments; the averages stay.
    part : "train" or "test"
        Which rows to make. Both parts share the concept if n_features, n_labels, the averages, exponent, noise
        and seed are the same; n_rows may differ.
    exponent : float
        The exponent of the power law of label frequencies. 0 makes all labels equally frequent; real data sets
        are near 1.
    noise : float
        From 0 to 0.9: the share of the labels mentioned in a row's features that the row does not have. The
        precision of a good method is about 1 - noise.
    seed : int
        At least 0.

    Returns
    -------
    Dataset
        X is n_rows x n_features, float32; Y is n_rows x n_labels. There are no names.

    Examples
    --------
    >>> train = make_synthetic(2000, 1000, 200)
    >>> test = make_synthetic(500, 1000, 200, part="test")
    >>> train, bool(train.label_counts().min() >= 1)
    (Dataset(n_rows=2000, n_features=1000, n_labels=200), True)
    >>> make_synthetic(like="amazon-670k", scale=0.001)
    Dataset(n_rows=490, n_features=136, n_labels=670)
    >>> SHAPES["eurlex-4k"].n_labels
    3993
    """
    _check_settings(scale=scale, part=part, exponent=exponent, noise=noise, seed=seed)
    sizes = _choose_sizes(n_rows, n_features, n_labels, labels_per_row, features_per_row, like, scale, part)
    concept = _make_concept(sizes, float(exponent), float(noise), int(seed))
    streams = _Streams(int(seed), _PARTS[part])
    Y = _make_labels(concept, sizes, streams, every_label=part == "train")
    return Dataset(_make_features(concept, sizes, Y, streams), Y)


@dataclass(frozen=True)
class _Sizes:
    n_rows: int
    n_features: int
    n_labels: int
    labels_per_row: float
    features_per_row: float


@dataclass(frozen=True)
class _Streams:
    """Random streams of one part: a block's numbers do not depend on other draws."""

    seed: int
    part: int

    def open(self, use: int, block: int = 0) -> np.random.Generator:
        return _open_stream(self.seed, use, self.part, block)


@dataclass(frozen=True)
class _WordPlan:
    """How many words of each kind a row has, so that it has features_per_row features on average."""

    words_per_row: float
    background_share: float
    presence: float  # probability that a feature is in a row regardless of words; 0 for sparse rows
    signature_hits: float  # how many (label, signature slot) pairs a row's words hit


@dataclass(frozen=True, eq=False)
class _Concept:
    """What the train and test parts share.

    Labels are arranged so that each topic is a run of positions: label_cdf is by position, and label_at maps a
    position to a label. Likewise background_cdf is by rank, and feature_at maps a rank to a feature.
    """

    label_cdf: Floats  # n_labels
    label_at: NDArray[np.int32]  # n_labels
    topic_cdf: Floats  # n_topics + 1: a 0, then label_cdf at the end of each topic
    signatures: NDArray[np.int32]  # n_labels x signature size
    background_cdf: Floats  # n_features
    feature_at: NDArray[np.int32]  # n_features
    idf: Floats  # n_features
    plan: _WordPlan
    extra_labels: float  # labels a row mentions but does not have, for each that it has

    def draw_labels(self, uniform: Floats) -> NDArray[np.int32]:
        # Scaling a number into a topic's range may round it up to 1, past the last position.
        positions = np.minimum(_invert(self.label_cdf, uniform), len(self.label_at) - 1)
        return self.label_at[positions]


def _make_concept(sizes: _Sizes, exponent: float, noise: float, seed: int) -> _Concept:
    n_labels, n_features = sizes.n_labels, sizes.n_features
    rng = _open_stream(seed, _CONCEPT)
    label_at = _shuffle(rng, n_labels)
    popularity = _power_law(n_labels, exponent)[_shuffle(rng, n_labels)]
    feature_at = _shuffle(rng, n_features)
    background = _power_law(n_features, 1.0)
    # Large enough that a row does not use up its topic.
    topic_size = max(math.sqrt(n_labels), 8 * sizes.labels_per_row)
    n_topics = max(1, round(n_labels / topic_size))
    topic_start = np.arange(n_topics + 1, dtype=np.int64) * n_labels // n_topics
    signatures = _make_signatures(rng, sizes, label_at, topic_start)
    extra_labels = noise / (1 - noise)
    plan = _plan_words(sizes, background, sizes.labels_per_row * (1 + extra_labels) * signatures.shape[1])

    # The expected number of a row's words on each feature; from it, the probability that a row has the feature.
    n_words = np.zeros(n_features)
    n_words[feature_at] = plan.background_share * plan.words_per_row * background
    label_rate = np.empty(n_labels)
    label_rate[label_at] = popularity * (plan.signature_hits / signatures.shape[1])
    for slot in range(signatures.shape[1]):
        n_words += np.bincount(signatures[:, slot], weights=label_rate, minlength=n_features)
    label_cdf = _cumulate(popularity)
    in_row = 1 - (1 - plan.presence) * np.exp(-n_words)
    return _Concept(
        label_cdf=label_cdf,
        label_at=label_at,
        topic_cdf=np.append(0.0, label_cdf[topic_start[1:] - 1]),
        signatures=signatures,
        background_cdf=_cumulate(background),
        feature_at=feature_at,
        idf=1 - np.log(np.maximum(in_row, np.finfo(np.float64).tiny)),
        plan=plan,
        extra_labels=extra_labels,
    )


def _make_signatures(
    rng: np.random.Generator, sizes: _Sizes, label_at: NDArray[np.int32], topic_start: Ints
) -> NDArray[np.int32]:
    # The signatures of a row's labels together make up about the share of its features that is not background.
    n_own = (1 - _BACKGROUND_SHARE) * sizes.features_per_row / sizes.labels_per_row
    size = min(max(round(n_own), _MIN_SIGNATURE), _MAX_SIGNATURE)
    signatures = rng.integers(0, sizes.n_features, size=(sizes.n_labels, size), dtype=np.int32)
    n_topics, n_shared = len(topic_start) - 1, size // 3
    topic_features = rng.integers(0, sizes.n_features, size=(n_topics, _TOPIC_FEATURES), dtype=np.int32)
    topic_of = np.repeat(np.arange(n_topics), np.diff(topic_start))
    picks = rng.integers(0, _TOPIC_FEATURES, size=(sizes.n_labels, n_shared), dtype=np.int32)
    signatures[label_at, :n_shared] = topic_features[topic_of[:, np.newaxis], picks]
    return signatures


def _plan_words(sizes: _Sizes, background: Floats, n_slots: float) -> _WordPlan:
    n_features, wanted = sizes.n_features, sizes.features_per_row

    def expect_hits(words: float) -> float:
        return n_slots * (1 - math.exp(-words / n_slots))

    if wanted > n_features / 2:
        # Words repeat too often to fill such rows, so each feature is present at random, and words add to it.
        hits = expect_hits(wanted)
        missed = n_features * (1 - 1 / n_features) ** hits
        presence = max(0.0, 1 - (n_features - wanted) / missed) if missed > 0 else 1.0
        return _WordPlan(wanted, 0.0, presence, hits)

    def expect_features(words: float) -> float:
        not_in_signature = (1 - 1 / n_features) ** expect_hits((1 - _BACKGROUND_SHARE) * words)
        not_in_background = np.exp(-_BACKGROUND_SHARE * words * background)
        return float(n_features - not_in_signature * np.cumsum(not_in_background)[-1])

    def too_short(words: float) -> bool:
        # The lengths of rows are uniform from words / 2 to words * 3 / 2. Features grow more slowly than words, so
        # the mean over the lengths is below the value at the mean; two Gauss points compute it.
        return expect_features(words * (1 - 12**-0.5)) + expect_features(words * (1 + 12**-0.5)) < 2 * wanted

    low, high = 1.0, 2.0
    while too_short(high):
        low, high = high, 2 * high
    for _ in range(12):
        middle = (low + high) / 2
        low, high = (middle, high) if too_short(middle) else (low, middle)
    return _WordPlan(high, _BACKGROUND_SHARE, 0.0, expect_hits((1 - _BACKGROUND_SHARE) * high))


def _make_labels(concept: _Concept, sizes: _Sizes, streams: _Streams, *, every_label: bool) -> Csr:
    n_labels = sizes.n_labels
    count_cdf = _poisson_cdf(sizes.labels_per_row - 1)
    counts, columns = [], []
    block_rows = _choose_block_rows(sizes.labels_per_row)
    for block, start in enumerate(range(0, sizes.n_rows, block_rows)):
        n_rows = min(block_rows, sizes.n_rows - start)
        keys = _draw_label_keys(concept, streams.open(_LABELS, block), n_rows, count_cdf)
        rows, labels = np.divmod(keys, n_labels)
        counts.append(np.bincount(rows, minlength=n_rows))
        columns.append(labels.astype(np.int32))
    indptr = _offsets_from(counts)
    indices = np.concatenate(columns)
    if every_label and len(indices) >= n_labels:
        indices = _give_rows_to_left_out(indices, indptr, n_labels, streams.open(_LEFT_OUT))
    return make_csr(np.ones(len(indices), np.float32), indices, indptr, (sizes.n_rows, n_labels))


def _draw_label_keys(concept: _Concept, rng: np.random.Generator, n_rows: int, count_cdf: Floats) -> Ints:
    """The sorted keys row * n_labels + label of a block."""
    n_labels = len(concept.label_at)
    wanted = np.minimum(1 + _invert(count_cdf, rng.random(n_rows)), n_labels)
    # A topic's probability is that of its labels together, so labels stay in proportion to the power law.
    topic = _invert(concept.topic_cdf[1:], rng.random(n_rows))
    low, width = concept.topic_cdf[topic], np.diff(concept.topic_cdf)[topic]

    rows = np.repeat(np.arange(n_rows), wanted)
    uniform = rng.random(len(rows))
    in_topic = rng.random(len(rows)) < _TOPIC_SHARE
    uniform = np.where(in_topic, low[rows] + uniform * width[rows], uniform)
    keys = np.unique(rows * n_labels + concept.draw_labels(uniform))
    # Labels drawn twice leave rows short. A few rounds fill nearly all; rows that need most of the labels may
    # stay short.
    for _ in range(_FILL_ROUNDS):
        rows = np.repeat(np.arange(n_rows), wanted - np.bincount(keys // n_labels, minlength=n_rows))
        if len(rows) == 0:
            break
        more = rows * n_labels + concept.draw_labels(rng.random(len(rows)))
        keys = np.unique(np.concatenate([keys, more]))
    return keys


def _give_rows_to_left_out(
    indices: NDArray[np.int32], indptr: Ints, n_labels: int, rng: np.random.Generator
) -> NDArray[np.int32]:
    """Gives each label without a row an entry of a label with several. Rows keep their number of labels."""
    present, first_entry = np.unique(indices, return_index=True)
    if len(present) == n_labels:
        return indices
    left_out = np.setdiff1d(np.arange(n_labels, dtype=np.int32), present, assume_unique=True)
    spare = np.ones(len(indices), np.bool_)
    spare[first_entry] = False
    entries = np.flatnonzero(spare)
    given = entries[np.argsort(rng.random(len(entries)), kind="stable")[: len(left_out)]]
    keys = np.repeat(np.arange(len(indptr) - 1) * n_labels, np.diff(indptr))
    offset_of_row = keys.copy()
    keys += indices
    keys[given] = offset_of_row[given] + left_out
    keys.sort()
    return (keys - offset_of_row).astype(np.int32)


def _make_features(concept: _Concept, sizes: _Sizes, Y: Csr, streams: _Streams) -> Csr:
    counts, columns, values = [], [], []
    block_rows = _choose_block_rows(max(concept.plan.words_per_row, concept.plan.presence * sizes.n_features))
    for block, start in enumerate(range(0, sizes.n_rows, block_rows)):
        label_offsets = Y.indptr[start : start + block_rows + 1].astype(np.int64)
        keys = _draw_feature_keys(concept, streams.open(_FEATURES, block), label_offsets, Y.indices)
        keys.sort()
        first = np.flatnonzero(np.diff(keys, prepend=-1))
        frequency = np.diff(first, append=len(keys))
        rows, features = np.divmod(keys[first], sizes.n_features)
        counts.append(np.bincount(rows, minlength=len(label_offsets) - 1))
        columns.append(features.astype(np.int32))
        weight = 1 + np.log(np.arange(1, frequency.max() + 1))
        values.append((weight[frequency - 1] * concept.idf[features]).astype(np.float32))
    data = np.concatenate(values)
    values.clear()
    return make_csr(data, np.concatenate(columns), _offsets_from(counts), (sizes.n_rows, sizes.n_features))


def _draw_feature_keys(
    concept: _Concept, rng: np.random.Generator, label_offsets: Ints, labels: NDArray[np.int32]
) -> Ints:
    """The key row * n_features + feature of each word of a block, unordered; repeats are the term frequency."""
    plan, n_features = concept.plan, len(concept.idf)
    signature_size = concept.signatures.shape[1]
    n_rows = len(label_offsets) - 1
    n_had = np.diff(label_offsets)
    n_extra = np.floor(n_had * concept.extra_labels + rng.random(n_rows)).astype(np.int64)
    extra_offsets = _offsets_from([n_extra])
    extra = concept.draw_labels(rng.random(extra_offsets[-1]))
    n_words = np.maximum(1, np.floor(plan.words_per_row * (0.5 + rng.random(n_rows)) + 0.5).astype(np.int64))

    # One random number per word decides everything: whether it is background and, rescaled, which word it is.
    rows = np.repeat(np.arange(n_rows), n_words)
    uniform = rng.random(len(rows))
    is_background = uniform < plan.background_share
    features = np.empty(len(rows), np.int64)
    if plan.background_share > 0:
        ranks = _invert(concept.background_cdf, uniform[is_background] / plan.background_share)
        features[is_background] = concept.feature_at[np.minimum(ranks, n_features - 1)]
    signature_rows = rows[~is_background]
    n_slots = (n_had + n_extra)[signature_rows] * signature_size
    share = (uniform[~is_background] - plan.background_share) / (1 - plan.background_share)
    slot = np.minimum((share * n_slots).astype(np.int64), n_slots - 1)
    nth_label, nth_feature = np.divmod(slot, signature_size)
    nth_extra = nth_label - n_had[signature_rows]
    label = labels[label_offsets[signature_rows] + np.minimum(nth_label, n_had[signature_rows] - 1)]
    is_extra = nth_extra >= 0
    label[is_extra] = extra[extra_offsets[signature_rows[is_extra]] + nth_extra[is_extra]]
    features[~is_background] = concept.signatures[label, nth_feature]

    keys = rows * n_features + features
    if plan.presence > 0:
        present = np.flatnonzero(rng.random(n_rows * n_features) < plan.presence)
        keys = np.concatenate([keys, present])
    return keys


def _choose_block_rows(draws_per_row: float) -> int:
    return max(1, min(_BLOCK_ROWS, int(_BLOCK_DRAWS / draws_per_row)))


def _open_stream(seed: int, *key: int) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed, spawn_key=key)))


def _shuffle(rng: np.random.Generator, n: int) -> NDArray[np.int32]:
    return np.argsort(rng.random(n), kind="stable").astype(np.int32)


def _power_law(n: int, exponent: float) -> Floats:
    """The shares of ranks 0 to n - 1, which add up to 1."""
    weights: Floats = np.power(np.arange(n) + _RANK_SHIFT, -exponent)
    shares: Floats = weights / np.cumsum(weights)[-1]
    return shares


def _poisson_cdf(mean: float) -> Floats:
    if mean <= 0:
        return np.ones(1)
    n = math.ceil(mean + 10 * math.sqrt(mean) + 20)
    log_factorial = np.cumsum(np.log(np.maximum(np.arange(n), 1)))
    return _cumulate(np.exp(np.arange(n) * math.log(mean) - mean - log_factorial))


def _cumulate(shares: Floats) -> Floats:
    cdf: Floats = np.cumsum(shares)
    cdf /= cdf[-1]
    return cdf


def _invert(cdf: Floats, uniform: Floats) -> Ints:
    return np.searchsorted(cdf, uniform, side="right").astype(np.int64, copy=False)


def _offsets_from(counts: list[Ints]) -> Ints:
    indptr = np.zeros(sum(map(len, counts)) + 1, np.int64)
    np.cumsum(np.concatenate(counts), out=indptr[1:])
    return indptr


def _choose_sizes(
    n_rows: int | None,
    n_features: int | None,
    n_labels: int | None,
    labels_per_row: float | None,
    features_per_row: float | None,
    like: str | None,
    scale: float,
    part: str,
) -> _Sizes:
    given: dict[str, int | None] = {"n_rows": n_rows, "n_features": n_features, "n_labels": n_labels}
    if like is None:
        if scale != 1:
            raise ParamError(f"scale must be 1 unless like names a data set, but is {scale!r}")
        missing = [name for name, value in given.items() if value is None]
        if missing:
            raise ParamError(f"{missing[0]} must be given unless like names a data set, but is None")
        means = (LABELS_PER_ROW, FEATURES_PER_ROW)
    else:
        shape = SHAPES.get(str(like).lower())
        if shape is None:
            raise ParamError(
                f"like must be one of {', '.join(SHAPES)}, but is {like!r}{did_you_mean(str(like), SHAPES)}"
            )
        n_table_rows = shape.n_train if part == "train" else shape.n_test
        for name, size in zip(given, (n_table_rows, shape.n_features, shape.n_labels), strict=True):
            if given[name] is None:
                given[name] = max(1, round(size * scale))
        means = (shape.labels_per_row, shape.features_per_row)
    rows, features, labels = (_check_size(name, value) for name, value in given.items())
    per_row = _check_mean("labels_per_row", means[0] if labels_per_row is None else labels_per_row)
    words = _check_mean("features_per_row", means[1] if features_per_row is None else features_per_row)
    return _Sizes(rows, features, labels, max(1.0, min(per_row, labels / 2)), min(words, float(features)))


def _check_size(name: str, value: Any) -> int:
    if not _is_integer(value) or not 1 <= value <= INT32_MAX:
        raise ParamError(f"{name} must be an integer from 1 to {INT32_MAX}, but is {value!r}")
    return int(value)


def _check_mean(name: str, value: Any) -> float:
    if not _is_number(value) or not 1 <= value < math.inf:
        raise ParamError(f"{name} must be a finite number of at least 1, but is {value!r}")
    return float(value)


def _check_settings(*, scale: Any, part: Any, exponent: Any, noise: Any, seed: Any) -> None:
    if not _is_number(scale) or not 0 < scale < math.inf:
        raise ParamError(f"scale must be a finite number above 0, but is {scale!r}")
    if not isinstance(part, str) or part not in _PARTS:
        raise ParamError(f"part must be 'train' or 'test', but is {part!r}")
    if not _is_number(exponent) or not 0 <= exponent <= 10:
        raise ParamError(f"exponent must be from 0 to 10, but is {exponent!r}")
    if not _is_number(noise) or not 0 <= noise <= 0.9:
        raise ParamError(f"noise must be from 0 to 0.9, but is {noise!r}")
    if not _is_integer(seed) or seed < 0:
        raise ParamError(f"seed must be an integer of at least 0, but is {seed!r}")


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def _is_integer(value: Any) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool)
