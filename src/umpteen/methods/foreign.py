"""Any classifier of scikit-learn in place of a method: for few labels, to compare with, in memory only."""

from __future__ import annotations

import warnings
from typing import Any, ClassVar

import numpy as np

from umpteen.data.files import PathLike
from umpteen.data.matrix import Csr
from umpteen.engines.base import Resources, Task
from umpteen.errors import DataError, ParamError
from umpteen.memory import Estimate
from umpteen.methods.base import CountsRowsOnce
from umpteen.methods.training_data import TrainingData
from umpteen.models.foreign import ForeignModel, LivePart, refuse_to_store
from umpteen.models.scorer import Scorer
from umpteen.storage.saving import shard_name
from umpteen.storage.store import Part

#: With more labels it would take hours; a matrix of all rows and labels is made, too.
MOST_LABELS = 2000


def is_classifier(given: Any) -> bool:
    """Whether an object, not a class, is fitted to rows by scikit-learn's rules and ranks classes."""
    return (
        not isinstance(given, type)
        and callable(getattr(given, "fit", None))
        and any(hasattr(given, name) for name in ("decision_function", "predict_proba"))
    )


class ForeignClassifier(CountsRowsOnce):
    """A classifier of scikit-learn with the interface of a method: label by label (`OneVsRestClassifier`), unless it
    takes several labels itself, as forests and nearest neighbours do.

    Parameters
    ----------
    classifier
        Has `decision_function` or `predict_proba`. It is copied before it is fitted.
    """

    name: ClassVar[str] = "sklearn"
    scorer_class: ClassVar[type[Scorer]] = ForeignModel
    memory_advice: ClassVar[str] = "use fewer rows or fewer labels, or one of umpteen's own methods"

    tfidf = False
    normalize = False
    engine = "local"
    threads = None

    def __init__(self, classifier: Any) -> None:
        self.classifier = classifier

    def validate(self) -> None:
        if not is_classifier(self.classifier):
            raise ParamError(
                f"classifier must have fit, and decision_function or predict_proba, but is {self.classifier!r:.200}"
            )

    def check_stored(self, model_dir: PathLike | None) -> None:
        if model_dir is not None:
            refuse_to_store(self.classifier)

    def facts(self) -> dict[str, Any]:
        return {"classifier": repr(self.classifier)}

    def plan(self, data: TrainingData) -> list[Task]:
        if data.Y.shape[1] > MOST_LABELS:
            raise DataError(
                f"a classifier of scikit-learn is trained with at most {MOST_LABELS} labels, but there are "
                f"{data.Y.shape[1]}; umpteen's own methods take as many as you like"
            )
        return [Task(shard_name(0), None, 1.0)]

    def train_shard(self, data: TrainingData, task: Task, resources: Resources) -> Part:
        from sklearn.base import clone
        from sklearn.multiclass import OneVsRestClassifier

        own = clone(self.classifier)
        if not _takes_many_labels(own):
            own = OneVsRestClassifier(own)
        Y = data.Y.astype(np.int8).toarray()
        with warnings.catch_warnings():  # labels that no row has, or all have
            warnings.filterwarnings("ignore", message="Label .* is present in all training examples")
            own.fit(data.X, Y[:, 0] if Y.shape[1] == 1 else Y)
        return LivePart(own, np.asarray(Y.any(axis=0)))

    def estimate(self, X: Csr, Y: Csr) -> Estimate:
        return Estimate(16 * Y.shape[0] * Y.shape[1] + 12 * X.nnz, 0)


def _takes_many_labels(classifier: Any) -> bool:
    from sklearn.utils import get_tags

    tags = get_tags(classifier)
    return bool(tags.classifier_tags is not None and tags.classifier_tags.multi_label)
