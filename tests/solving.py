"""What the tests of one-vs-rest solvers share: a kernel on plain matrices, and LIBLINEAR as the yardstick."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from umpteen.data.matrix import as_csr, offsets
from umpteen.data.preprocessing import Preprocessing


def solve_by(kernel, kind, X, Y, *, C=1.0, bias=1.0, eps=0.01, prune=0.0, cost=None, threads=2, max_rounds=200):
    """A kernel on matrices, `kind` being its own switch: (W dense, b, everything it says)."""
    X, columns = as_csr(X, "X"), sp.csc_matrix(Y)
    cost = np.ones(columns.shape[1], np.float32) if cost is None else np.asarray(cost, np.float32)
    out = kernel(
        offsets(X), X.indices, X.data, X.shape[1], columns.indptr.astype(np.int64), columns.indices.astype(np.int32),
        cost, C, bias, eps, prune, max_rounds, kind, threads,
    )  # fmt: skip
    W = sp.csr_matrix((out["data"], out["indices"], out["indptr"]), (columns.shape[1], X.shape[1])).toarray()
    return W.astype(np.float64), out["bias"] / (bias or 1.0), out


def unit(X):
    return Preprocessing(normalize=True).transform(X)


def length(gradient):
    return float(np.hypot(np.linalg.norm(gradient[0]), gradient[1]))


def stopping_bound(gradient, X, y, eps, C, bias, cost=1.0):
    """LIBLINEAR's rule: how long the gradient may be at the end."""
    at_zero = length(gradient(X, y, np.zeros(X.shape[1]), 0.0, C, bias, cost))
    return eps * max(min(y.sum(), (~y).sum()), 1) / len(y) * at_zero


def liblinear_objective(X, y, solver, objective, C=1.0):
    """What LIBLINEAR's own primal solver reaches at a tight tolerance, in our objective."""
    from liblinear.liblinearutil import parameter, problem, train

    target = np.where(y, 1, -1)
    options = parameter(f"-s {solver} -B 1 -c {C} -e 0.00001 -q")
    model = train(problem(target, sp.csr_matrix(X, dtype=np.float64)), options)
    w, b = model.get_decfun()
    sign = model.get_labels()[0]
    return objective(X, y, sign * np.array(w), sign * b, C, 1.0)


def check_finite_differences(objective, gradient, data, atol):
    """Of a twin, so that it may judge the kernel."""
    rng = np.random.default_rng(0)
    X, y = unit(data.X), data.Y[:, 3].toarray().ravel() > 0
    w, b = rng.normal(size=X.shape[1]), 0.3
    by_weight, by_bias = gradient(X, y, w, b, 0.7, 1.5, 2.0)

    def rise(dw, db):
        up = objective(X, y, w + dw, b + db, 0.7, 1.5, 2.0)
        return (up - objective(X, y, w - dw, b - db, 0.7, 1.5, 2.0)) / 2e-6

    for f in rng.permutation(X.shape[1])[:10]:
        step = np.zeros_like(w)
        step[f] = 1e-6
        assert rise(step, 0.0) == pytest.approx(by_weight[f], abs=atol)
    assert rise(np.zeros_like(w), 1e-6) == pytest.approx(by_bias, abs=atol)
