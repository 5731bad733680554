"""The contract of a method, as code: what every method here guarantees, and what yours must guarantee to join them.

    from umpteen.checks import check_model
    check_model(MyMethod)                        # or MyMethod(some=setting)

Each `check_…` below is one clause and takes a `Case`: a method and data to try it on. `check_fitted` is the half that
needs only a trained model, so it also takes models that are not trained from rows, such as a blend. A failed check
raises an AssertionError that names the broken rule. The checks need only the package itself.
"""

from __future__ import annotations

import contextlib
import copy
import pickle
import tempfile
from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from umpteen.data.dataset import Dataset
from umpteen.data.synthetic import make_synthetic
from umpteen.errors import (
    DataError,
    MemoryLimitError,
    ModelExistsError,
    ModelUnfinishedError,
    NotFittedError,
    ParamError,
    UmpteenError,
)
from umpteen.evaluation.metrics import evaluate
from umpteen.methods.base import Method
from umpteen.models.scorer import Ranking
from umpteen.progress import Progress
from umpteen.tagger import load
from umpteen.trained.model import TrainedModel


class Case:
    """A method to check, data it can learn from, and one trained model that the checks share.

    Parameters
    ----------
    method
        A class, or an instance whose settings are kept.
    many_shards
        Settings that give several shards on 40 labels; without them resuming is checked with the default shards.
    data
        Rows to train from; a few hundred synthetic ones by default.
    """

    def __init__(
        self,
        method: type[Method] | Method,
        many_shards: dict[str, Any] | None = None,
        data: Dataset | None = None,
    ) -> None:
        self._method = method() if isinstance(method, type) else method
        self.many_shards = many_shards or {}
        data = data or make_synthetic(300, 200, 40, labels_per_row=3, features_per_row=20, seed=7)
        self.X, self.Y = data.X, data.Y
        self.names = [f"label {i}" for i in range(data.n_labels)]

    def new(self, **settings: Any) -> Any:
        """The method, not fitted."""
        return type(self._method)(**self._method.get_params() | settings)

    @cached_property
    def fitted(self) -> Any:
        """The method, fitted, with names for its labels."""
        return self.new().fit(self.X, self.Y, label_names=self.names)

    @cached_property
    def ranking(self) -> Ranking:
        """Its predictions for its rows, on one thread."""
        found: Ranking = self.fitted.predict_topk(self.X, 6, threads=1)
        return found


class Trained(Case):
    """A case with a model that is already trained."""

    def __init__(self, model: Any, X: Any, Y: Any) -> None:
        self._method, self.X, self.Y = model, X, Y
        self.names = list(_trained(model).label_names or ())
        self.fitted = model


# --- parameters -----------------------------------------------------------------------------------------------------


def check_parameters(case: Case) -> None:
    """Parameters are the constructor's, kept as given, and shown by repr if they are not the default."""
    cls = type(case.new())
    defaults = cls.param_defaults()
    model = cls()
    _holds(model.get_params() == defaults, "get_params() of a new method must be the constructor's defaults")
    _holds(repr(model) == f"{cls.__name__}()", f"repr() must show changed parameters only, but is {model!r}")
    model.set_params(threads=1)
    _holds(repr(model) == f"{cls.__name__}(threads=1)", f"repr() must show changed parameters, but is {model!r}")
    clone = cls(**model.get_params())
    for name, value in model.get_params().items():
        _holds(getattr(clone, name) is value, f"the constructor must keep {name} unchanged")
    with _refuses(ParamError, f"{cls.name} has no parameter 'colour'; its parameters are "):
        model.set_params(colour=1)
    for bad in ({"threads": "x"}, {"threads": float("inf")}, {"threads": 99999}, {"threads": 0}):
        with _refuses(ParamError, "threads must be "):
            case.new(**bad).fit(case.X, case.Y)
    counts = [name for name, value in defaults.items() if isinstance(value, int) and not isinstance(value, bool)]
    for name in {*counts, *case.many_shards} - {"seed"}:
        for value in ("abc", 1.5, True):
            with _refuses(ParamError, f"{name} must be "):
                case.new(**{name: value}).fit(case.X, case.Y)
    for name in ("tfidf", "normalize"):
        with _refuses(ParamError, f"{name} must be true or false, but is 'no'"):
            case.new(**{name: "no"}).fit(case.X, case.Y)
    powers = (("x", "a finite number"), (10**400, "a finite number"), (-0.1, "a finite number"), (1.5, "at most 1"))
    for value, rule in powers if "power" in defaults else ():
        with _refuses(ParamError, f"power must be {rule}"):
            case.new(power=value).fit(case.X, case.Y)


def check_not_fitted(case: Case) -> None:
    """A method that is not fitted refuses every question."""
    with _refuses(NotFittedError, "is not fitted; call fit first"):
        case.new().predict_topk(case.X)
    with _refuses(NotFittedError, "is not fitted; call fit first"):
        case.new().explain(case.X[0], 0)
    with _refuses(NotFittedError, "is not fitted; call fit first"):
        case.new().save("nowhere")


# --- training data --------------------------------------------------------------------------------------------------


def check_bad_training_data_is_refused(case: Case) -> None:
    """Wrong shapes, types and values are refused before training."""
    X, Y = case.X, case.Y
    finite = "X must hold finite 32-bit numbers, no NaN or inf, but row 0, column 0 is "
    for bad_X, bad_Y, message in [
        (X[:10], Y, f"X and Y must have the same number of rows, but have 10 and {Y.shape[0]}"),
        (X[:0], Y[:0], "training needs at least one row, but there are none"),
        (X[:, :0], Y, "training needs at least one feature, but there are none"),
        (X, Y[:, :0], "training needs at least one label, but there are none"),
        (np.full((2, 2), np.nan), np.eye(2), f"{finite}nan"),
        (np.full((2, 2), 1e39), np.eye(2), f"{finite}1e"),
        (np.ones(3), np.eye(3), "X must have two dimensions, but has 1"),
        (np.array([["a", "b"]]), np.eye(1), "X must hold real numbers, but its type is <U1"),
    ]:
        with _refuses(DataError, message):
            case.new().fit(bad_X, bad_Y)
    with _refuses(DataError, f"there must be {Y.shape[1]} label names, but there are 1"):
        case.new().fit(X, Y, label_names=["one"])
    for value in (np.nan, np.inf, -1):
        with _refuses(DataError, "Y must hold 0 where a row lacks a label and 1 where it has it, but holds"):
            case.new().fit(X, _broken(Y, "data", 0, value))


def check_broken_matrices_are_refused(case: Case) -> None:
    """Invalid index arrays are refused: native code must never follow them."""
    for part, at, value, message in [
        ("indices", 2, 50_000_000, "'s indices must be in [0, "),
        ("indices", 2, -7, "'s indices must be in [0, "),
        ("indptr", 5, 10**6, "'s indptr must rise from 0 to its "),
        ("indptr", -1, 1, "'s indptr must rise from 0 to its "),
    ]:
        for kind in ("tocsr", "tocsc"):
            with _refuses(DataError, f"X{message}"):
                case.new().fit(_broken(getattr(case.X, kind)(), part, at, value), case.Y)
            with _refuses(DataError, f"Y{message}"):
                case.new().fit(case.X, _broken(getattr(case.Y, kind)(), part, at, value))


def check_any_kind_of_matrix_is_taken(case: Case) -> None:
    """The same numbers train the same model in every kind of matrix, and are not changed."""
    X, Y = case.X, case.Y
    backwards = X.copy()
    for i in range(X.shape[0]):
        row = slice(*backwards.indptr[i : i + 2])
        backwards.indices[row] = backwards.indices[row][::-1].copy()
        backwards.data[row] = backwards.data[row][::-1].copy()
    backwards.has_sorted_indices = False
    before = backwards.copy()
    for what, other_X, other_Y in [
        ("sparse arrays", sp.csr_array(X), sp.csr_array(Y)),
        ("CSC and COO", X.tocsc(), Y.tocoo()),
        ("dense arrays", X.toarray(), Y.toarray().astype(bool)),
        ("64-bit numbers", X.astype(np.float64), Y.astype(np.int64)),
        ("unsorted rows", backwards, Y),
    ]:
        got = case.new().fit(other_X, other_Y).predict_topk(other_X, 6)
        _same_ranking(got, case.ranking, f"trained from {what}")
    _same_matrix(backwards, before, "unsorted X")


def check_inputs_are_not_changed(case: Case) -> None:
    """X and Y are only read: they may be mapped from a read-only file."""
    X, Y = case.X.copy(), case.Y.copy()
    for matrix in (X, Y):
        for array in (matrix.data, matrix.indices, matrix.indptr):
            array.flags.writeable = False
    settings = {k: v for k, v in {"tfidf": True, "power": 0.5}.items() if k in case.new().get_params()}
    case.new(**settings).fit(X, Y).predict_topk(X)
    _same_matrix(X, case.X, "X")
    _same_matrix(Y, case.Y, "Y")


def check_degenerate_data(case: Case) -> None:
    """One row, one feature, one label; no entries at all; all entries equal."""
    for n, d, n_labels in [(1, 1, 1), (1, 5, 3), (5, 1, 1), (20, 3, 1)]:
        shape = f"{n} rows, {d} features, {n_labels} labels"
        ones = np.ones((n, d))
        labels, scores = case.new().fit(ones, np.ones((n, n_labels))).predict_topk(ones, 2)
        _holds(labels.shape == scores.shape == (n, 2), f"with {shape} the ranking must be {n} x 2")
        _holds(bool((labels[:, 0] == 0).all()), f"with {shape}, all equal, the first label must be ranked first")
        nothing = case.new().fit(sp.csr_matrix((n, d)), sp.csr_matrix((n, n_labels)))
        ranked = nothing.predict_topk(ones, 2)[0]
        _holds(bool((ranked == -1).all()), f"with {shape} and no entries no label may be ranked, but {ranked[0]} are")
        _holds(nothing.score(ones, np.ones((n, n_labels))) == 0, f"with {shape} and no entries the score must be 0")
    half = np.eye(6)[:, :4]  # two rows without features, and one without labels
    labels, _ = case.new().fit(half, np.roll(np.eye(6)[:, :5], 3, axis=0)).predict_topk(half, 3)
    _holds(bool(((labels >= -1) & (labels < 5)).all()), "labels must be ids or -1")


def check_labels_without_rows_are_never_ranked(case: Case) -> None:
    """A label that was not trained must not be ranked by accident."""
    Y = sp.hstack([case.Y[:, :20], sp.csr_matrix((case.Y.shape[0], 1)), case.Y[:, 20:]], format="csr")
    labels, _ = case.new().fit(case.X, Y).predict_topk(case.X, Y.shape[1])
    _holds(20 not in labels, "a label without rows must never be ranked")
    _holds(bool((labels[:, -1] == -1).all()), "the last place must be -1, because one label has no rows")


def check_memory_is_stated(case: Case) -> None:
    """A method estimates its memory before training."""
    estimate = case.new().estimate(case.X, case.Y)
    _holds(estimate.peak_bytes >= 0 and estimate.model_bytes > 0, f"the estimate must be positive, but is {estimate}")


# --- shards, threads, interruption ----------------------------------------------------------------------------------


def check_bytes_do_not_depend_on_threads(case: Case) -> None:
    """The same data, settings and seed give the same model directory on any number of threads."""
    with _folder() as folder:
        for threads in (1, 2, 7):
            case.new(**case.many_shards, threads=threads).fit(case.X, case.Y, folder / str(threads))
        for threads in (2, 7):
            _same_files(folder / str(threads), folder / "1", f"on {threads} threads")


def check_resumes_to_the_same_bytes(case: Case) -> None:
    """A run interrupted after any shard continues with the finished shards and ends with the same bytes."""
    reports: list[Progress] = []
    with _folder() as folder:
        case.new(**case.many_shards).fit(case.X, case.Y, folder / "whole", progress=reports.append)
        n_shards = reports[-1].shards_total
        done = [report.shards_done for report in reports]
        _holds(done == list(range(n_shards + 1)), f"progress must be reported shard by shard, but is {done}")
        _holds(reports[0].done == 0 and reports[-1].done == reports[-1].total, "progress must go from 0 to the total")
        _holds(not case.many_shards or n_shards > 2, f"many_shards must give several shards, but gives {n_shards}")
        for after in range(n_shards):
            path = folder / f"after {after}"
            with contextlib.suppress(_Interrupted):
                case.new(**case.many_shards, threads=1).fit(case.X, case.Y, path, progress=_interrupt(after))
            with _refuses(ModelUnfinishedError, "fit again with the same model directory"):
                load(path)
            with _refuses(ModelExistsError, "unfinished model"):
                case.new(**case.many_shards).fit(case.X * 2, case.Y, path)
            kept = {shard.name: shard.stat().st_mtime_ns for shard in path.glob("shard-*")}
            case.new(**case.many_shards).fit(case.X, case.Y, path)
            _same_files(path, folder / "whole", f"resumed after {after} shards")
            _holds(
                all((path / name).stat().st_mtime_ns == written for name, written in kept.items()),
                "a finished shard must not be trained again",
            )
        with _refuses(ModelExistsError, "a finished model is already there"):
            case.new(**case.many_shards).fit(case.X, case.Y, folder / "whole")


# --- a trained model ------------------------------------------------------------------------------------------------


def check_threads_and_batches_agree(case: Case) -> None:
    """A row's ranking depends only on the row: not on threads, on other rows or on their order."""
    labels, scores = case.ranking
    for threads in (2, 7):
        _same_ranking(case.fitted.predict_topk(case.X, 6, threads=threads), case.ranking, f"on {threads} threads")
    for i in range(0, case.X.shape[0], 13):
        _same_ranking(case.fitted.predict_topk(case.X[i], 6), (labels[[i]], scores[[i]]), f"row {i} alone")
    order = np.random.default_rng(0).permutation(case.X.shape[0])
    _same_ranking(case.fitted.predict_topk(case.X[order], 6), (labels[order], scores[order]), "rows in another order")
    none = case.fitted.predict_topk(case.X[:0], 6)
    _holds(none[0].shape == none[1].shape == (0, 6), "no rows must give an empty ranking")


def check_rankings_are_sound(case: Case) -> None:
    """Best first, no label twice, padding at the end, `top_k` columns."""
    n_labels = case.Y.shape[1]
    labels, scores = case.fitted.predict_topk(case.X[:20], n_labels + 5)
    _holds(labels.shape == scores.shape == (min(20, case.X.shape[0]), n_labels + 5), "there must be top_k columns")
    _holds(labels.dtype == np.int32 and scores.dtype == np.float32, "labels must be int32 and scores float32")
    _holds(bool(((labels >= -1) & (labels < n_labels)).all()), "labels must be ids or -1")
    _holds(bool(((labels == -1) == np.isneginf(scores)).all()), "-1 and -inf must pad the same places")
    _holds(not np.isnan(scores).any(), "no score may be NaN")
    for row, values in zip(labels, scores, strict=True):
        given = row[row >= 0]
        _holds(bool((row[: len(given)] >= 0).all()), "padding must be at the end")
        _holds(len(set(given.tolist())) == len(given), "no label may be ranked twice")
        falls = np.diff(values[: len(given)])
        _holds(bool((falls <= 0).all()), "scores must fall")
        _holds(bool((np.diff(given)[falls == 0] > 0).all()), "ties must go to the lower label id")
    top, _ = case.fitted.predict_topk(case.X[:20], 3)
    _holds(bool((top == labels[:, :3]).all()), "a smaller top_k must give the first labels of a larger one")


def check_bad_questions_are_refused(case: Case) -> None:
    """Invalid arguments of predictions are refused."""
    width = case.X.shape[1]
    with _refuses(DataError, f"X must have {width} columns, but has {width - 1}"):
        case.fitted.predict_topk(case.X[:, : width - 1])
    for top_k in (0, -1, 2.5, True, "abc", None, float("nan")):
        with _refuses(ParamError, "top_k must be an integer of at least 1, but is"):
            case.fitted.predict_topk(case.X, top_k)
    for top_k in (2**31, 2**62, 2**70):
        with _refuses(ParamError, "top_k must be at most 2147483647, but is"):
            case.fitted.predict_topk(case.X, top_k)
    with _refuses(MemoryLimitError, "rank fewer labels or fewer rows"):
        case.fitted.predict_topk(case.X, 2**31 - 1)
    with _refuses(DataError, "X must hold finite 32-bit numbers"):
        case.fitted.predict_topk(np.full((2, width), np.nan))
    with _refuses(DataError, "X's indices must be in [0, "):
        case.fitted.predict_topk(_broken(case.X, "indices", 2, width))
    with _refuses(DataError, f"X and Y must have the same number of rows, but have {case.X.shape[0]} and 2"):
        case.fitted.score(case.X, case.Y[:2])
    with _refuses(ParamError, "exclude must hold label ids in [0, "):
        case.fitted.predict_topk(case.X, exclude=[case.Y.shape[1]])


def check_labels_can_be_left_out(case: Case) -> None:
    """`exclude` and `include` work by id and by name, before `top_k`."""
    model, best = case.fitted, case.ranking[0][:, 0]
    without = model.predict_topk(case.X, 1, exclude=[best[0]])[0][:, 0]
    _holds(without[0] != best[0], "an excluded label must not be ranked")
    ids: tuple[Any, ...] = (3, {3}, (3,), {3: "x"}.keys(), np.array([3]))
    for same in (*ids, case.names[3], frozenset({case.names[3]})) if case.names else ids:
        found = set(np.unique(model.predict_topk(case.X, 5, include=same)[0]).tolist())
        _holds(found <= {-1, 3} and 3 in found, f"include={same!r} must rank only label 3, but ranks {found}")
    if not case.names:
        with _refuses(ParamError, "include holds label names, but the model has none"):
            model.predict_topk(case.X, include=["n3"])
        return
    by_name = model.predict_topk(case.X, 1, exclude=[case.names[best[0]]])[0][:, 0]
    _holds(bool((by_name == without).all()), "a label's name must work like its id")
    with _refuses(ParamError, "exclude holds the unknown label 'law'"):
        model.predict_topk(case.X, exclude=["law"])


def check_predict_and_score(case: Case) -> None:
    """`predict` and `score` agree with `predict_topk`."""
    labels, _ = case.fitted.predict_topk(case.X, 3)
    predicted = case.fitted.predict(case.X, 3)
    _holds(predicted.shape == case.Y.shape, "predict must return a matrix of Y's shape")
    for row, found in zip(labels, predicted, strict=True):
        _holds(sorted(row[row >= 0].tolist()) == sorted(found.indices.tolist()), "predict must find the best labels")
    first = evaluate(case.Y, labels, k=(1,))["P@1"] / 100
    _holds(abs(case.fitted.score(case.X, case.Y) - first) < 1e-9, "score must be P@1")


def check_explanations(case: Case) -> None:
    """An explanation explains the score that `predict_topk` returns."""
    for i in range(0, case.X.shape[0], 61):
        label, score = int(case.ranking[0][i, 0]), float(case.ranking[1][i, 0])
        if label < 0:
            continue
        found = case.fitted.explain(case.X[i], label)
        _holds(found.label == label, f"the explanation must be for label {label}, but is for {found.label}")
        _holds(
            abs(found.score - score) <= 1e-3 * max(1, abs(score)),
            f"the explained score must be {score}, but is {found.score}",
        )
        _holds(bool(np.isfinite(found.contributions).all()), "contributions must be finite")
    with _refuses(ParamError, "explain takes one row and one label, but there are 2 rows"):
        case.fitted.explain(case.X[:2], 0)


def check_save_and_load_agree(case: Case) -> None:
    """Saved models, copies and pickles predict the same; an existing model is not replaced by default."""
    model = case.fitted
    with _folder() as folder:
        model.save(folder / "saved")
        loaded = _trained(load(folder / "saved", checksums=True))
        _same_ranking(loaded.predict_topk(case.X, 6), case.ranking, "loaded")
        _holds(loaded.params == _trained(model).params, "a loaded model must have the parameters it was trained with")
        _holds(list(loaded.label_names or ()) == case.names, "a loaded model must have its label names")
        _holds(
            bool((loaded.train_counts.counts == _trained(model).train_counts.counts).all()),
            "a loaded model must have its label counts",
        )
        with _refuses(ModelExistsError, "already exists; choose another place, or pass overwrite=True"):
            model.save(folder / "saved")
        loaded.save(folder / "again")
        _same_files(folder / "again", folder / "saved", "loaded and saved again")
        loaded.save(folder / "saved", overwrite=True)  # onto the files it is mapped from
        _same_files(folder / "again", folder / "saved", "saved over itself")
        _same_ranking(loaded.predict_topk(case.X, 6), case.ranking, "saved over itself")
        _holds({p.name for p in folder.iterdir()} == {"saved", "again"}, "saving must leave nothing else behind")
    for what, same in (("a copy", copy.deepcopy(model)), ("a pickle", pickle.loads(pickle.dumps(model)))):
        _same_ranking(same.predict_topk(case.X, 6), case.ranking, what)


#: Checks of a trained model.
FITTED_CHECKS: tuple[Callable[[Case], None], ...] = (
    check_threads_and_batches_agree,
    check_rankings_are_sound,
    check_bad_questions_are_refused,
    check_labels_can_be_left_out,
    check_predict_and_score,
    check_explanations,
    check_save_and_load_agree,
)

#: Checks of a method.
CHECKS: tuple[Callable[[Case], None], ...] = (
    check_parameters,
    check_not_fitted,
    check_bad_training_data_is_refused,
    check_broken_matrices_are_refused,
    check_any_kind_of_matrix_is_taken,
    check_inputs_are_not_changed,
    check_degenerate_data,
    check_labels_without_rows_are_never_ranked,
    check_memory_is_stated,
    check_bytes_do_not_depend_on_threads,
    check_resumes_to_the_same_bytes,
    *FITTED_CHECKS,
)


def check_model(
    method: type[Method] | Method, *, many_shards: dict[str, Any] | None = None, data: Dataset | None = None
) -> None:
    """Runs every check over a method.

    Parameters
    ----------
    method, many_shards, data
        As for `Case`.

    Raises
    ------
    AssertionError
        For the first check that fails; names the check and the broken rule.

    Examples
    --------
    >>> import umpteen
    >>> from umpteen.checks import check_model
    >>> check_model(umpteen.Centroid, many_shards={"labels_per_shard": 10})
    """
    _run(CHECKS, Case(method, many_shards, data))


def check_fitted(model: Any, X: Any, Y: Any) -> None:
    """Runs the checks of a trained model, with rows to predict and their labels."""
    _run(FITTED_CHECKS, Trained(model, X, Y))


def _run(checks: tuple[Callable[[Case], None], ...], case: Case) -> None:
    for check in checks:
        try:
            check(case)
        except (AssertionError, UmpteenError) as error:
            raise AssertionError(f"{check.__name__}: {error}") from error


# --- tools ----------------------------------------------------------------------------------------------------------


def _trained(model: Any) -> TrainedModel:
    """The trained model of an estimator or tagger, or the model itself."""
    found: TrainedModel = model.fitted() if hasattr(model, "fitted") else model
    return found


class _Interrupted(Exception):
    pass


def _interrupt(after: int) -> Callable[[Progress], None]:
    def listener(progress: Progress) -> None:
        if progress.shards_done >= after:
            raise _Interrupted

    return listener


def _holds(condition: bool, rule: str) -> None:
    if not condition:
        raise AssertionError(rule)


@contextlib.contextmanager
def _refuses(error: type[Exception], message: str) -> Iterator[None]:
    try:
        yield
    except error as found:
        _holds(message in str(found), f"the message must contain {message!r}, but is {str(found)!r}")
        return
    raise AssertionError(f"{error.__name__} must be raised ({message}…), but was not")


@contextlib.contextmanager
def _folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


def _broken(matrix: Any, part: str, at: int, value: float) -> Any:
    matrix = matrix.copy()
    getattr(matrix, part)[at] = value
    return matrix


def _same_ranking(got: Ranking, want: Ranking, what: str) -> None:
    for name, a, b in zip(("labels", "scores"), got, want, strict=True):
        _holds(a.shape == b.shape, f"{what}: {name} must have shape {b.shape}, but have {a.shape}")
        different = np.argwhere(a != b)
        if len(different):
            row, place = different[0]
            raise AssertionError(f"{what}: {name} differ, first in row {row}, place {place}: {a[row, place]} is not "
                                 f"{b[row, place]}")  # fmt: skip


def _same_matrix(got: Any, want: Any, name: str) -> None:
    for part in ("data", "indices", "indptr"):
        _holds(np.array_equal(getattr(got, part), getattr(want, part)), f"{name} must not be changed")


def _same_files(got: Path, want: Path, what: str) -> None:
    a, b = ({str(f.relative_to(d)): f.read_bytes() for f in d.rglob("*") if f.is_file()} for d in (got, want))
    _holds(a.keys() == b.keys(), f"{what}: the files must be {sorted(b)}, but are {sorted(a)}")
    for name, content in b.items():
        _holds(a[name] == content, f"{what}: {name} must have the same bytes")
