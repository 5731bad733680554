"""How good a tagger is on rows whose labels are known."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from umpteen.data.label_lists import check_label_lists, to_label_matrix
from umpteen.data.matrix import Csr
from umpteen.data.propensity import LabelCounts
from umpteen.evaluation.calibration import Reliability, reliability
from umpteen.evaluation.decisions import evaluate_decisions
from umpteen.evaluation.metrics import Metrics, evaluate, find_hits
from umpteen.tagging.rows import TextRows, rank_rows
from umpteen.trained.model import TrainedModel


def encode_targets(model: TrainedModel, labels: Iterable[Iterable[str]]) -> Csr:
    """Y by the model's label ids; labels it does not have get columns after them."""
    ids = dict(model.ids_by_name)
    rows = [[ids.setdefault(name, len(ids)) for name in row] for row in check_label_lists(labels)]
    return to_label_matrix(rows, len(ids))


def judge(model: TrainedModel, rows: TextRows, Y: Csr, options: dict[str, Any]) -> Metrics:
    """See `Tagger.evaluate`."""
    ks = options.get("k", (1, 3, 5))
    ranked, _ = model.predict_topk(rows.X, max(ks) if isinstance(ks, Iterable) else ks)
    counts = np.zeros(Y.shape[1], np.int64)
    counts[: model.n_labels] = model.train_counts.counts
    seen = LabelCounts(counts, model.train_counts.n_rows)
    metrics = evaluate(Y, ranked, seen, **options)
    given, _ = rank_rows(model, rows)
    metrics.decisions = evaluate_decisions(Y, given, model.threshold, options.get("threads"), seen)
    return metrics


def judge_probabilities(model: TrainedModel, X: Any, Y: Csr, top_k: int) -> tuple[Reliability, Reliability]:
    """See `Tagger.reliability`."""
    model.need_calibration("reliability")
    ranked, scores = model.predict_topk(X, min(top_k, model.n_labels))
    hits = find_hits(Y, ranked)
    given = ranked >= 0
    before, after = model.scorer.to_unit(scores), model.to_unit(scores)
    return reliability(before[given], hits[given]), reliability(after[given], hits[given])
