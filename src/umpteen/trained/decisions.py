"""Which labels a row gets: those that are likely enough, so many, or as many as maximise the expected F1.

All of umpteen decides here: `predict`, `suggest`, files, the server and the page.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from umpteen.errors import ParamError
from umpteen.models.calibration import Calibration, count_labels_to_give
from umpteen.models.scorer import Ranking, Scorer
from umpteen.nearest import did_you_mean
from umpteen.params import check_count, check_share

#: How far down a ranking to look if no number of labels is asked for: so far first, and so far at most.
_FIRST_LABELS = 50
_MOST_LABELS = 1250
#: The least value of a label that is given by a model without calibration, if its method has one.
_UNCALIBRATED = 0.5
#: The entry of a manifest that is false where it has none: a row then gets as many labels as training rows had.
HAS_BOUNDARY = "has_boundary"


@dataclass(frozen=True, eq=False)
class Decider:
    """Decides by probabilities if the model is calibrated, else by scores mapped to [0, 1]."""

    scorer: Scorer
    calibration: Calibration | None
    n_labels: int
    #: How many labels rows get where scores do not say it; None where they do.
    usual: int | None = None

    def decide(
        self,
        predict: Callable[[int], Ranking],
        top_k: int | str | None,
        threshold: float | str | None,
        *,
        raw: bool = False,
    ) -> Ranking:
        """See `TrainedModel.rank`; `predict` ranks so many labels of each row."""
        auto = top_k == "auto"
        cut = self.check(top_k, threshold)
        if cut is None and top_k is None:
            cut = self.threshold if self.calibration is None else "micro"
        if cut is None and top_k is None:
            assert self.usual is not None
            labels, scores = predict(self.usual)
        elif isinstance(top_k, str) or top_k is None:
            labels, scores = self._look_down(predict, None if auto else cut)
        else:
            labels, scores = predict(top_k)
        values = self.to_unit(scores)
        if auto:
            given = count_labels_to_give(values)
            labels = np.where(np.arange(labels.shape[1]) < given[:, None], labels, -1)
        if cut is not None:
            labels = np.where(self._is_given(labels, scores, cut), labels, -1)
        if cut == "macro":  # thresholds differ, so a label that is given may come after one that is not
            order = np.arange(len(labels))[:, None], np.argsort(labels < 0, axis=1, kind="stable")
            labels, scores, values = labels[order], scores[order], values[order]
        if raw:
            values = scores
        if top_k is None and labels.size:
            used = max(1, int((labels >= 0).sum(axis=1).max()))
            labels, values = labels[:, :used], values[:, :used]
        padding = -np.inf if raw else 0
        return labels.astype(np.int32, copy=False), np.where(labels >= 0, values, padding).astype(np.float32)

    def check(self, top_k: int | str | None, threshold: float | str | None) -> float | str | None:
        """Refuses limits that there cannot be, which costs nothing; returns the threshold."""
        if top_k == "auto":
            self.need_calibration('top_k="auto"')
        elif isinstance(top_k, str):
            raise ParamError(
                f'top_k must be a number, "auto" or None, but is {top_k!r}{did_you_mean(top_k, ["auto"])}'
            )
        elif top_k is not None:
            check_count("top_k", top_k)
        return self._check_threshold(threshold)

    def _look_down(self, predict: Callable[[int], Ranking], cut: float | str | None) -> Ranking:
        """A ranking that is wide enough for every row's labels above a cut, if there is one."""
        width, most = min(_FIRST_LABELS, self.n_labels), min(_MOST_LABELS, self.n_labels)
        labels, scores = predict(width)
        while cut is not None and width < most and self._may_go_on(labels[:, -1], scores[:, -1], cut):
            width = min(5 * width, most)  # some row has more labels than were looked at
            labels, scores = predict(width)
        return labels, scores

    def _may_go_on(self, labels: NDArray[np.int32], scores: NDArray[np.float32], cut: float | str) -> bool:
        """Whether a label behind the last one of a row may be given: the thresholds of others may be lower."""
        least = self.calibration.least_threshold if cut == "macro" and self.calibration is not None else None
        if least is None:
            return bool(self._is_given(labels, scores, cut).any())
        return bool(((self.to_unit(scores) >= least) & (labels >= 0)).any())

    def to_unit(self, scores: NDArray[np.float32]) -> NDArray[np.float32]:
        if self.calibration is not None:
            return self.calibration.to_probabilities(scores)
        return self.scorer.to_unit(scores)

    @property
    def threshold(self) -> float | None:
        """The least value of a label that is given, unless another is asked for; None where a number decides."""
        if self.calibration is not None:
            return self.calibration.threshold
        return _UNCALIBRATED if self.usual is None else None

    def need_calibration(self, what: str) -> None:
        if self.calibration is None:
            raise ParamError(f"{what} needs a calibrated model, but this one was trained without held-out rows")

    def _is_given(
        self, labels: NDArray[np.int32], scores: NDArray[np.float32], cut: float | str
    ) -> NDArray[np.bool_]:
        given: NDArray[np.bool_] = self.to_unit(scores) >= self._least(labels, cut)
        return given & (labels >= 0)

    def _check_threshold(self, threshold: Any) -> float | str | None:
        if threshold is None:
            return None
        if isinstance(threshold, str):
            if threshold not in ("micro", "macro"):
                hint = did_you_mean(threshold, ("micro", "macro"))
                raise ParamError(f'threshold must be a probability, "micro" or "macro", but is {threshold!r}{hint}')
            self.need_calibration(f"threshold={threshold!r}")
            return threshold
        return check_share("threshold", threshold)

    def _least(self, labels: NDArray[np.int32], cut: float | str) -> Any:
        """The lowest probability at which each label is given."""
        if not isinstance(cut, str):
            return cut
        assert self.calibration is not None
        return self.calibration.thresholds(labels, cut == "macro")
