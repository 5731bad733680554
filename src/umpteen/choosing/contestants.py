"""Which methods are plausible for some data."""

from __future__ import annotations

from typing import Any

import numpy as np

from umpteen.data.matrix import Csr
from umpteen.methods import method_class
from umpteen.methods.base import Method
from umpteen.methods.dismec import DiSMEC
from umpteen.methods.label_tree import LabelTree
from umpteen.methods.one_vs_rest import OneVsRest

#: From this share of values that are not 0 on, rows are dense: measurements rather than words.
_DENSE = 0.5
#: Settings for dense rows: lengths mean something, and learners that differ more pay off.
_DENSE_RXML: dict[str, Any] = {
    "normalize": False, "rank": 50, "n_neighbors": 150, "iterations": 8, "start": "random", "n_learners": 10,
}  # fmt: skip
#: Labels of a shard where memory is short.
_SMALL_SHARD = 64


def exact_methods(threads: int | None) -> tuple[Method, Method]:
    """One-vs-rest, each label solved to its optimum: the first, and one that is often quicker on very many labels."""
    return _make("dismec", threads), _make("ppdsparse", threads)


def tree_methods(threads: int | None, seed: int) -> list[Method]:
    """What is used where one-vs-rest takes too long, the best first."""
    return [_make("label-tree", threads, seed=seed, n_trees=n) for n in (3, 1)]


def smaller_methods(threads: int | None, seed: int) -> list[Method]:
    """What is used where memory is short, the best first: smaller shards and, unless they are given, fewer threads.
    One-vs-rest stays as good as it is; it only takes longer."""
    small = [_make(name, threads or 1, labels_per_shard=_SMALL_SHARD) for name in ("dismec", "ppdsparse")]
    return [*small, _make("label-tree", threads or 1, seed=seed)]


def challengers(exact: Method, X: Csr, threads: int | None, seed: int, *, tune: bool) -> list[Method]:
    """What may beat exact one-vs-rest; with `tune` in more settings."""
    dense = X.nnz >= _DENSE * X.shape[0] * X.shape[1]
    unit = {} if dense else {"normalize": True}
    named: list[tuple[str, dict[str, Any]]] = [
        *_weaker_loss(exact, 0.3),
        ("fastxml", unit),
        ("rxml", {}),
    ]
    if unit and _lengths_differ(X):
        named.append(("fastxml", {}))
    if dense:
        named.append(("rxml", _DENSE_RXML))
    if tune:
        named += [*_weaker_loss(exact, 0.1), ("pfastrexml", unit)]
        if X.nnz and X.data.min() >= 0:
            root = {"power": 0.5}
            named += [(exact.name, root), ("rxml", root), ("rxml", {"tfidf": True})]
            named += [(name, params | root) for name, params in _weaker_loss(exact, 0.3)]
            named += [("label-tree", {"n_trees": 3, "power": 0.5})]
    return [*tree_methods(threads, seed), *(_make(name, threads, seed=seed, **params) for name, params in named)]


def _lengths_differ(X: Csr) -> bool:
    """Whether rows have different lengths, so that it matters whether they are divided by them."""
    squares = np.add.reduceat(np.append(X.data.astype(np.float64) ** 2, 0), X.indptr[:-1])[np.diff(X.indptr) > 0]
    return bool(len(squares) and squares.max() > 1.01 * squares.min())


def _weaker_loss(exact: Method, C: float) -> list[tuple[str, dict[str, Any]]]:
    """One-vs-rest that fits its rows less closely; PPDSparse knows this as a larger λ."""
    return [(DiSMEC.name, {"C": C})] if isinstance(exact, DiSMEC) else []


def _make(name: str, threads: int | None, seed: int = 0, **params: Any) -> Method:
    cls = method_class(name)
    if "seed" in cls.param_defaults():
        params["seed"] = seed
    made: Method = cls(**params, threads=threads)
    return made


def preference(method: Method) -> int:
    """Which of two that rank as well is preferred: one-vs-rest has plain reasons and learns new labels, a tree is
    quick, others are larger and slower to answer."""
    return 0 if isinstance(method, OneVsRest) else 1 if isinstance(method, LabelTree) else 2
