"""The base class of methods: parameters, a plan of shards, how to train one, and how much memory that takes.

A method is one file in this package. It has a name and parameters, and defines three things: `plan` (which shards),
`train_shard` (one shard from shared read-only data) and `estimate` (memory and model size). Engines, resuming and
writing are in training.py; trained models are in umpteen/trained.
"""

from __future__ import annotations

import abc
import json
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from umpteen.data.files import PathLike
from umpteen.data.matrix import Csr, as_csr
from umpteen.data.preprocessing import Preprocessing
from umpteen.data.targets import read_targets
from umpteen.engines.base import Engine, Parallelism, Resources, Task
from umpteen.errors import ModelCorruptError, ModelFormatError, ParamError
from umpteen.memory import Estimate
from umpteen.methods.estimator import Estimator
from umpteen.methods.held_out import check_calibration, train_calibrated
from umpteen.methods.row_costs import weigh_rows
from umpteen.methods.training_data import TrainingData
from umpteen.models.linear import LinearModel
from umpteen.models.scorer import Scorer
from umpteen.params import check_choice
from umpteen.progress import Listener
from umpteen.storage.store import Part
from umpteen.trained.header import explain_newer

#: Parameters for how to compute, not what: the model's bytes do not depend on them.
COMPUTE_PARAMS = ("threads", "engine")
#: Settings by one name; see `Method.make`.
PRESETS = ("default", "paper")


class Method(Estimator):
    """Base of all methods, with scikit-learn's conventions: parameters in the constructor, `fit`, and fitted
    attributes with a trailing underscore."""

    name: ClassVar[str]
    parallelism: ClassVar[Parallelism] = "inside"
    #: The family of models the method trains.
    scorer_class: ClassVar[type[Scorer]] = LinearModel
    #: What to do if memory is too small.
    memory_advice: ClassVar[str] = "use fewer threads, smaller shards, or a method with a smaller model"
    #: Whether a shard needs only the rows of its own labels; see `labels_of`.
    trains_by_label: ClassVar[bool] = False
    #: Whether a row may count more or less than once; see `sample_weight` of `fit`.
    weighs_rows: ClassVar[bool] = False
    #: Whether it has a parameter `label_terms`, the words of labels as rows of X's features, which taggers make.
    takes_label_terms: ClassVar[bool] = False
    #: Whether scores say by themselves which labels a row has: those above a margin of 0, or with most votes.
    has_boundary: ClassVar[bool] = True
    #: Whether all labels are trained at once, so that the first shard takes as long as all of them.
    couples_labels: ClassVar[bool] = False
    #: Parameters left out of the manifest, because the model keeps them as parts.
    kept_as_parts: ClassVar[tuple[str, ...]] = ()
    #: Names and values of parameters in the manifests of earlier versions -> those of today; values by today's name.
    renamed: ClassVar[Mapping[str, str]] = {}
    renamed_values: ClassVar[Mapping[str, Mapping[Any, Any]]] = {}
    #: Where the paper's own settings differ from the defaults. It counts for the class that has it only: a class that
    #: is derived from another is of another paper.
    paper_settings: ClassVar[Mapping[str, Any]]

    tfidf: bool
    normalize: bool
    power: float = 1.0  # for methods without the parameter
    bias: float = 0.0
    engine: str | Engine

    # --- what a method defines ----------------------------------------------------------------------------------

    @abc.abstractmethod
    def validate(self) -> None:
        """Raises ParamError for a parameter with a bad value."""

    def preprocessing(self) -> Preprocessing:
        """The steps its parameters set, checked."""
        return Preprocessing(self.tfidf, self.normalize, self.bias, power=self.power)

    @abc.abstractmethod
    def plan(self, data: TrainingData) -> list[Task]:
        """The shards, in the order they are stored. Depends only on data and parameters."""

    @abc.abstractmethod
    def train_shard(self, data: TrainingData, task: Task, resources: Resources) -> Part:
        """Trains one shard. Depends only on data, parameters and the task: never on threads, order or clocks."""

    def check_weighs_rows(self) -> None:
        """Refuses `sample_weight` where a row can only count once."""
        if not self.weighs_rows:
            raise ParamError(f"sample_weight must be None for {self.name}, which cannot weigh rows")

    def check_stored(self, model_dir: PathLike | None) -> None:
        """Refuses to write a model that can only be kept in memory."""

    def collect_note(self, task: Task, note: Any) -> None:
        """Keeps a note that `train_shard` added to its resources, wherever it ran."""

    def labels_of(self, task: Task) -> NDArray[np.int32] | None:
        """The labels whose rows a shard is trained from, in rising order; None means all. An engine that trains the
        shard on another machine sends only these rows."""
        return None

    def train_companions(self, X: Csr, Y: Csr, progress: bool | Listener) -> tuple[dict[str, Any], dict[str, Part]]:
        """Trains what the model keeps beside its shards, before them: manifest entries, and parts."""
        return {}, {}

    @abc.abstractmethod
    def estimate(self, X: Csr, Y: Csr) -> Estimate:
        """Memory beyond X and Y, and the model's size, from the matrices' shapes and counts."""

    # --- presets ------------------------------------------------------------------------------------------------

    @classmethod
    def make(cls, preset: str = "default", **params: Any) -> Self:
        """The method with the settings of a preset, "default" or "paper", and with `params` instead of some."""
        check_choice("preset", preset, PRESETS)
        settings = cls.__dict__.get("paper_settings") if preset == "paper" else {}
        if settings is None:
            raise ParamError(f"{cls.name} has no preset 'paper'; only {', '.join(_with_papers())} have")
        cls.check_param_names(params)
        return cls(**{**settings, **params})

    @classmethod
    def paper(cls, **params: Any) -> Self:
        """The method with its paper's own settings, where they differ from the defaults; `params` go over them.

        Examples
        --------
        >>> import umpteen
        >>> umpteen.FastXML.paper(n_trees=20)
        FastXML(n_trees=20, labels_per_leaf=20, balance_sides=False, max_outer=10, max_inner=10)
        """
        return cls.make("paper", **params)

    # --- fit ----------------------------------------------------------------------------------------------------

    def fit(
        self,
        X: Any,
        Y: Any = None,
        model_dir: PathLike | None = None,
        *,
        y: Any = None,
        label_names: Sequence[str] | None = None,
        calibration: float | str = 0,
        resume: bool = True,
        progress: bool | Listener = False,
        keep_rows: int = 0,
        sample_weight: Any = None,
    ) -> Self:
        """Trains all shards.

        Parameters
        ----------
        X : sparse or array, n_rows x n_features
        Y : sparse or array, n_rows x n_labels; or a table, lists of names, or one class for each row
            Non-zero where the row has the label. The columns of a table are the labels' names. With one class for
            each row, `predict` gives the best class.
        y
            Another name for Y, which scikit-learn uses.
        model_dir
            Where to write the model: a directory, or, with ``umpteen[fsspec]``, a URL such as s3://bucket/model. Each
            shard is written as it finishes; after an interruption the same call continues. Without it the model stays
            in memory until `save`.
        label_names
            One per label, kept with the model.
        calibration : float, int or "auto"
            Learn probabilities and thresholds from rows held out: a share below 1, once; or a number of folds, each
            row held out of one of so many models. "auto" takes five folds of fewer than 5,000 rows, else a share of
            0.1. These models are trained before the one that is kept, which is trained on all rows.
        resume
            False refuses to continue an interrupted run.
        progress
            True for a bar at a terminal, or a function to call with each `Progress`.
        keep_rows
            Keep at most so many training rows in the model, drawn at random, for `add_labels` to train new labels
            against. Whoever has the model has these rows.
        sample_weight : array, n_rows
            How many times each row counts in the sum that training minimises: a row of weight 2 is as good as the row
            twice, one of weight 0 is left out. What counts rows rather than sums losses takes each row once: idf,
            propensities and the number of rows of each label.
        """
        check_calibration(calibration)
        form, Y = read_targets(y if Y is None else Y)
        label_names = form.names if label_names is None else label_names
        table, X = X, as_csr(X, "X")
        X, Y, row_costs = weigh_rows(self, X, Y, sample_weight)
        self.model_ = train_calibrated(
            self, X, Y, model_dir, calibration=calibration, row_costs=row_costs,
            label_names=label_names, resume=resume, progress=progress, keep_rows=keep_rows,
        )  # fmt: skip
        self._remember(table, form)
        return self

    def facts(self) -> dict[str, Any]:
        """The parameters the model depends on, as the manifest stores them: those chosen in training have their
        chosen values."""
        left_out = (*COMPUTE_PARAMS, *self.kept_as_parts)
        return {name: _plain(name, value) for name, value in self.get_params().items() if name not in left_out}

    @classmethod
    def from_model(cls, model: Any) -> Self:
        """The method that trained a model, with its parameters and the model: to add labels or trees, or to train the
        same way on other data.

        Examples
        --------
        >>> import umpteen
        >>> data = umpteen.make_synthetic(500, 300, 20, seed=1)
        >>> model = umpteen.DiSMEC(C=0.5).fit(data.X, data.Y).model_  # or the result of umpteen.load
        >>> umpteen.DiSMEC.from_model(model)
        DiSMEC(C=0.5)
        """
        model = model.fitted() if hasattr(model, "fitted") else model  # a tagger
        if model.method != cls.name:
            raise ParamError(f"the model's method must be {cls.name}, but is {model.method}")
        params = {cls.renamed.get(name, name): value for name, value in model.params.items()}
        for name, now in cls.renamed_values.items():
            if isinstance(params.get(name), str):
                params[name] = now.get(params[name], params[name])
        unknown = [name for name in params if name not in cls.param_defaults() or name in COMPUTE_PARAMS]
        if unknown:
            error = ModelFormatError(
                f"{cls.name} has no parameter {unknown[0]!r:.100}, which the model was trained with"
            )
            raise explain_newer(model.header, error)
        method = cls(**params)
        try:
            method.validate()
        except ParamError as error:
            raise explain_newer(
                model.header, ModelCorruptError(f"the model's parameters cannot be used: {error}")
            ) from error
        method.model_ = model
        return method


def _with_papers() -> list[str]:
    """The methods that have their paper's settings."""
    from umpteen.methods import METHODS, method_class

    return [name for name in METHODS if "paper_settings" in method_class(name).__dict__]


class CountsRowsOnce(Method):
    """A method that cannot weigh rows, so its `fit` takes no `sample_weight`; meta-estimators look for it there."""

    fit_metadata: ClassVar[tuple[str, ...]] = ("label_names", "calibration")

    def fit(  # type: ignore[override]
        self,
        X: Any,
        Y: Any = None,
        model_dir: PathLike | None = None,
        *,
        y: Any = None,
        label_names: Sequence[str] | None = None,
        calibration: float | str = 0,
        resume: bool = True,
        progress: bool | Listener = False,
        keep_rows: int = 0,
    ) -> Self:
        return super().fit(
            X, Y, model_dir, y=y, label_names=label_names, calibration=calibration, resume=resume, progress=progress,
            keep_rows=keep_rows,
        )  # fmt: skip

    fit.__doc__ = (Method.fit.__doc__ or "").partition("        sample_weight :")[0]


def _plain(name: str, value: Any) -> Any:
    """A parameter as a JSON value."""
    value = value.item() if isinstance(value, np.generic) else value
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError):
        raise ParamError(f"{name} must be a plain value that JSON can hold, but is {value!r}") from None
    return value
