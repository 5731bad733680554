"""Tuning: Optuna chooses settings to try, and held-out training rows decide which are best.

The rows are split once. A trial trains on a quarter of the kept rows, then on half, then on all; a linear method
starts each time from its last dual solution. A trial that does worse than most did at that point is stopped. The
defaults are the first trial, so on the held-out rows the result is never worse than they are. Trials are written to a
journal as they end, and after an interruption the same call continues it.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from umpteen.data.files import PathLike
from umpteen.data.matrix import Csr, as_csr, fingerprint
from umpteen.data.split import split_rows
from umpteen.errors import DataError, MissingExtraError, ParamError
from umpteen.evaluation.metrics import KS, evaluate
from umpteen.methods import method_class
from umpteen.methods.base import Method
from umpteen.methods.dual import Alphas, DualOneVsRest
from umpteen.methods.training import check_training
from umpteen.params import check_choice, check_count
from umpteen.progress import Listener, Progress, listening

if TYPE_CHECKING:
    from collections.abc import Iterator

METRICS = tuple(f"{name}@{k}" for name in ("P", "nDCG", "PSP") for k in KS)
#: Shares of the kept rows that a trial trains on, one after the other.
_RUNGS = (0.25, 0.5, 1.0)
#: The first trials are never stopped: there is too little to compare them with.
_PATIENT_TRIALS = 4
#: With fewer rows than this the first rungs would show little, so trials train once, on all rows.
_ROWS_FOR_RUNGS = 2000


@dataclass(frozen=True)
class Between:
    """Any number from low to high, on a log scale."""

    low: float
    high: float


@dataclass(frozen=True)
class OneOf:
    """One of several values."""

    values: tuple[Any, ...]


@dataclass(frozen=True)
class Space:
    """The parameters to tune in a method.

    Parameters
    ----------
    search
        Parameter -> the values to try.
    cheap
        Parameters set to cheaper values in trials than in the final model: they cost time, and more is better.
    """

    search: Mapping[str, Between | OneOf]
    cheap: Mapping[str, Any] = field(default_factory=dict)


_FLAG = OneOf((False, True))
_VALUES: dict[str, Between | OneOf] = {"tfidf": _FLAG, "power": OneOf((1.0, 0.5))}
_FEATURES = {"normalize": _FLAG, **_VALUES}
_FOREST: dict[str, Between | OneOf] = {"C_delta": Between(0.2, 10.0), "max_leaf": OneOf((3, 5, 10, 20)), **_FEATURES}
_EMBEDDING = {
    "rank": OneOf((50, 100, 150)),
    "n_neighbors": OneOf((50, 100, 150, 250)),
    "start": OneOf(("labels", "random")),
    "iterations": OneOf((8, 15, 30)),
    **_FEATURES,
}

SPACES: dict[str, Space] = {
    "centroid": Space(_FEATURES),
    "dismec": Space({"C": Between(0.03, 10.0), "positive_weight": Between(0.3, 10.0), "bias": OneOf((0.3, 1.0, 3.0)),
                     **_VALUES}),
    "ppdsparse": Space({"lambda_": Between(1e-4, 0.3), "tau": Between(0.05, 10.0), "bias": OneOf((0.3, 1.0, 3.0)),
                        **_VALUES}, {"eps": 0.01}),
    "pdsparse": Space({"lambda_": Between(1e-3, 10.0), "C": Between(0.1, 100.0), **_FEATURES}),
    "label-tree": Space({"C": Between(0.03, 10.0), "branching": OneOf((2, 16, 100)), **_VALUES,
                         "max_leaf": OneOf((20, 100, 400)), "bias": OneOf((0.3, 1.0, 3.0)),
                         "n_trees": OneOf((1, 3))}),
    "fastxml": Space(_FOREST, {"n_trees": 20}),
    "pfastrexml": Space({"alpha": OneOf((0.6, 0.7, 0.8, 0.9, 0.95)), "gamma": Between(3.0, 100.0), **_FOREST},
                        {"n_trees": 20}),
    "rxml": Space(_EMBEDDING, {"n_learners": 2}),
    "sleec": Space(_EMBEDDING, {"n_learners": 2}),
    "rxml-global": Space({"rank": OneOf((50, 100, 200, 300)), "iterations": OneOf((15, 30, 60)), **_FEATURES}),
}  # fmt: skip


@dataclass(frozen=True)
class Trial:
    """One setting that was tried. `value` is None if the trial was stopped, which happened at `rows` rows."""

    number: int
    params: dict[str, Any]
    value: float | None
    rows: int
    seconds: float


@dataclass(frozen=True)
class Tuning:
    """The result of `tune`.

    Attributes
    ----------
    params : dict
        The best settings, without those left at their defaults.
    value, default_value : float
        The metric on the held-out rows, in percent: for the best settings, and for the defaults.
    trials : list of Trial
    """

    method: str
    metric: str
    params: dict[str, Any]
    value: float
    default_value: float
    trials: list[Trial]

    def make(self, **params: Any) -> Method:
        """A method with the settings found, to be trained on all rows."""
        method: Method = method_class(self.method)(**self.params | params)
        return method

    def as_dict(self) -> dict[str, Any]:
        """Plain numbers, lists and dicts that the json module can write."""
        names = ("method", "metric", "params", "value", "default_value")
        return {name: getattr(self, name) for name in names} | {"trials": [vars(trial) for trial in self.trials]}


def check_tuning(method: str, trials: int, metric: str, heldout: float, fixed: Mapping[str, Any]) -> Any:
    """Raises for what `tune` would refuse, before there are rows; returns the method's class."""
    cls = method_class(method)
    check_count("trials", trials)
    check_choice("metric", metric, METRICS)
    if not isinstance(heldout, (int, float)) or isinstance(heldout, bool) or not 0 < heldout < 1:
        raise ParamError(f"heldout must be a share above 0 and below 1, but is {heldout!r}")
    cls.check_param_names(fixed)
    cls(**fixed).validate()
    return cls


def tune(
    method: str,
    X: Any,
    Y: Any,
    *,
    trials: int = 30,
    metric: str = "nDCG@5",
    heldout: float = 0.2,
    seed: int = 0,
    journal: PathLike | None = None,
    threads: int | None = None,
    fixed: Mapping[str, Any] | None = None,
    progress: bool | Listener = False,
) -> Tuning:
    """Tries settings of a method and returns the best.

    Parameters
    ----------
    method
        The method's name.
    X, Y
        Training rows; some of them are held out. Do not pass test rows.
    trials
        How many settings to try, including those in the journal.
    metric
        What to maximise: P@k, nDCG@k or PSP@k, with k 1, 3 or 5.
    heldout
        The share of rows to hold out.
    journal
        A file that trials are written to as they end. A journal of the same method, metric and rows is continued.
    fixed
        Parameters to set instead of tuning them.
    """
    optuna = _import_optuna()
    fixed = dict(fixed or {})
    cls = check_tuning(method, trials, metric, heldout, fixed)
    X, Y = as_csr(X, "X"), as_csr(Y, "Y", values=False)
    check_training(cls(**fixed), X, Y, Y.shape[1], None)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # fewer held-out rows than requested are fine
        mask = split_rows(Y, heldout, seed=seed)
    if not (np.diff(Y[mask].indptr) > 0).any():
        raise DataError("tuning needs held-out rows with labels, but every label is needed for training")
    whole = space_of(cls)
    space = _free_parameters(method, whole, X, fixed)
    defaults = {name: value for name, value in cls.param_defaults().items() if name in space}
    cheap = {name: value for name, value in whole.cheap.items() if name not in fixed}
    given = {**cheap, **fixed, "threads": threads}
    rungs = _choose_rows(np.flatnonzero(~mask), seed)
    objective = _Objective(cls, space, given, X, Y, mask, rungs, metric)
    with _quiet(optuna), listening(progress, f"tuning {method}") as listener:
        study = optuna.create_study(
            study_name=method,
            storage=_open_journal(optuna, journal),
            load_if_exists=True,
            direction="maximize",
            sampler=optuna.samplers.TPESampler(seed=seed, n_startup_trials=max(5, trials // 4)),
            pruner=optuna.pruners.MedianPruner(n_startup_trials=_PATIENT_TRIALS),
        )
        identity = {
            "metric": metric,
            "fixed": repr(sorted(fixed.items())),
            "rows": fingerprint(X),
            "labels": fingerprint(Y),
        }
        _check_journal(study, identity, journal)
        if not study.trials:
            study.enqueue_trial(_within(defaults, space))
        done = len(_ended(study))
        listener(Progress(done, trials, done, trials))

        def report_progress(_: Any, __: Any) -> None:
            ended = len(_ended(study))
            listener(Progress(ended, trials, ended, trials))

        if done < trials:
            study.optimize(objective, n_trials=trials - done, callbacks=[report_progress])
    return _report(study, method, metric, fixed, cls.param_defaults())


def space_of(cls: type[Any]) -> Space:
    """The parameters to tune in a method: of another package's its `tuning_space`, else what changes its features."""
    if cls.name in SPACES:
        return SPACES[cls.name]
    known = cls.param_defaults()
    common = Space({name: domain for name, domain in _FEATURES.items() if name in known})
    space = getattr(cls, "tuning_space", common)
    unknown = [name for name in (*space.search, *space.cheap) if name not in known]
    if unknown:
        raise ParamError(f"tuning_space of {cls.name} must name parameters it has, but has {unknown[0]!r}")
    return space


def _free_parameters(method: str, whole: Space, X: Csr, fixed: Mapping[str, Any]) -> dict[str, Between | OneOf]:
    """The parameters to tune: those that are not fixed and that X allows."""
    space = {name: domain for name, domain in whole.search.items() if name not in fixed}
    if X.nnz and X.data.min() < 0:
        space.pop("tfidf", None)  # tf-idf is for counts
    if not space:
        raise ParamError(f"tuning {method} needs a free parameter, but all are fixed: {', '.join(whole.search)}")
    return space


@dataclass(frozen=True, eq=False)
class _Objective:
    """The metric of a trial's settings on the held-out rows, trained on more rows step by step."""

    cls: type[Any]
    space: Mapping[str, Between | OneOf]
    given: dict[str, Any]
    X: Csr
    Y: Csr
    held_out: np.ndarray[Any, Any]
    rungs: list[np.ndarray[Any, Any]]
    metric: str

    def __call__(self, trial: Any) -> float:
        params = {name: _suggest(trial, name, domain) for name, domain in self.space.items()}
        X_out, Y_out = self.X[self.held_out], self.Y[self.held_out]
        value = 0.0
        model: Method | None = None
        for step, rows in enumerate(self.rungs):
            trial.set_user_attr("rows", len(rows))
            before, model = model, self.cls(**params | self.given)
            if isinstance(model, DualOneVsRest):
                model.alphas = self._start(before, step)
            value = _fit_and_evaluate(model, self.X[rows], self.Y[rows], X_out, Y_out, self.metric)
            trial.report(value, step)
            if step + 1 < len(self.rungs) and trial.should_prune():
                raise _import_optuna().TrialPruned
        return value

    def _start(self, before: Method | None, step: int) -> Alphas:
        """Where a step begins: at the dual solution of the step before."""
        if not isinstance(before, DualOneVsRest) or before.alphas is None:
            return Alphas(None)
        rows = self.rungs[step]
        return Alphas(before.alphas.on(np.searchsorted(rows, self.rungs[step - 1]), len(rows)))


def _fit_and_evaluate(model: Method, X: Csr, Y: Csr, X_out: Csr, Y_out: Csr, metric: str) -> float:
    model.fit(X, Y)
    labels, _ = model.predict_topk(X_out, 5)
    return float(evaluate(Y_out, labels, Y, deciles=False)[metric])


def _choose_rows(rows: np.ndarray[Any, Any], seed: int) -> list[np.ndarray[Any, Any]]:
    """The rows to train on at each step of a trial, each a part of the next."""
    if len(rows) < _ROWS_FOR_RUNGS:
        return [rows]
    order = np.random.default_rng(seed).permutation(len(rows))
    return [rows[np.sort(order[: round(share * len(rows))])] for share in _RUNGS]


def _suggest(trial: Any, name: str, domain: Between | OneOf) -> Any:
    if isinstance(domain, Between):
        # Three digits are easy to copy, and more make no difference.
        return float(f"{trial.suggest_float(name, domain.low, domain.high, log=True):.3g}")
    return trial.suggest_categorical(name, domain.values)


def _within(defaults: Mapping[str, Any], space: Mapping[str, Between | OneOf]) -> dict[str, Any]:
    """The defaults, moved into the space or left out."""
    inside = {}
    for name, value in defaults.items():
        domain = space[name]
        if isinstance(domain, Between):
            inside[name] = min(max(float(value), domain.low), domain.high)
        elif value in domain.values:
            inside[name] = value
    return inside


def _report(study: Any, method: str, metric: str, fixed: Mapping[str, Any], defaults: Mapping[str, Any]) -> Tuning:
    ended = _ended(study)
    trials = []
    for trial in ended:
        params = {name: float(f"{v:.3g}") if isinstance(v, float) else v for name, v in trial.params.items()}
        value = float(trial.value) if trial.state.name == "COMPLETE" else None
        seconds = trial.duration.total_seconds() if trial.duration else 0.0
        trials.append(Trial(trial.number, params, value, int(trial.user_attrs["rows"]), seconds))
    whole = [trial for trial in trials if trial.value is not None]
    best = max(whole, key=lambda trial: (trial.value or 0.0, -trial.number))
    params = {name: value for name, value in best.params.items() if value != defaults[name]}
    assert best.value is not None
    assert whole[0].value is not None
    return Tuning(method, metric, {**params, **fixed}, best.value, whole[0].value, trials)


def _ended(study: Any) -> list[Any]:
    return [trial for trial in study.trials if trial.state.name in ("COMPLETE", "PRUNED")]


def _open_journal(optuna: Any, path: PathLike | None) -> Any:
    if path is None:
        return None
    from optuna.storages.journal import JournalFileBackend

    return optuna.storages.JournalStorage(JournalFileBackend(str(path)))


def _check_journal(study: Any, identity: Mapping[str, str], path: PathLike | None) -> None:
    """Refuses to continue a journal of another tuning run."""
    for name, value in identity.items():
        known = study.user_attrs.get(name)
        if known is None:
            study.set_user_attr(name, value)
        elif known != value:
            raise ParamError(f"{path}: the journal is from another tuning run ({name} differs); choose another file")


def _import_optuna() -> Any:
    try:
        import optuna
    except ImportError as error:
        raise MissingExtraError("tuning needs Optuna. Install it with: pip install 'umpteen[tune]'") from error
    return optuna


@contextmanager
def _quiet(optuna: Any) -> Iterator[None]:
    """Silences Optuna's own log, and its warnings about experimental parts."""
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            yield
    finally:
        optuna.logging.set_verbosity(before)
