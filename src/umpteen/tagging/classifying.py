"""What scikit-learn's tools ask of a classifier, of a tagger: classes, scores and probabilities of all labels,
predictions in the form that labels were given in, and a score."""

from __future__ import annotations

import abc
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from umpteen.data.label_lists import ids_to_matrix
from umpteen.data.matrix import Csr
from umpteen.data.targets import LabelLists, TargetForm, is_array
from umpteen.evaluation.metrics import find_hits
from umpteen.methods.routing import RoutesMetadata
from umpteen.models.scorer import Ranking
from umpteen.tagging.judging import encode_targets
from umpteen.tagging.parameters import TaggerParameters
from umpteen.tagging.targets import check_rows, is_matrix, read_labels
from umpteen.trained.dense import share_out
from umpteen.trained.model import TrainedModel

if TYPE_CHECKING:
    from umpteen.tagging.concepts import LabelConcepts
    from umpteen.tagging.rows import TextRows


class Classifying(TaggerParameters, RoutesMetadata, abc.ABC):
    """A tagger as a classifier by scikit-learn's rules."""

    fit_metadata = ("sample_weight", "fields")

    #: The form of the labels given to `fit`; None for lists of names.
    _form: TargetForm | None = None

    @abc.abstractmethod
    def fitted(self) -> TrainedModel: ...

    @abc.abstractmethod
    def vectorize(self, texts: Any, *, threads: int | None = None) -> TextRows: ...

    @abc.abstractmethod
    def rank(self, texts: Any, *how: Any, **more: Any) -> Ranking: ...

    @property
    @abc.abstractmethod
    def concepts_(self) -> LabelConcepts | None: ...

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import ClassifierTags

        tags = super().__sklearn_tags__()
        if self._form is not None:  # not before: scikit-learn takes no lists of names for a classifier's labels
            tags.estimator_type, tags.classifier_tags = "classifier", ClassifierTags(multi_label=True)
        return tags

    @property
    def _names(self) -> Sequence[str]:
        names = self.fitted().label_names
        assert names is not None
        return names

    @property
    def _classes(self) -> NDArray[Any] | None:
        """The classes, if each text has one and no label has joined the model since."""
        form = self._form
        if form is None or form.kind != "classes" or self.fitted().n_labels != len(form.classes):
            return None
        return form.classes

    @property
    def classes_(self) -> Any:
        """Label names by id, or the ids of columns that had no names; with one class for each text, the classes."""
        if self._form is None:
            return self._names
        if self._classes is not None:
            return self._classes
        names = list(self._names)
        return np.arange(len(names)) if names == [str(i) for i in range(len(names))] else np.array(names)

    def predict_topk(self, texts: Any, top_k: int = 5, **options: Any) -> Ranking:
        """The best labels of each text, by id, and their scores; see `TrainedModel.predict_topk`. `suggest` and
        `rank` give those that are likely enough."""
        return self.fitted().predict_topk(self.vectorize(texts).X, top_k, **options)

    def predict_topk_proba(self, texts: Any, top_k: int = 5, **options: Any) -> Ranking:
        """The same with probabilities; see `TrainedModel.predict_topk_proba`."""
        return self.fitted().predict_topk_proba(self.vectorize(texts).X, top_k, **options)

    def decision_function(self, texts: Any) -> NDArray[np.float32]:
        """The scores of all labels, n_texts x n_labels, where they take at most half a gigabyte; from 0 on, labels
        would be given without a calibration. Of two classes, the second's less the first's."""
        scores = self.fitted().decision_function(self.vectorize(texts).X)
        classes = self._classes
        return scores[:, 1] - scores[:, 0] if classes is not None and len(classes) == 2 else scores

    @property
    def predict_proba(self) -> Callable[[Any], NDArray[np.float32]]:
        """The probabilities of all labels, n_texts x n_labels, where they take at most half a gigabyte. Not there
        without a calibration, so that scikit-learn's tools take `decision_function`."""
        model = getattr(self, "model_", None)
        if self.calibration == 0 if model is None else model.calibration is None:
            raise AttributeError("this Tagger has no probabilities; fit it with a calibration, such as calibration=5")
        return self._predict_proba

    def _predict_proba(self, texts: Any) -> NDArray[np.float32]:
        found = self.fitted().predict_proba(self.vectorize(texts).X)
        return found if self._classes is None else share_out(found)

    _predict_proba.__name__ = "predict_proba"  # by which StackingClassifier calls it again

    def predict(self, texts: Any, top_k: int | str | None = None, threshold: float | str | None = None) -> Any:
        """The labels to give each text, in the form that `fit` was given: lists of names, a matrix, or one class.
        `suggest` says which labels those are; a vocabulary's concepts, and labels added later, come in lists."""
        model, form, classes = self.fitted(), self._form, self._classes
        texts = texts if is_array(texts) or isinstance(texts, str) else list(texts)
        if classes is not None:
            best = model.predict_topk(self.vectorize(texts).X, 1)[0][:, 0]
            found: Any = classes[np.where(best >= 0, best, np.argmax(model.train_counts.counts))]
            return found
        labels, _ = self.rank(texts, top_k, threshold)
        if form is None or form.kind == "classes" or self.concepts_ is not None:
            return LabelLists([self._names[label] for label in row if label >= 0] for row in labels.tolist())
        return form.decode(ids_to_matrix(labels, model.n_labels))

    def score(self, texts: Any, labels: Any, sample_weight: Any = None) -> float:
        """P@1 as a fraction, for scikit-learn's searches: the share of texts, or of their summed weights, whose best
        label is one they have. Labels the model has never seen count as missed."""
        best, _ = self.fitted().predict_topk(self.vectorize(texts).X, 1)
        Y = self._encode(labels)
        check_rows(len(best), Y.shape[0])
        return float(np.average(find_hits(Y, best)[:, 0], weights=sample_weight))

    def encode_targets(self, labels: Any) -> Csr:
        """Labels that come after `fit` by the model's ids; those it does not have get columns after its own."""
        return self._encode(labels)

    def _encode(self, labels: Any) -> Csr:
        model, form, concepts = self.fitted(), self._form, self.concepts_
        if form is not None and concepts is None and is_matrix(labels):
            return form.encode(labels, model.n_labels)
        _, labels = read_labels(labels)
        if concepts is not None:
            labels = concepts.translate(model, labels)
        return encode_targets(model, labels)
