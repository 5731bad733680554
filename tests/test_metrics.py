"""Metrics against numbers worked by hand, a slow twin, and napkinXC on real predictions."""

from __future__ import annotations

import doctest
import json
import math
import os
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from umpteen.data import propensity
from umpteen.data.propensity import PROPENSITY_CONSTANTS, propensities
from umpteen.data.xc_text import read_xc
from umpteen.errors import DataError, ParamError
from umpteen.evaluation import metrics
from umpteen.evaluation.metrics import Metrics, evaluate

DATA = Path(os.environ.get("UMPTEEN_DATA", Path(__file__).parents[2] / "shared" / "data"))

# Worked by hand below. Label 5 is neither true nor predicted, row 2 has no labels.
Y_SETS = [{0, 1, 3}, {2}, set(), {0, 4}]
RANKED = [[0, 2, 3], [0, 2, -1], [1, -1, -1], [4, 3, 0]]
TRAIN_COUNTS = [7, 3, 1, 1, 0, 9]


def matrix_of(sets, n_labels):
    """The label matrix of these sets."""
    Y = sp.lil_matrix((len(sets), n_labels), dtype=np.float32)
    for row, labels in enumerate(sets):
        Y[row, sorted(labels)] = 1
    return Y.tocsr()


@pytest.fixture
def Y():
    return matrix_of(Y_SETS, 6)


@pytest.fixture
def train_Y():
    """Ten rows with label counts TRAIN_COUNTS."""
    return (np.arange(10)[:, None] < TRAIN_COUNTS).astype(np.int8)


def test_hand_worked_fractions(Y):
    got = evaluate(Y, RANKED, k=(1, 2, 3))
    expected = {
        "P@1": Fraction(2, 4),
        "P@2": Fraction(1 + 1 + 1, 2 * 4),
        "P@3": Fraction(2 + 1 + 2, 3 * 4),
        "recall@1": (Fraction(1, 3) + Fraction(1, 2)) / 4,
        "recall@2": (Fraction(1, 3) + 1 + Fraction(1, 2)) / 4,
        "recall@3": (Fraction(2, 3) + 1 + 1) / 4,
        # 6 true pairs; 4, 7 and 9 predicted ones.
        "microF1@1": Fraction(2 * 2, 6 + 4),
        "microF1@2": Fraction(2 * 3, 6 + 7),
        "microF1@3": Fraction(2 * 5, 6 + 9),
        # Labels 0 and 4; then 0, 2 and 4; then 0, 2, 3 and 4. Six labels divide, though label 5 is nowhere.
        "macroF1@1": (Fraction(2, 4) + 1) / 6,
        "macroF1@2": (Fraction(2, 4) + Fraction(2, 3) + 1) / 6,
        "macroF1@3": (Fraction(4, 5) + Fraction(2, 3) + Fraction(2, 3) + 1) / 6,
        # Five labels are true somewhere.
        "coverage@1": Fraction(2, 5),
        "coverage@2": Fraction(3, 5),
        "coverage@3": Fraction(4, 5),
    }
    assert {name: got[name] for name in expected} == pytest.approx(
        {name: float(100 * value) for name, value in expected.items()}, rel=1e-14
    )


def test_hand_worked_ndcg(Y):
    got = evaluate(Y, RANKED, k=(1, 2, 3))
    d = 1 / math.log2(3)  # the discount of rank 2; that of rank 3 is 1/2
    assert got["nDCG@1"] == pytest.approx(100 * 2 / 4, rel=1e-14)
    assert got["nDCG@2"] == pytest.approx(100 * (1 / (1 + d) + d + 1 / (1 + d)) / 4, rel=1e-14)
    assert got["nDCG@3"] == pytest.approx(100 * (1.5 / (1.5 + d) + d + 1.5 / (1 + d)) / 4, rel=1e-14)


def test_hand_worked_propensity_scores(Y, train_Y):
    got = evaluate(Y, RANKED, train_Y, k=(1, 2, 3), A=1, B=1, psp_raw=True)
    # With A = B = 1 and 10 training rows, 1/p_l = 1 + 2c / (N_l + 1).
    c = math.log(10) - 1
    w = [1 + c / 4, 1 + c / 2, 1 + c, 1 + c, 1 + 2 * c, 1 + c / 5]
    assert got["PSP@1"] == pytest.approx(100 * (2 + 9 / 4 * c) / (3 + 4 * c), rel=1e-14)
    assert got["PSP@2"] == pytest.approx(100 * (3 + 13 / 4 * c) / (5 + 19 / 4 * c), rel=1e-14)
    assert got["PSP@3"] == pytest.approx(100 * (5 + 9 / 2 * c) / (6 + 5 * c), rel=1e-14)
    assert got["PSP_raw@1"] == pytest.approx(100 * (2 + 9 / 4 * c) / 4, rel=1e-14)
    assert got["PSP_raw@3"] == pytest.approx(100 * (5 + 9 / 2 * c) / 12, rel=1e-14)
    d = 1 / math.log2(3)
    reached = (w[0] + w[3] / 2) / (1.5 + d) + d * w[2] + (w[4] + w[0] / 2) / (1 + d)
    best = (w[3] + d * w[1] + w[0] / 2) / (1.5 + d) + w[2] + (w[4] + d * w[0]) / (1 + d)
    assert got["PSnDCG@1"] == pytest.approx(got["PSP@1"], rel=1e-14)
    assert got["PSnDCG@3"] == pytest.approx(100 * reached / best, rel=1e-14)


def test_hand_worked_deciles(Y, train_Y):
    deciles = evaluate(Y, RANKED, train_Y, k=3).by_decile
    # Six labels make six groups, by training count: labels 5, 0, 1, 2, 3 (tied with 2, higher id), 4.
    assert [decile["decile"] for decile in deciles] == [1, 2, 3, 4, 5, 6]
    assert [decile["n_labels"] for decile in deciles] == [1] * 6
    assert [decile["lowest_frequency"] for decile in deciles] == [9, 7, 3, 1, 1, 0]
    assert [decile["highest_frequency"] for decile in deciles] == [9, 7, 3, 1, 1, 0]
    assert [decile["n_true"] for decile in deciles] == [0, 2, 1, 1, 1, 1]
    for name, values in {
        "P@3": [0, 2 / 12, 0, 1 / 12, 1 / 12, 1 / 12],
        "recall@3": [0, 1, 0, 1, 1, 1],
        "microF1@3": [0, 4 / 5, 0, 2 / 3, 2 / 3, 1],
        "macroF1@3": [0, 4 / 5, 0, 2 / 3, 2 / 3, 1],
        "coverage@3": [0, 1, 0, 1, 1, 1],
    }.items():
        got = [decile[name] for decile in deciles]
        assert got == pytest.approx([100 * value for value in values], rel=1e-14), name


def test_deciles_follow_Y_without_train_Y(Y):
    deciles = evaluate(Y, RANKED, k=3).by_decile
    assert [decile["highest_frequency"] for decile in deciles] == [2, 1, 1, 1, 1, 0]
    assert "PSP@3" not in deciles[0]


# --- a slow twin ------------------------------------------------------------------------------------------


def slow_evaluate(Y_sets, ranked, n_labels, train_sets, k, A, B):
    """Every metric straight from its definition, over Python sets; returns the whole and the deciles."""
    counts = [sum(label in y for y in train_sets) for label in range(n_labels)]
    C = (math.log(len(train_sets)) - 1) * (B + 1) ** A
    w = [1 + C * (count + B) ** -A for count in counts]
    order = sorted(range(n_labels), key=lambda label: (-counts[label], label))
    n_groups = min(10, n_labels)
    groups = [set() for _ in range(n_groups)]
    for place, label in enumerate(order):
        groups[place * n_groups // n_labels].add(label)
    everything = set(range(n_labels))
    top = [[label for label in row[:k] if label >= 0] for row in ranked]
    n = len(Y_sets)

    def idcg(y):
        return sum(1 / math.log2(r + 2) for r in range(min(k, len(y))))

    def best(y):
        return sorted((w[label] for label in y), reverse=True)[:k]

    best_sum = sum(sum(best(y)) for y in Y_sets)
    best_dcg = sum(sum(g / math.log2(r + 2) for r, g in enumerate(best(y))) / idcg(y) for y in Y_sets if y)

    def score(members):
        scores = dict.fromkeys(["P", "nDCG", "PSP", "PSnDCG", "PSP_raw"], 0.0)
        for y, row in zip(Y_sets, top, strict=True):
            for r, label in enumerate(row):
                if label in y and label in members:
                    discount = 1 / math.log2(r + 2)
                    scores["P"] += 1 / k / n
                    scores["nDCG"] += discount / idcg(y) / n
                    scores["PSP"] += w[label] / best_sum
                    scores["PSnDCG"] += w[label] * discount / idcg(y) / best_dcg
                    scores["PSP_raw"] += w[label] / k / n
        f1, hit, true, tp, positives = [], 0, 0, 0, 0
        for label in members:
            at = [(label in y, label in row) for y, row in zip(Y_sets, top, strict=True)]
            label_tp, label_true, label_predicted = at.count((True, True)), 0, 0
            for is_true, is_predicted in at:
                label_true += is_true
                label_predicted += is_predicted
            f1.append(2 * label_tp / (label_true + label_predicted) if label_tp else 0.0)
            hit, true = hit + (label_tp > 0), true + (label_true > 0)
            tp, positives = tp + label_tp, positives + label_true + label_predicted
        scores["macroF1"] = sum(f1) / len(members)
        scores["microF1"] = 2 * tp / positives if positives else 0.0
        scores["coverage"] = hit / true if true else 0.0
        if members == everything:
            found = [len(y & set(row)) / len(y) for y, row in zip(Y_sets, top, strict=True) if y]
            scores["recall"] = sum(found) / n
        else:
            n_true = sum(len(y & members) for y in Y_sets)
            scores["recall"] = tp / n_true if n_true else 0.0
        return {f"{name}@{k}": 100 * value for name, value in scores.items()}

    return score(everything), [score(members) for members in groups]


def random_case(rng, n_rows, n_labels, width, n_train=12):
    """Label sets, some of them empty, and padded rankings that hit now and then."""
    share = rng.random(n_labels) ** 3
    Y_sets = [set(np.flatnonzero(rng.random(n_labels) < share).tolist()) for _ in range(n_rows)]
    for row in np.flatnonzero(rng.random(n_rows) < 0.2):
        Y_sets[row] = set()
    train_sets = [set(np.flatnonzero(rng.random(n_labels) < share).tolist()) for _ in range(n_train)]
    ranked = np.full((n_rows, width), -1)
    for row in range(n_rows):
        length = rng.integers(0, min(width, n_labels) + 1)
        ranked[row, :length] = rng.permutation(n_labels)[:length]
    return Y_sets, train_sets, ranked


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    n_rows=st.integers(1, 12),
    n_labels=st.integers(2, 25),
    width=st.integers(1, 8),
    A=st.sampled_from([0.0, 0.55, 2.0]),
    B=st.sampled_from([0.4, 1.5]),
)
def test_equals_slow_twin(seed, n_rows, n_labels, width, A, B):
    Y_sets, train_sets, ranked = random_case(np.random.default_rng(seed), n_rows, n_labels, width)
    Y, train_Y = matrix_of(Y_sets, n_labels), matrix_of(train_sets, n_labels)
    got = evaluate(Y, ranked, train_Y, k=range(1, width + 1), A=A, B=B, psp_raw=True)
    expected = {}
    for k in range(1, width + 1):
        whole, deciles = slow_evaluate(Y_sets, ranked.tolist(), n_labels, train_sets, k, A, B)
        expected |= whole
        for decile, expected_decile in zip(got.by_decile, deciles, strict=True):
            shown = {name: decile[name] for name in expected_decile}
            assert shown == pytest.approx(expected_decile, rel=1e-11, abs=1e-11)
    assert dict(got) == pytest.approx(expected, rel=1e-11, abs=1e-11)


# --- napkinXC on real predictions -------------------------------------------------------------------------


@pytest.fixture(scope="module")
def bibtex():
    """Bibtex and the ten nearest label centroids of its test rows."""
    folder = DATA / "Bibtex"
    if not (folder / "train.txt.xz").exists():
        pytest.skip(f"no Bibtex in {DATA}; set UMPTEEN_DATA to where it is")
    train, test = read_xc(folder / "train.txt.xz"), read_xc(folder / "test.txt.xz")
    centroids = train.Y.T @ train.X
    centroids = sp.diags(1 / sp.linalg.norm(centroids, axis=1)) @ centroids
    ranked = np.empty((test.n_rows, 10), np.int32)
    for start in range(0, test.n_rows, 500):
        scores = (test.X[start : start + 500] @ centroids.T).toarray()
        ranked[start : start + 500] = np.argsort(-scores, axis=1, kind="stable")[:, :10]
    return train.Y, test.Y, ranked


@pytest.fixture(params=["as it is", "rows without labels", "short lists"])
def bibtex_case(request, bibtex):
    train_Y, Y, ranked = bibtex
    if request.param == "rows without labels":
        kept = np.arange(Y.shape[0]) % 7 > 0
        Y = sp.csr_matrix(sp.diags(kept.astype(np.float32)) @ Y)
        Y.eliminate_zeros()
    elif request.param == "short lists":
        length = np.random.default_rng(5).integers(0, 11, Y.shape[0])
        ranked = np.where(np.arange(10) < length[:, None], ranked, -1)
    return train_Y, Y, ranked


@pytest.mark.slow
@pytest.mark.parametrize("family", list(PROPENSITY_CONSTANTS))
def test_equals_napkinxc(bibtex_case, family):
    napkin = pytest.importorskip("napkinxc.metrics")
    train_Y, Y, ranked = bibtex_case
    A, B = PROPENSITY_CONSTANTS[family]
    got = evaluate(Y, ranked, train_Y, k=range(1, 6), A=A, B=B, psp_raw=True)
    true = [row.tolist() for row in np.split(Y.indices, Y.indptr[1:-1])]
    predicted = [[label for label in row if label >= 0] for row in ranked.tolist()]
    # napkinXC divides macro F1 by the highest id it saw plus one; that is all labels if the last was seen.
    assert max(max(row, default=0) for row in true) == Y.shape[1] - 1
    inverse_p = napkin.Jain_et_al_inverse_propensity(train_Y, A, B)
    expected = {
        "P": napkin.precision_at_k(true, predicted, k=5),
        "nDCG": napkin.ndcg_at_k(true, predicted, k=5),
        "PSP": napkin.psprecision_at_k(true, predicted, inverse_p, k=5),
        "PSnDCG": napkin.psndcg_at_k(true, predicted, inverse_p, k=5),
        "PSP_raw": napkin.psprecision_at_k(true, predicted, inverse_p, k=5, normalize=False),
        "recall": napkin.recall_at_k(true, predicted, k=5),
        "microF1": [napkin.micro_f1_measure(true, [row[:k] for row in predicted]) for k in range(1, 6)],
        "macroF1": napkin.macro_f1_measure_at_k(true, predicted, k=5),
        "coverage": napkin.coverage_at_k(true, predicted, k=5),
    }
    assert {name.split("@")[0] for name in got} == set(expected)
    for name, values in expected.items():
        shown = [got[f"{name}@{k}"] / 100 for k in range(1, 6)]
        assert shown == pytest.approx(list(values), abs=1e-6), name
    assert got["P@1"] > 30  # predictions, not noise


# --- what must not matter, and what must ------------------------------------------------------------------


@pytest.fixture
def case():
    Y_sets, train_sets, ranked = random_case(np.random.default_rng(8), 200, 37, 6, n_train=50)
    return matrix_of(Y_sets, 37), ranked, matrix_of(train_sets, 37)


def test_deciles_add_up(case):
    got = evaluate(*case, k=(1, 4, 6), psp_raw=True)
    assert len(got.by_decile) == 10
    assert sorted(decile["n_labels"] for decile in got.by_decile) == [3, 3, 3, 4, 4, 4, 4, 4, 4, 4]
    assert sum(decile["n_true"] for decile in got.by_decile) == case[0].nnz
    for name in got:
        if name.split("@")[0] in ("P", "nDCG", "PSP", "PSnDCG", "PSP_raw"):
            assert got[name] > 0
            assert sum(decile[name] for decile in got.by_decile) == pytest.approx(got[name], rel=1e-12), name


def test_row_order_does_not_matter(case):
    Y, ranked, train_Y = case
    order = np.random.default_rng(1).permutation(len(ranked))
    shuffled = evaluate(Y[order], ranked[order], train_Y)
    assert dict(shuffled) == pytest.approx(dict(evaluate(Y, ranked, train_Y)), rel=1e-12)
    # Predictions of other rows do matter.
    assert dict(evaluate(Y, ranked[order], train_Y)) != pytest.approx(dict(shuffled), rel=1e-3)


@pytest.mark.parametrize("threads", [1, 2, 7])
def test_threads_do_not_matter(case, threads):
    assert evaluate(*case, threads=threads) == evaluate(*case)


@pytest.mark.parametrize("n_rows", [1, 3, 64, 200, 1000])
def test_blocks_do_not_matter(case, monkeypatch, n_rows):
    whole = evaluate(*case)
    monkeypatch.setattr(metrics, "_ROWS_PER_BLOCK", n_rows)
    assert dict(evaluate(*case)) == pytest.approx(dict(whole), rel=1e-12)


def test_kind_of_input_does_not_matter(case):
    Y, ranked, train_Y = case
    expected = evaluate(Y, ranked, train_Y)
    doubled = sp.coo_matrix((np.ones(2 * Y.nnz), np.tile(Y.nonzero(), 2)), shape=Y.shape)
    rows, columns = np.indices(Y.shape).reshape(2, -1)
    with_zeros = sp.csr_matrix((3 * Y.toarray().ravel(), (rows, columns)), shape=Y.shape)
    assert with_zeros.nnz == Y.shape[0] * Y.shape[1]  # stored zeros, which are no labels
    for same_Y in (Y.toarray(), Y.tocsc(), doubled, with_zeros, sp.csr_array(Y)):
        assert evaluate(same_Y, ranked, train_Y.toarray()) == expected
    for same_ranked in (ranked.astype(np.int8), ranked.tolist(), np.asfortranarray(ranked)):
        assert evaluate(Y, same_ranked, train_Y) == expected


def test_columns_beyond_k_do_not_matter(case):
    Y, ranked, train_Y = case
    assert evaluate(Y, ranked[:, :3], train_Y, k=(1, 3)) == evaluate(Y, ranked, train_Y, k=(1, 3))


def test_inputs_stay_as_they_are(case):
    Y, ranked, train_Y = case
    before = Y.copy(), ranked.copy(), train_Y.copy()
    evaluate(Y, ranked, train_Y)
    assert (before[0] != Y).nnz == 0
    assert (train_Y != before[2]).nnz == 0
    np.testing.assert_array_equal(ranked, before[1])


def test_rows_without_labels_stay_in_the_means(Y):
    labelled = [0, 1, 3]
    whole, part = evaluate(Y, RANKED, k=3), evaluate(Y[labelled], np.array(RANKED)[labelled], k=3)
    for name in ("P@3", "nDCG@3", "recall@3"):
        assert whole[name] == pytest.approx(part[name] * 3 / 4, rel=1e-14)
    assert whole["microF1@3"] < part["microF1@3"]  # the row's prediction is a false positive
    assert (whole.n_rows_without_labels, part.n_rows_without_labels) == (1, 0)


def test_no_labels_anywhere(train_Y):
    got = evaluate(np.zeros((4, 6)), RANKED, train_Y, k=(1, 3), psp_raw=True)
    assert set(got.values()) == {0.0}
    assert len(got.by_decile) == 6
    assert got.n_rows_without_labels == 4


def test_only_pads(Y, train_Y):
    got = evaluate(Y, np.full((4, 5), -1), train_Y)
    assert set(got.values()) == {0.0}


def test_perfect_predictions(train_Y):
    Y = matrix_of([{4, 0}, {2, 3}, {1, 5}], 6)
    got = evaluate(Y, [[4, 0], [2, 3], [1, 5]], train_Y, k=(1, 2))
    below = {"recall@1", "microF1@1", "macroF1@1", "coverage@1"}  # one guess cannot find two labels
    for name, value in got.items():
        assert (value < 99) if name in below else (value == pytest.approx(100)), name


def test_cuts_come_sorted_and_once():
    Y, ranked = np.eye(2, 20), np.tile(np.arange(20), (2, 1))
    assert list(evaluate(Y, ranked, k=(16, 1, 16)))[:4] == ["P@1", "P@16", "nDCG@1", "nDCG@16"]
    assert evaluate(Y, ranked, k=(16, 1, 16)) == evaluate(Y, ranked, k=np.array([1, 16]))


def test_names_without_train_Y(case):
    Y, ranked, _ = case
    names = ["P@2", "nDCG@2", "recall@2", "microF1@2", "macroF1@2", "coverage@2"]
    assert list(evaluate(Y, ranked, k=2)) == names


def test_deciles_may_be_left_out(case):
    got = evaluate(*case, deciles=False)
    assert got.by_decile == []
    assert dict(got) == pytest.approx(dict(evaluate(*case)), rel=1e-13)


# --- bad input --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ([0, 6, 1], r"labels must be in \[0, 6\), or -1 as padding, but row 2 holds 6"),
        ([0, -2, -2], r"labels must be in \[0, 6\), or -1 as padding, but row 2 holds -2"),
        ([0, 1, 2**40], "row 2 holds 1099511627776"),
        ([0, -1, 4], "labels may hold -1 only at the end of a row, but row 2 holds 4 after -1"),
        ([3, 5, 3], "labels must not repeat in a row, but row 2 holds 3 more than once"),
    ],
)
def test_bad_ids_name_row_and_value(Y, row, message):
    with pytest.raises(DataError, match=message):
        evaluate(Y, [*RANKED[:2], row, RANKED[3]], k=1)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([0, 1, 2, 3], "labels must have two dimensions, but has 1"),
        (np.zeros((4, 3)), "labels must hold integer ids, but its type is float64"),
        ([[0, 1, 2]], "labels must have 4 rows, as Y has, but has 1"),
        ([[0], [1, 2], [3], [4]], "labels must have rows of equal length"),
    ],
)
def test_bad_labels(Y, labels, message):
    with pytest.raises(DataError, match=message):
        evaluate(Y, labels, k=1)


@pytest.mark.parametrize(
    ("k", "message"),
    [
        (4, "k must be at most the width of labels, 3, but is 4"),
        ((1, 0), "k must be one or more integers of at least 1, but holds 0"),
        (1.5, "but holds 1.5"),
        (True, "but holds True"),
        ((), "but is empty"),
    ],
)
def test_bad_k(Y, k, message):
    with pytest.raises(ParamError, match=message):
        evaluate(Y, RANKED, k=k)


def test_bad_label_matrices(Y, train_Y):
    with pytest.raises(DataError, match="train_Y must have 6 columns, but has 5"):
        evaluate(Y, RANKED, train_Y[:, :5], k=1)
    with pytest.raises(DataError, match=r"Y must have at least one row and one label, .* is \(0, 6\)"):
        evaluate(np.zeros((0, 6)), np.zeros((0, 3), int), k=1)
    with pytest.raises(DataError, match=r"but its shape is \(4, 0\)"):
        evaluate(np.zeros((4, 0)), RANKED, k=1)


def test_other_bad_settings(Y, train_Y):
    with pytest.raises(ParamError, match="psp_raw=True needs train_Y"):
        evaluate(Y, RANKED, k=1, psp_raw=True)
    with pytest.raises(ParamError, match="A must be a finite number of at least 0, but is -1"):
        evaluate(Y, RANKED, train_Y, k=1, A=-1)
    with pytest.raises(ParamError, match="threads must be an integer of at least 1, but is 0"):
        evaluate(Y, RANKED, k=1, threads=0)


# --- the result -------------------------------------------------------------------------------------------


def test_prints_an_aligned_table(Y, train_Y):
    assert str(evaluate(Y, RANKED, train_Y, k=(1, 3), A=0.5, B=0.4)) == "\n".join(
        [
            "4 rows (1 without labels), 6 labels",
            "              @1      @3",
            "P          50.00   41.67",
            "nDCG       50.00   56.36",
            "PSP        62.22   85.89",
            "PSnDCG     62.22   75.86",
            "recall     20.83   66.67",
            "microF1    40.00   66.67",
            "macroF1    25.00   52.22",
            "coverage   40.00   80.00",
            "propensities: A=0.5, B=0.4",
            "unseen in training: 1 label in 1 row, found 1 time",
            "only rows with a label seen in training, 3: P@1 33.33, P@3 44.44",
        ]
    )


def test_print_without_train_Y_has_no_propensities():
    shown = str(Metrics({"P@1": 12.5}, n_rows=1234567, n_labels=98765, n_rows_without_labels=1000))
    assert shown == "1,234,567 rows (1,000 without labels), 98,765 labels\n       @1\nP   12.50"


def test_json_holds_everything(Y, train_Y):
    got = evaluate(Y, RANKED, train_Y, k=(1, 3), A=np.float64(0.6), B=2.6)
    plain = json.loads(json.dumps(got.as_dict(), allow_nan=False))
    assert {type(value) for value in got.values()} == {float}
    assert {name: plain[name] for name in got} == dict(got)
    assert plain["propensity"] == {"A": 0.6, "B": 2.6}
    assert (plain["n_rows"], plain["n_labels"], plain["n_rows_without_labels"]) == (4, 6, 1)
    assert plain["by_decile"] == got.by_decile
    assert len(plain) == len(got) + 9
    assert evaluate(Y, RANKED, k=1).as_dict()["propensity"] is None


# --- propensities -----------------------------------------------------------------------------------------


def test_propensities_by_hand(train_Y):
    # A = 1: C (N_l + B)^-1 with C = (ln 10 - 1)(B + 1).
    c = math.log(10) - 1
    expected = [1 / (1 + c * 3 / (count + 2)) for count in TRAIN_COUNTS]
    assert propensities(sp.csr_matrix(train_Y), A=1, B=2) == pytest.approx(expected, rel=1e-14)
    assert propensities(train_Y, A=0) == pytest.approx([1 / (1 + c)] * 6, rel=1e-14)


def test_propensities_take_any_nonzero_as_a_label(train_Y):
    assert propensities(train_Y * 5).tolist() == propensities(train_Y).tolist()


def test_more_rows_mean_higher_propensity(train_Y):
    p = propensities(train_Y)
    assert p.dtype == np.float64
    assert np.all((p > 0) & (p < 1))
    assert p[5] > p[0] > p[1] > p[2] == p[3] > p[4]


def test_propensity_constants():
    families = dict(PROPENSITY_CONSTANTS)
    assert families == {"default": (0.55, 1.5), "wikipedia": (0.5, 0.4), "amazon": (0.6, 2.6)}
    assert families["amazon"].B == 2.6


def test_default_constants_are_the_default_family(train_Y):
    assert propensities(train_Y).tolist() == propensities(train_Y, *PROPENSITY_CONSTANTS["default"]).tolist()
    got = evaluate(train_Y, train_Y[:, :1] * 0, train_Y, k=1)
    assert PROPENSITY_CONSTANTS["default"] == (got.A, got.B)


@pytest.mark.parametrize("A", [-0.1, math.inf, math.nan, "0.5", None, True])
def test_bad_A(train_Y, A):
    with pytest.raises(ParamError, match="A must be a finite number of at least 0"):
        propensities(train_Y, A=A)


@pytest.mark.parametrize("B", [0, -1, math.inf, math.nan, "0.5", None, True])
def test_bad_B(train_Y, B):
    with pytest.raises(ParamError, match="B must be a finite number above 0"):
        propensities(train_Y, B=B)


@pytest.mark.parametrize(("A", "B"), [(2000, 1.5), (10**6, 1e-300), (np.float64(2000), 0.4)])
def test_extreme_constants(train_Y, A, B):
    with pytest.raises(ParamError, match="A and B must keep every propensity above 0, but A is"):
        propensities(train_Y, A=A, B=B)


def test_propensities_need_three_rows(train_Y):
    with pytest.raises(DataError, match="train_Y must have at least 3 rows for propensities, but has 2"):
        propensities(train_Y[:2])
    assert np.all(propensities(train_Y[:3]) < 1)


@pytest.mark.parametrize("module", [metrics, propensity])
def test_docstring_examples(module):
    result = doctest.testmod(module)
    assert result.attempted > 0
    assert result.failed == 0


# --- what no prediction can get right -------------------------------------------------------------------------------


def test_labels_never_seen_in_training_are_counted_and_left_out():
    train = np.array([[1, 0, 0, 1], [0, 1, 0, 0], [1, 0, 0, 0]])
    Y = np.array([[1, 0, 1, 0], [0, 0, 1, 0], [0, 0, 0, 0], [0, 1, 0, 1]])
    labels = np.array([[0, 1], [0, 1], [0, 1], [3, 0]])
    found = evaluate(Y, labels, train, k=(1, 2))
    assert (found.n_unseen_labels, found.n_rows_with_unseen_labels, found.n_rows_without_labels) == (1, 2, 1)
    assert found["P@1"] == 50
    # By hand: rows 0 and 3 have a label the model knows, {0} and {1, 3}.
    assert found.known_only.n_rows == 2
    assert found.known_only["P@1"] == 100
    assert found.known_only["recall@2"] == 75
    assert found.known_only == evaluate(Y[[0, 3]] * [1, 1, 0, 1], labels[[0, 3]], train, k=(1, 2), deciles=False)
    assert found.known_only.known_only is None
    text = str(found)
    assert "unseen in training, so counted as missed: 1 label in 2 rows" in text
    assert text.endswith("only rows with a label seen in training, 2: P@1 100.00, P@2 50.00")
    kept = found.as_dict()
    assert kept["known_only"]["P@1"] == 100
    assert (kept["n_unseen_labels"], kept["n_rows_with_unseen_labels"]) == (1, 2)


def test_nothing_is_said_where_everything_can_be_right():
    Y = np.eye(3)
    found = evaluate(Y, [[0], [2], [1]], Y, k=1)
    assert found.known_only is None
    assert "unseen" not in str(found)
    assert "only rows" not in str(found)
    without = evaluate(Y, [[0], [2], [1]], k=1)  # nobody said what was seen
    assert (without.n_unseen_labels, without.known_only) == (0, None)
    nothing = evaluate(Y, [[0], [2], [1]], np.zeros((3, 3)), k=1)  # no row is left
    assert (nothing.n_unseen_labels, nothing.known_only) == (3, None)
