"""How far the scores of new labels can be trusted, where they are trained against fewer rows than the model was.

A label gives too high scores to rows that are like none of its negatives; the more negatives, the fewer such rows.
How fast scores of unseen rows fall is seen on rows kept: new labels are trained against a quarter and against a half
of them, and score the other half. Each doubling multiplies the excess over -1, to which rows without a label are
trained, by about the same number, so the excess after the doublings that lead to all training rows is known too:

    trust = (excess after a half / excess after a quarter) ^ log2(training rows / rows kept)

Weights and biases are then drawn towards a score of -1 everywhere by it, which keeps the order within a label. One
with n rows is drawn by

    trust ^ ((1.5 n - 1) / (n + 1))

Rows kept have no new label, so they show less of the texts that come near to one than new texts do: hence more than
trust itself where n is large. A label of a single row is held back by having no other, so by a fourth of it. The
numbers were found on held-out training rows of four sets, where labels of 1, 5 and 20 rows took the places of old
labels and got probabilities that were too high.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from umpteen import _native
from umpteen.data.matrix import Csr
from umpteen.engines.base import Resources
from umpteen.methods.kept_rows import KeptRows
from umpteen.methods.negatives import Background, gather_negatives, join_negatives
from umpteen.methods.training_data import TrainingData
from umpteen.threads import resolve_threads
from umpteen.trained.model import TrainedModel

if TYPE_CHECKING:
    from umpteen.methods.one_vs_rest import OneVsRest

#: Fewer rows kept than this say nothing.
FEWEST_ROWS = 200
#: At most so many new labels are tried, and rows kept ranked.
_MOST_LABELS, _MOST_JUDGED = 256, 2000
#: The power of trust that a label of many rows is drawn by.
_FULL = 1.5
#: Less trust than this would hide a label.
_LEAST = 0.5


def find_trust(
    method: OneVsRest, model: TrainedModel, X: Csr, Y: Csr, kind: str, background: Background | None, kept: KeptRows
) -> float:
    """What the excess of new labels' scores over -1 is multiplied by, from 0.5 to 1."""
    n_kept, n_train = kept.X.shape[0], model.train_counts.n_rows
    if n_kept < FEWEST_ROWS or n_kept >= n_train:
        return 1.0
    rows = np.random.default_rng(0).permutation(n_kept)
    judged = model.preprocessing.transform(kept.X[np.sort(rows[n_kept // 2 :][:_MOST_JUDGED])])
    tried = np.unique(np.linspace(0, Y.shape[1] - 1, _MOST_LABELS).astype(np.int32))
    excess = []
    for n in (n_kept // 4, n_kept // 2):
        some = np.sort(rows[:n])
        others = gather_negatives(model, X, Y, kind, background, KeptRows(kept.X[some], kept.Y[some]))
        data = join_negatives(model, X, Y, others, method.threads)
        trial = type(method)(**method.get_params())
        trial.plan(data, model.n_labels)  # may settle parameters
        labels = tried + np.int32(model.n_labels)
        trained = trial.train_labels(data, labels, Resources(resolve_threads(method.threads), _native.CancelToken()))
        excess.append(_measure_excess(judged, trained.W, trained.bias))
    few, more = excess
    if not 0 < more < few:
        return 1.0
    return max(float((more / few) ** np.log2(n_train / n_kept)), _LEAST)


def draw_to_rest(data: TrainingData, labels: NDArray[np.int32], W: Any, bias: NDArray[np.float32]) -> tuple[Any, Any]:
    """The weights and biases of labels, drawn towards a score of -1 by the trust in them."""
    n_rows = np.maximum(np.diff(data.rows_of.indptr)[labels], 1)
    trust = (data.trust ** ((_FULL * n_rows - 1) / (n_rows + 1))).astype(np.float32)
    return sp.csr_matrix(sp.diags(trust) @ W, dtype=np.float32), (bias + 1) * trust - 1


def _measure_excess(X: Csr, W: Any, bias: Any) -> float:
    """The root of the mean square of what scores have above -1."""
    scores = np.asarray((X @ W.T).todense(), np.float64) + np.asarray(bias, np.float64)
    return float(np.sqrt((np.maximum(scores + 1, 0) ** 2).mean()))
