"""A small model of every family, and what one may ask of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from .inputs import Finding


def train_families(folder: Path) -> dict[str, Path]:
    """A small model of every family, with names, vocabulary and calibration among them."""
    import umpteen

    data = umpteen.make_synthetic(90, 24, 12, labels_per_row=2, features_per_row=6, seed=5)
    names = [f"name {i}" for i in range(12)]
    texts = [" ".join(f"w{j}" for j in row.indices) for row in data.X]
    labels = [[names[j] for j in row.indices] for row in data.Y]
    methods = {
        "linear": umpteen.DiSMEC(labels_per_shard=5, tfidf=True, threads=1),
        "linear32": umpteen.Centroid(weight_type="float32", labels_per_shard=7, threads=1),
        "candidates": umpteen.DiSMEC(candidate_tree=umpteen.LabelTree(max_leaf=3, branching=3), threads=1),
        "sparse": umpteen.PDSparse(threads=1),
        "forest": umpteen.FastXML(n_trees=2, max_leaf=5, threads=1),
        "pfastrexml": umpteen.PfastreXML(n_trees=2, max_leaf=5, threads=1),
        "embedding": umpteen.RXML(n_learners=2, n_clusters=2, rank=4, threads=1),
        "low-rank": umpteen.RXMLGlobal(rank=4, threads=1),
        "label-tree": umpteen.LabelTree(n_trees=2, max_leaf=3, branching=3, labels_per_shard=4, threads=1),
    }
    for name, method in methods.items():
        method.fit(data.X[:60], data.Y[:60], label_names=names).calibrate(data.X[60:], data.Y[60:])
        method.save(folder / name)
    members = [methods["linear32"], methods["forest"], methods["embedding"]]
    umpteen.Blend(members).fit(data.X[60:], data.Y[60:], folder / "blend")
    umpteen.Tagger(umpteen.DiSMEC(threads=1)).fit(texts, labels, folder / "tagger")
    umpteen.Tagger(umpteen.FastXML(n_trees=2, threads=1), umpteen.Tfidf(hashing=64)).fit(
        texts, labels, folder / "hash"
    )
    return {path.name: path for path in sorted(folder.iterdir())}


def questions(model: Any) -> tuple[Any, ...]:
    """What a model of `train_families` says: rankings, explanations and facts, as plain values."""
    import numpy as np

    with np.errstate(all="ignore"):  # damaged weights may be infinite
        return _questions(model)


def _questions(model: Any) -> tuple[Any, ...]:
    import numpy as np

    import umpteen

    answers: list[Any] = []
    method = model
    if isinstance(model, umpteen.Tagger):
        method = model.fitted()
        answers.append(model.suggest(["w1 w2 w3 w9 unknown", ""], 5))
        answers.append(model.suggest(["w4 w5"], "auto", "macro"))
        model.explain("w1 w2 w3")
    width, n_labels = method.n_features, method.n_labels
    if width > 1 << 20:
        return ()
    X = np.zeros((3, width), np.float32)
    X[0, : min(width, 8)] = 1
    X[1, -1] = 2
    labels, scores = method.predict_topk(X, 6, threads=1)
    if labels.shape != (3, 6) or ((labels < -1) | (labels >= n_labels)).any():
        raise Finding(f"labels must be ids of the model, but are {labels.tolist()}")
    for row in labels.tolist():
        given = [label for label in row if label >= 0]
        if len(set(given)) != len(given):
            raise Finding(f"a label is ranked twice: {row}")
    answers += [labels.tolist(), scores.tolist()]
    some = method.predict_topk(X, 4, include=[0, 1, 2], threads=1)[0]
    if not set(some.ravel().tolist()) <= {-1, 0, 1, 2}:
        raise Finding(f"labels 0 to 2 alone may be ranked, but are {some.tolist()}")
    method.explain(X[:1], 1)
    method.scorer.describe()
    if method.calibration is not None:
        answers.append(method.predict_topk_proba(X, 4)[1].tolist())
    if method.label_names is not None:
        answers.append(list(method.label_names))
    return tuple(answers)
