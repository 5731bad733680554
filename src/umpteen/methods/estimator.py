"""The scikit-learn interface: parameters in the constructor, `fit`, and predictions from the trained model.

`fit` sets `model_`, a `TrainedModel`; every other call goes to that.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from umpteen.data.files import PathLike
from umpteen.data.matrix import Csr
from umpteen.data.preprocessing import Preprocessing
from umpteen.data.propensity import LabelCounts
from umpteen.data.targets import TargetForm, column_names
from umpteen.engines.base import Engine
from umpteen.errors import DataError, not_fitted
from umpteen.methods.routing import RoutesMetadata
from umpteen.models.calibration import Calibration
from umpteen.models.explanation import Explanation
from umpteen.models.scorer import Ranking
from umpteen.params import Threaded
from umpteen.progress import Listener
from umpteen.storage.names import Names
from umpteen.trained.dense import share_out
from umpteen.trained.model import TrainedModel


class Estimator(Threaded, RoutesMetadata, abc.ABC):
    """Parameters and, once fitted, the model trained with them.

    Attributes
    ----------
    model_ : TrainedModel
        The model that `fit` trained. The other attributes come from it.
    n_features_in_, n_labels_ : int
    feature_names_in_ : array of str
        The columns of the table that `fit` was given; only there if it was one.
    classes_ : array
        Label names or ids; the classes of a one-dimensional y.
    coef_, intercept_ : of a linear model
        Its weights, sparse, n_labels x n_features; see `to_weights`.
    label_names_ : sequence of str or None
    train_counts_ : LabelCounts
    calibration_ : Calibration or None
    preprocessing_ : Preprocessing
    """

    model_: TrainedModel

    @abc.abstractmethod
    def fit(
        self,
        X: Any,
        Y: Any,
        model_dir: PathLike | None = None,
        *,
        label_names: Sequence[str] | None = None,
        resume: bool = True,
        progress: bool | Listener = False,
    ) -> Self: ...

    # --- scikit-learn -------------------------------------------------------------------------------------------

    #: The form of the labels given to `fit`, which predictions have too.
    _form: TargetForm = TargetForm()

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import ClassifierTags, InputTags, Tags, TargetTags

        return Tags(
            estimator_type="classifier",
            target_tags=TargetTags(required=True, multi_output=True),
            classifier_tags=ClassifierTags(multi_label=True),
            input_tags=InputTags(sparse=True),
        )

    def __sklearn_is_fitted__(self) -> bool:
        return "model_" in self.__dict__  # not any name with a trailing underscore: lambda_ is a parameter

    def _remember(self, X: Any, form: TargetForm) -> None:
        """Keeps the form of the labels and the names of the columns that `fit` was given."""
        self._form = form
        self.__dict__.pop("feature_names_in_", None)
        names = column_names(X)
        if names is not None:
            self.feature_names_in_ = names

    def _check_columns(self, X: Any) -> Any:
        """Refuses a table whose columns are not those of `fit`; rows that have no names are taken as they are."""
        expected, given = self.__dict__.get("feature_names_in_"), column_names(X)
        if expected is not None and given is not None and not np.array_equal(expected, given):
            wrong = [name for name in given if name not in set(expected)]
            raise DataError(
                f"X must have the columns it had in fit, but has the unknown column {wrong[0]!r}"
                if wrong
                else "X must have the columns it had in fit, in the same order"
            )
        return X

    @property
    def classes_(self) -> NDArray[Any]:
        """The classes that `fit` saw; of labels, their names, or ids where they have none."""
        model = self.fitted()
        if self._form.kind == "classes":
            return self._form.classes
        return np.arange(model.n_labels) if model.label_names is None else np.array(list(model.label_names))

    @property
    def coef_(self) -> Any:
        """The weights of a linear model, sparse, n_labels x n_features, for rows after preprocessing. Of two classes
        the second's less the first's, as scikit-learn has them."""
        W, _ = self.to_weights()
        return W[1] - W[0] if self._is_binary() else W

    @property
    def intercept_(self) -> NDArray[np.float32]:
        """What a linear model adds to each label's score."""
        _, bias = self.to_weights()
        return bias[1:] - bias[:1] if self._is_binary() else bias

    def _is_binary(self) -> bool:
        return self._form.kind == "classes" and len(self._form.classes) == 2

    # --- the trained model --------------------------------------------------------------------------------------

    def fitted(self) -> TrainedModel:
        """The trained model, set to this estimator's threads; raises NotFittedError before `fit`."""
        if not self.__sklearn_is_fitted__():
            raise not_fitted(f"this {type(self).__name__} is not fitted; call fit first")
        if self.model_.threads != self.threads:
            self.model_ = self.model_.with_threads(self.threads)
        # Settings of prediction may be changed after training.
        changed = {
            name: getattr(self, name)
            for name, value in self.model_.settings().items()
            if getattr(self, name, value) != value
        }
        if changed:
            self.model_ = self.model_.configured(**changed)
        return self.model_

    @property
    def n_features_in_(self) -> int:
        return self.fitted().n_features

    @property
    def n_labels_(self) -> int:
        return self.fitted().n_labels

    @property
    def label_names_(self) -> Names | None:
        return self.fitted().label_names

    @property
    def train_counts_(self) -> LabelCounts:
        return self.fitted().train_counts

    @property
    def calibration_(self) -> Calibration | None:
        return self.fitted().calibration

    @property
    def preprocessing_(self) -> Preprocessing:
        return self.fitted().preprocessing

    def predict_topk(
        self,
        X: Any,
        top_k: int = 5,
        *,
        exclude: ArrayLike | None = None,
        include: ArrayLike | None = None,
        threads: int | None = None,
        engine: str | Engine = "local",
    ) -> Ranking:
        X = self._check_columns(X)
        return self.fitted().predict_topk(X, top_k, exclude=exclude, include=include, threads=threads, engine=engine)

    def predict_topk_proba(self, X: Any, top_k: int = 5, **options: Any) -> Ranking:
        return self.fitted().predict_topk_proba(self._check_columns(X), top_k, **options)

    def predict(self, X: Any, top_k: int | str | None = None, threshold: float | str | None = None) -> Any:
        """The labels to give each row, in the form that `fit` was given: a CSR matrix of ones, n_rows x n_labels; a
        dense one where Y was dense and the result takes at most half a gigabyte; lists of names; or one class.

        `TrainedModel.rank` says which labels those are. With one class for each row, it is the best one.
        """
        model, X = self.fitted(), self._check_columns(X)
        if self._form.kind != "classes":
            return self._form.decode(model.predict(X, top_k, threshold))
        best = model.predict_topk(X, 1)[0][:, 0]
        frequent = int(np.argmax(model.train_counts.counts))
        return self._form.classes[np.where(best >= 0, best, frequent)]

    def decision_function(self, X: Any) -> NDArray[np.float32]:
        scores = self.fitted().decision_function(self._check_columns(X))
        return scores[:, 1] - scores[:, 0] if self._is_binary() else scores

    def _predict_proba(self, X: Any) -> NDArray[np.float32]:
        found = self.fitted().predict_proba(self._check_columns(X))
        return share_out(found) if self._form.kind == "classes" else found

    _predict_proba.__name__ = "predict_proba"  # by which StackingClassifier calls it again

    @property
    def predict_proba(self) -> Callable[[Any], NDArray[np.float32]]:
        """The probabilities of all labels; there only once the model is calibrated, as scikit-learn's
        meta-estimators look for it and else take `decision_function`."""
        if not self.__sklearn_is_fitted__() or self.model_.calibration is None:
            raise AttributeError(
                f"this {type(self).__name__} has no probabilities; fit it with calibration, such as calibration=5"
            )
        return self._predict_proba

    def to_weights(self) -> tuple[Csr, NDArray[np.float32]]:
        return self.fitted().to_weights()

    def to_liblinear(self, path: PathLike) -> None:
        self.fitted().to_liblinear(path)

    def score(self, X: Any, Y: Any, sample_weight: Any = None) -> float:
        model = self.fitted()
        return model.score(self._check_columns(X), self.encode_targets(Y), sample_weight)

    def encode_targets(self, Y: Any) -> Csr:
        """Labels that come after `fit`, in the form it was given or as a matrix; unknown ones count as missed."""
        n_labels = self.fitted().n_labels
        Y = self._form.encode(Y, n_labels)
        known: Csr = Y if Y.shape[1] == n_labels else Y[:, :n_labels]
        return known

    def explain(self, X: Any, label: Any) -> Explanation:
        return self.fitted().explain(X, label)

    def calibrate(self, X: Any, Y: Any, *, top_k: int = 50) -> Self:
        self.model_ = self.fitted().calibrate(self._check_columns(X), self.encode_targets(Y), top_k=top_k)
        return self

    def save(self, path: PathLike, *, overwrite: bool = False) -> None:
        self.fitted().save(path, overwrite=overwrite)


for _name in (
    "predict_topk",
    "predict_topk_proba",
    "decision_function",
    "to_weights",
    "to_liblinear",
    "score",
    "explain",
    "calibrate",
    "save",
):
    getattr(Estimator, _name).__doc__ = getattr(TrainedModel, _name).__doc__
