"""Linear models: packing, exact top-k against the slow twin, filters, ties, corrupt content."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from umpteen import _native
from umpteen.data.matrix import as_csr
from umpteen.errors import DataError, ModelCorruptError, ParamError
from umpteen.models.linear import LinearModel, LinearShard
from umpteen.models.linear_labels import replace_labels, select_labels

from . import reference


def random_model(seed, n_labels=700, n_features=90, n_shards=3, density=0.2, weight_type="float16", dyadic=False):
    """Labels scattered over shards, some untrained; dyadic weights make every sum exact, with many ties."""
    rng = np.random.default_rng(seed)
    shards = []
    for ids in np.array_split(rng.permutation(n_labels), n_shards):
        ids = np.sort(ids).astype(np.int32)
        W = sp.random(len(ids), n_features, density, format="csr", dtype=np.float32, random_state=rng)
        W.data = (rng.integers(-4, 5, W.nnz) / 4 if dyadic else rng.normal(size=W.nnz)).astype(np.float32)
        bias = (rng.integers(-2, 3, len(ids)) / 4 if dyadic else rng.normal(size=len(ids))).astype(np.float32)
        bias[rng.random(len(ids)) < 0.05] = -np.inf
        shards.append(LinearShard.from_weights(W, bias, ids, weight_type))
    return LinearModel(shards, n_features, n_labels)


def random_rows(seed, n_rows=70, n_features=90, density=0.2, dyadic=False):
    rng = np.random.default_rng(seed)
    X = sp.random(n_rows, n_features, density, format="csr", dtype=np.float32, random_state=rng)
    X.data = (rng.integers(1, 9, X.nnz) / 4 if dyadic else rng.normal(size=X.nnz)).astype(np.float32)
    return as_csr(X, "X")


@pytest.mark.parametrize("weight_type", ["float16", "float32"])
@pytest.mark.parametrize("dyadic", [True, False])
def test_matches_the_slow_twin_label_for_label(simd, weight_type, dyadic):
    model = random_model(0, weight_type=weight_type, dyadic=dyadic)
    X = random_rows(1, dyadic=dyadic)
    labels, scores = model.predict_topk(X, 8)
    want_labels, want_scores = reference.topk(model.shards, X, 8, model.n_labels, fused=simd != "baseline")
    np.testing.assert_array_equal(labels, want_labels)
    np.testing.assert_array_equal(scores, want_scores)


@pytest.mark.parametrize("n_labels", [1, 15, 16, 17, 511, 512, 513, 3000])
@pytest.mark.parametrize("density", [0.05, 0.5])
def test_sizes_around_tiles_and_registers(simd, n_labels, density):
    model = random_model(n_labels, n_labels=n_labels, n_shards=1, density=density, dyadic=True)
    X = random_rows(2, n_rows=33, dyadic=True)
    labels, scores = model.predict_topk(X, 5)
    want_labels, want_scores = reference.topk(model.shards, X, 5, n_labels, fused=False)
    np.testing.assert_array_equal(labels, want_labels)
    np.testing.assert_array_equal(scores, want_scores)


@pytest.mark.parametrize("threads", [1, 2, 7])
@pytest.mark.parametrize("density", [0.002, 0.05, 0.6])
def test_batch_equals_one_by_one_on_any_number_of_threads(simd, threads, density):
    model = random_model(3, n_labels=1500, n_features=400)
    X = random_rows(4, n_rows=150, n_features=400, density=density)
    labels, scores = model.predict_topk(X, 6, threads=threads)
    for i in range(X.shape[0]):
        one_labels, one_scores = model.predict_topk(as_csr(X[i], "X"), 6)
        np.testing.assert_array_equal(one_labels[0], labels[i])
        np.testing.assert_array_equal(one_scores[0], scores[i])


def with_dense_features(seed, n_labels, weight_type, n_dense=24, n_shards=2):
    """A model whose last features have weights for most labels, and rows that have all or none of these."""
    rng = np.random.default_rng(seed)
    shards = []
    for ids in np.array_split(np.arange(n_labels, dtype=np.int32), n_shards):
        W = sp.random(len(ids), 60, 0.1, format="csr", dtype=np.float32, random_state=rng)
        V = rng.normal(size=(len(ids), n_dense)).astype(np.float32) * (rng.random((len(ids), n_dense)) < 0.8)
        bias = rng.normal(size=len(ids)).astype(np.float32)
        shards.append(LinearShard.from_weights(sp.hstack([W, V], format="csr"), bias, ids, weight_type))
    sparse = random_rows(seed + 1, n_rows=75, n_features=60, density=0.1)
    dense = rng.normal(size=(75, n_dense)).astype(np.float32)
    X = as_csr((sparse, dense), "X")
    X.data[::17] = 0
    without = X[40:60].copy()
    without.data[without.indices >= 60] = 0
    without.eliminate_zeros()
    return LinearModel(shards, 60 + n_dense, n_labels), as_csr(sp.vstack([X, without], format="csr"), "X")


@pytest.mark.parametrize("weight_type", ["float16", "float32"])
@pytest.mark.parametrize("n_labels", [2, 30, 100, 1100])
def test_dense_features_match_the_twin_one_by_one_and_on_any_threads(simd, n_labels, weight_type):
    model, X = with_dense_features(n_labels, n_labels, weight_type)
    labels, scores = model.predict_topk(X, 5)
    want = reference.topk(model.shards, X, 5, n_labels, fused=simd != "baseline")
    np.testing.assert_array_equal(labels, want[0])
    np.testing.assert_array_equal(scores, want[1])
    for threads in (2, 5):
        for got, one in zip(model.predict_topk(X, 5, threads=threads), (labels, scores), strict=True):
            np.testing.assert_array_equal(got, one)
    for i in (0, 31, 74, 80, 94):
        one_labels, one_scores = model.predict_topk(as_csr(X[i], "X"), 5)
        np.testing.assert_array_equal(one_labels[0], labels[i])
        np.testing.assert_array_equal(one_scores[0], scores[i])


def test_shuffled_rows_give_shuffled_predictions():
    model, X = random_model(5), random_rows(6, n_rows=100)
    order = np.random.default_rng(7).permutation(100)
    labels, scores = model.predict_topk(X, 5)
    shuffled_labels, shuffled_scores = model.predict_topk(as_csr(X[order], "X"), 5)
    np.testing.assert_array_equal(shuffled_labels, labels[order])
    np.testing.assert_array_equal(shuffled_scores, scores[order])


def test_ties_go_to_the_lower_id_across_shards(simd):
    # Every label scores the same; ids 0..9 are dealt to shards out of order.
    W = sp.csr_matrix(np.ones((5, 2), np.float32))
    shards = [LinearShard.from_weights(W, np.zeros(5), ids) for ids in ([1, 3, 5, 7, 9], [0, 2, 4, 6, 8])]
    model = LinearModel(shards, 2, 10)
    for n_rows in (1, 20):
        labels, scores = model.predict_topk(as_csr(np.ones((n_rows, 2)), "X"), 4)
        np.testing.assert_array_equal(labels, [[0, 1, 2, 3]] * n_rows)
        np.testing.assert_array_equal(scores, np.full((n_rows, 4), 2.0))


def test_the_whole_ranking_and_pads():
    model, X = random_model(8, n_labels=60, n_shards=2), random_rows(9, n_rows=20)
    labels, scores = model.predict_topk(X, 100)
    n_trained = model.describe()["trained_labels"]
    assert 0 < n_trained < 60
    assert ((labels >= 0).sum(axis=1) == n_trained).all()
    assert (labels[:, n_trained:] == -1).all()
    assert np.isneginf(scores[:, n_trained:]).all()
    assert (np.diff(scores[:, :n_trained], axis=1) <= 0).all()


def test_exclude_and_include_apply_before_the_cut(simd):
    model, X = random_model(10, dyadic=True), random_rows(11, dyadic=True)
    everything, _ = model.predict_topk(X, 700)
    excluded = np.unique(everything[:, :3])
    labels, _ = model.predict_topk(X, 5, exclude=excluded)
    for row, all_labels in zip(labels, everything, strict=True):
        np.testing.assert_array_equal(row, [label for label in all_labels if label not in excluded][:5])
    included = np.arange(0, 700, 7)
    labels, _ = model.predict_topk(X, 5, include=included, exclude=included[::2])
    for row, all_labels in zip(labels, everything, strict=True):
        wanted = [label for label in all_labels if label in set(included[1::2])][:5]
        np.testing.assert_array_equal(row[: len(wanted)], wanted)
    labels, _ = model.predict_topk(X, 5, include=[])
    assert (labels == -1).all()


@pytest.mark.parametrize("bad", [[700], [-1], ["x"], [0.5], [[1]]])
def test_label_filters_are_checked(bad):
    with pytest.raises(ParamError, match="exclude must"):
        random_model(0).predict_topk(random_rows(1), 5, exclude=bad)


def test_rows_without_features_score_the_bias(simd):
    model = random_model(12)
    X = as_csr(sp.csr_matrix((20, 90), dtype=np.float32), "X")
    _, scores = model.predict_topk(X, 1)
    best = max(np.max(shard.bias) for shard in model.shards)
    np.testing.assert_array_equal(scores, np.full((20, 1), best))


@given(st.floats(1e-30, 1e30), st.integers(0, 2**32 - 1))
def test_float16_keeps_eleven_bits_whatever_the_size_of_the_weights(size, seed):
    rng = np.random.default_rng(seed)
    W = sp.csr_matrix((rng.normal(size=(4, 6)) * size).astype(np.float32))
    shard = LinearShard.from_weights(W, np.zeros(4), np.arange(4))
    assert np.log2(shard.scale) == round(np.log2(shard.scale))
    packed, _ = shard.to_weights()
    np.testing.assert_allclose(packed.toarray(), W.toarray(), rtol=2.0**-11)


def test_labels_of_very_different_size_are_kept_in_float32():
    W = sp.csr_matrix(np.diag([1e13, 1, 1, 1]).astype(np.float32))
    shard = LinearShard.from_weights(W, np.zeros(4), np.arange(4))
    assert shard.weights.dtype == np.float32
    labels, _ = LinearModel([shard], 4, 4).predict_topk(as_csr(np.eye(4), "X"), 1)
    np.testing.assert_array_equal(labels.ravel(), [0, 1, 2, 3])
    for size in (1e-44, 3e38):
        shard = LinearShard.from_weights(sp.csr_matrix(np.full((1, 1), size, np.float32)), [0], [0])
        np.testing.assert_allclose(shard.to_weights()[0].toarray(), np.float32(size), rtol=2.0**-11)
    with pytest.raises(DataError, match="weights must be finite"):
        LinearShard.from_weights(sp.csr_matrix(np.full((1, 1), np.inf, np.float32)), [0], [0])


def test_packing_leaves_the_callers_matrix_alone():
    W = sp.csc_matrix((np.array([1.0, 2.0, 0.0], np.float32), [2, 0, 1], [0, 3]), shape=(3, 1))
    LinearShard.from_weights(W, np.zeros(3), np.arange(3))
    np.testing.assert_array_equal(W.data, [1, 2, 0])
    np.testing.assert_array_equal(W.indices, [2, 0, 1])


@pytest.mark.parametrize("weight_type", ["float16", "float32"])
@pytest.mark.parametrize("density", [0.02, 0.2, 0.9])
def test_packing_round_trips(weight_type, density):
    model = random_model(13, weight_type=weight_type, density=density)
    for shard in model.shards:
        W, bias = shard.to_weights()
        again = LinearShard.from_weights(W, bias, shard.label_ids, weight_type)
        for name in ("indptr", "position_ptr", "positions", "weights", "bias", "label_ids"):
            np.testing.assert_array_equal(getattr(again, name), getattr(shard, name))


@pytest.mark.parametrize("weight_type", ["float16", "float32"])
@pytest.mark.parametrize("delta", [0, 0.3, 1.0, 100])
def test_pruning_drops_what_is_smaller(simd, weight_type, delta):
    model = random_model(20, weight_type=weight_type)
    pruned = LinearModel([shard.pruned(delta) for shard in model.shards], 90, 700)
    W, bias = model.to_weights()
    got, got_bias = pruned.to_weights()
    W.data[np.abs(W.data) < np.float32(delta)] = 0
    np.testing.assert_array_equal(got.toarray(), W.toarray())
    np.testing.assert_array_equal(got_bias, bias)
    assert pruned.nnz == np.count_nonzero(W.data)
    X = random_rows(21)
    for a, b in zip(
        pruned.predict_topk(X, 8),
        reference.topk(pruned.shards, X, 8, 700, fused=simd != "baseline"),
        strict=True,
    ):
        np.testing.assert_array_equal(a, b)


def test_a_weight_of_just_delta_is_kept():
    W = sp.csr_matrix(np.array([[0.25, -0.25, 0.2499, -0.2499, 0.2501]], np.float32))
    shard = LinearShard.from_weights(W, [0], [0], "float32").pruned(0.25)
    np.testing.assert_array_equal(shard.to_weights()[0].toarray() != 0, [[True, True, False, False, True]])


@pytest.mark.parametrize("weight_type", ["float16", "float32"])
@pytest.mark.parametrize("size", [1.0, 1e6, 1e-6, 0.0])
def test_some_labels_are_replaced_and_the_others_stay_bit_by_bit(weight_type, size):
    """New weights of the same size keep the block's scale; much larger or smaller ones pack it again."""
    shard = random_model(6, n_labels=300, n_shards=1, density=0.2, weight_type=weight_type).shards[0]
    before, positions = shard.to_weights()[0].toarray(), np.array([0, 7, 150, 299])
    new = random_rows(7, n_rows=4, density=0.4)
    new.data *= np.float32(size)
    new.data[::5] = 0
    new.data[new.indptr[2] : new.indptr[3]] = 0  # a label without weights
    np.testing.assert_array_equal(select_labels(shard, positions).toarray(), before[positions])
    replaced = replace_labels(shard, positions, new, weight_type)
    after = replaced.to_weights()[0].toarray()
    others = np.setdiff1d(np.arange(300), positions)
    np.testing.assert_array_equal(after[others], before[others])
    np.testing.assert_allclose(after[positions], new.toarray(), rtol=2**-11, atol=0)
    packed = LinearShard.from_weights(after, shard.bias, shard.label_ids, weight_type)
    for name in ("indptr", "position_ptr", "positions"):
        np.testing.assert_array_equal(getattr(replaced, name), getattr(packed, name))
    assert LinearModel([replaced], 90, 300).nnz == np.count_nonzero(after)


@pytest.mark.parametrize("density", [0.02, 0.9])
def test_corrupt_shards_are_not_unpacked(density):
    shard = random_model(22, n_labels=100, n_shards=1, density=density).shards[0]
    fields = {name: getattr(shard, name) for name in shard.__dataclass_fields__}
    broken = LinearShard(**fields | {"positions": np.full_like(shard.positions, 65535)})
    for use in (broken.to_weights, lambda: broken.pruned(0.1), lambda: select_labels(broken, np.array([0]))):
        with pytest.raises(ModelCorruptError, match="a linear shard"):
            use()


def test_weights_by_label():
    model = random_model(19, n_labels=50, n_shards=3, weight_type="float32")
    dropped = LinearModel(model.shards[:2], 90, 50)
    W, bias = dropped.to_weights()
    assert W.shape == (50, 90)
    for shard in model.shards[:2]:
        np.testing.assert_array_equal(W[shard.label_ids].toarray(), shard.to_weights()[0].toarray())
        np.testing.assert_array_equal(bias[shard.label_ids], shard.bias)
    assert W[model.shards[2].label_ids].nnz == 0
    assert np.isneginf(bias[model.shards[2].label_ids]).all()


@pytest.mark.parametrize("threads", [1, 3])
def test_lists_of_candidates_are_ranked_like_all_labels(simd, threads):
    """Where sums are exact, ties and labels that are not trained among them, the twin is numpy's."""
    model, X = random_model(20, dyadic=True), random_rows(21, dyadic=True)
    rng = np.random.default_rng(22)
    lists = np.array([rng.permutation(700)[:30] for _ in range(70)], np.int32)
    lists[rng.random(lists.shape) < 0.2] = -1
    lists[5] = -1
    W, bias = model.to_weights()
    every = (X @ W.T).toarray() + bias
    labels, scores = model.rank_candidates(X, lists, 40, threads=threads)
    for i, candidates in enumerate(lists):
        known = [label for label in candidates if label >= 0 and np.isfinite(bias[label])]
        best = sorted(known, key=lambda label, row=every[i]: (-row[label], label))
        np.testing.assert_array_equal(labels[i], best + [-1] * (40 - len(best)))
        np.testing.assert_array_equal(scores[i], [*every[i][best], *[-np.inf] * (40 - len(best))])
    for i in range(3):
        np.testing.assert_array_equal(model.rank_candidates(X[i], lists[i : i + 1], 3)[0][0], labels[i][:3])
    for wrong in (np.full((70, 2), 700, np.int32), np.full((70, 2), -2, np.int32), lists[:3]):
        with pytest.raises(ValueError, match="candidates must be labels of the model or -1, one list per row"):
            model.rank_candidates(X, wrong, 2)


def test_positions_are_lists_or_masks_whichever_is_shorter():
    rng = np.random.default_rng(0)
    density = np.array([0.0, 0.01, 0.05, 0.0625, 0.07, 0.5, 1.0])
    W = sp.csr_matrix((rng.random((100, 7)) < density).astype(np.float32))
    shard = LinearShard.from_weights(W, np.zeros(100), np.arange(100))
    nnz = np.diff(shard.indptr.astype(int))
    np.testing.assert_array_equal(np.diff(shard.position_ptr.astype(int)), np.minimum(nnz, 7))
    assert min(nnz) == 0
    assert max(nnz) == 100
    for feature in range(7):
        np.testing.assert_array_equal(reference.labels_of(shard, feature), np.flatnonzero(W[:, feature].toarray()))


def test_half_precision_is_decoded_right(simd):
    """All 65536 halves as weights of single-feature labels: the score is the weight itself."""
    halves = np.arange(65536, dtype=np.uint16).view(np.float16)
    keep = np.isfinite(halves)
    halves = halves[keep]
    for begin in range(0, len(halves), 2_000):
        part = halves[begin : begin + 2_000]
        ids = np.arange(len(part), dtype=np.int32)
        indptr = np.array([0, len(part)], np.uint32)
        position_ptr, positions = _native.pack_positions(indptr, ids, len(part))
        padded = np.append(part, np.zeros(_native.WEIGHT_PADDING, np.float16))
        bias = np.zeros(len(part), np.float32)
        shard = LinearShard(indptr, position_ptr, positions, padded, bias, ids, 1.0)
        model = LinearModel([shard], 1, len(part))
        for n_rows in (1, 16):
            labels, scores = model.predict_topk(as_csr(np.ones((n_rows, 1)), "X"), len(part))
            np.testing.assert_array_equal(scores[0], part.astype(np.float32)[labels[0]])


def test_too_much_for_a_shard_is_refused():
    with pytest.raises(ParamError, match="a shard may have at most 65536 labels .* but has 65537"):
        LinearShard.from_weights(sp.csr_matrix((65537, 2), dtype=np.float32), np.zeros(65537), np.arange(65537))
    with pytest.raises(ParamError, match="weight_type must be one of float16, float32, but is 'int8'"):
        LinearShard.from_weights(sp.csr_matrix((1, 2)), [0], [0], "int8")


CORRUPT = {
    "indptr_falls": ("indptr", lambda a: np.concatenate([a[:1], a[:0:-1]])),
    "indptr_beyond": ("indptr", lambda a: a + np.uint32(5)),
    "indptr_short": ("indptr", lambda a: a[:-1]),
    "ids_beyond": ("label_ids", lambda a: a + np.int32(10_000)),
    "ids_negative": ("label_ids", lambda a: a - np.int32(10_000)),
    "ids_repeat": ("label_ids", lambda a: np.repeat(a[:1], len(a))),
    "bias_short": ("bias", lambda a: a[:-1]),
    "weights_short": ("weights", lambda a: a[:-1]),
    "weights_type": ("weights", lambda a: a.astype(np.float64)),
    "positions_type": ("positions", lambda a: a.astype(np.int64)),
    "positions_short": ("positions", lambda a: a[:-1]),
    "position_ptr": ("position_ptr", lambda a: np.append(a[:-1], a[-1] + np.uint32(1))),
}


@pytest.mark.parametrize("case", CORRUPT)
def test_corrupt_shards_are_refused(case):
    shard = random_model(14, n_shards=1).shards[0]
    name, change = CORRUPT[case]
    fields = {
        n: getattr(shard, n) for n in ("indptr", "position_ptr", "positions", "weights", "bias", "label_ids", "scale")
    }
    fields[name] = np.ascontiguousarray(change(fields[name]))
    with pytest.raises(ModelCorruptError, match="a linear shard is not usable"):
        LinearModel([LinearShard(**fields)], 90, 700)


def test_a_label_in_two_shards_is_refused():
    shard = random_model(15, n_shards=1).shards[0]
    with pytest.raises(ModelCorruptError, match="is in two shards"):
        LinearModel([shard, shard], 90, 700)


@pytest.mark.parametrize("n_rows", [1, 32])
@pytest.mark.parametrize("density", [0.05, 0.3])
def test_any_bytes_for_positions_and_weights_are_memory_safe(simd, n_rows, density):
    """What a flipped byte can do when checksums are not asked for: wrong scores, never a crash."""
    rng = np.random.default_rng(16)
    shard = random_model(17, n_shards=1, n_labels=3000, density=density).shards[0]
    for _ in range(20):
        positions = rng.integers(0, 65536, len(shard.positions)).astype(np.uint16)
        weights = rng.integers(0, 65536, len(shard.weights)).astype(np.uint16).view(np.float16)
        fixed = (shard.bias, shard.label_ids, shard.scale)
        broken = LinearShard(shard.indptr, shard.position_ptr, positions, weights, *fixed)
        found, _ = LinearModel([broken], 90, 3000).predict_topk(random_rows(18, n_rows=n_rows), 5)
        assert ((found >= -1) & (found < 3000)).all()


def test_float16_costs_nothing_measurable(eurlex):
    """On real data the ranking by 16-bit weights is as good as by 32-bit ones."""
    import umpteen

    train, test = eurlex
    precision = {}
    for weight_type in ("float16", "float32"):
        model = umpteen.Centroid(weight_type=weight_type).fit(train.X, train.Y)
        metrics = umpteen.evaluate(test.Y, model.predict_topk(test.X, 5)[0], deciles=False)
        precision[weight_type] = np.array([metrics[f"P@{k}"] for k in (1, 3, 5)])
    np.testing.assert_allclose(precision["float16"], precision["float32"], atol=0.05)
