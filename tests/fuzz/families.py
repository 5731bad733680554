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


def train_grown(folder: Path) -> dict[str, Path]:
    """Models of texts with all that they may hold beside words: a choice, fields, rows kept, corrections, concepts,
    and a projection."""
    import umpteen
    from umpteen.vocabulary.concepts import Concept, Term, Vocabulary

    data = umpteen.make_synthetic(90, 24, 12, labels_per_row=2, features_per_row=6, seed=6)
    records = [{"title": f"w{row.indices[0]}", "body": " ".join(f"w{j}" for j in row.indices)} for row in data.X]
    labels = [[f"name {j}" for j in row.indices] for row in data.Y]
    concepts = [
        Concept(f"u:{j}", [Term(f"name {j}", "en", "preferred"), Term(f"nimi {j}", "fi", "preferred")], f"N{j}",
                broader=[f"u:{(j + 1) % 12}"], replaced_by="u:13" if j == 12 else "")
        for j in range(14)
    ]  # fmt: skip
    vocabulary = Vocabulary.build(concepts, "en")
    tagger = umpteen.Tagger(keep_rows=30, vocabulary=vocabulary).fit(records, labels, fields=["title^2", "body"])
    tagger.learn("w1 w2 w30", accepted=["name 1"], rejected=["name 2"], added=["name 13"])
    tagger.save(folder / "grown")
    texts = [record["body"] for record in records]
    umpteen.Tagger(umpteen.DiSMEC(threads=1), ["word", "svd:4"]).fit(texts, labels, folder / "svd")
    return {name: folder / name for name in ("grown", "svd")}


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
        if model.concepts_ is not None:
            answers.append(model.suggest(["w1 w2"], 3, language="fi"))
            answers.append([model.concepts_.describe(label) for label in range(method.n_labels)])
            answers.append(model.suggest(["w1 w2"], 3, exclude=["N1"]))
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
    if isinstance(model, umpteen.Tagger) and {"kept_rows", "corrections"} <= set(method.parts):
        model.learn(["w3 w4 w31"], labels=[["name 3"]])
        model.add_labels(["w5 w32", "w6"], [["a new one"], []])
        answers.append(model.suggest(["w5 w32"], 3))
    return tuple(answers)
