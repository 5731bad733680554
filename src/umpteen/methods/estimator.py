"""The scikit-learn interface: parameters in the constructor, `fit`, and predictions from the trained model.

`fit` sets `model_`, a `TrainedModel`; every other call goes to that.
"""

from __future__ import annotations

import abc
from collections.abc import Sequence
from typing import Any, Self

from numpy.typing import ArrayLike

from umpteen.data.files import PathLike
from umpteen.data.matrix import Csr
from umpteen.data.preprocessing import Preprocessing
from umpteen.data.propensity import LabelCounts
from umpteen.engines.base import Engine
from umpteen.errors import NotFittedError
from umpteen.models.calibration import Calibration
from umpteen.models.explanation import Explanation
from umpteen.models.scorer import Ranking
from umpteen.params import Parameters
from umpteen.progress import Listener
from umpteen.storage.names import Names
from umpteen.trained.model import TrainedModel


class Estimator(Parameters, abc.ABC):
    """Parameters and, once fitted, the model trained with them.

    Attributes
    ----------
    model_ : TrainedModel
        The model that `fit` trained. The other attributes come from it.
    n_features_in_, n_labels_ : int
    label_names_ : sequence of str or None
    train_counts_ : LabelCounts
    calibration_ : Calibration or None
    preprocessing_ : Preprocessing
    """

    threads: int | None
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

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import ClassifierTags, InputTags, Tags, TargetTags

        return Tags(
            estimator_type="classifier",
            target_tags=TargetTags(required=True, multi_output=True, single_output=False),
            classifier_tags=ClassifierTags(multi_class=False, multi_label=True),
            input_tags=InputTags(sparse=True),
        )

    def __sklearn_is_fitted__(self) -> bool:
        return "model_" in self.__dict__  # not any name with a trailing underscore: lambda_ is a parameter

    # --- the trained model --------------------------------------------------------------------------------------

    def fitted(self) -> TrainedModel:
        """The trained model, set to this estimator's threads; raises NotFittedError before `fit`."""
        if not self.__sklearn_is_fitted__():
            raise NotFittedError(f"this {type(self).__name__} is not fitted; call fit first")
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
        return self.fitted().predict_topk(X, top_k, exclude=exclude, include=include, threads=threads, engine=engine)

    def predict_topk_proba(self, X: Any, top_k: int = 5, **options: Any) -> Ranking:
        return self.fitted().predict_topk_proba(X, top_k, **options)

    def predict(self, X: Any, top_k: int | str | None = None, threshold: float | str | None = None) -> Csr:
        return self.fitted().predict(X, top_k, threshold)

    def score(self, X: Any, Y: Any) -> float:
        return self.fitted().score(X, Y)

    def explain(self, X: Any, label: Any) -> Explanation:
        return self.fitted().explain(X, label)

    def calibrate(self, X: Any, Y: Any, *, top_k: int = 50) -> Self:
        self.model_ = self.fitted().calibrate(X, Y, top_k=top_k)
        return self

    def save(self, path: PathLike, *, overwrite: bool = False) -> None:
        self.fitted().save(path, overwrite=overwrite)


for _name in ("predict_topk", "predict_topk_proba", "predict", "score", "explain", "calibrate", "save"):
    getattr(Estimator, _name).__doc__ = getattr(TrainedModel, _name).__doc__
