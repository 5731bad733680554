"""The dual solver of DiSMEC and PPDSparse: how to call it, where it starts, how much memory it needs.

    min over α   τ/2 (|w|² + b²) - Σ_i α_i [+ 1/2 Σ_i α_i²]   with   w = soft(Σ_i α_i s_i x_i, λ) / τ

PPDSparse's page derives it; without λ, and with τ = 1 / (2C), it is DiSMEC's squared hinge. It can start from any α,
so a solution for other settings or fewer rows is a good start.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from umpteen import _native
from umpteen.data.matrix import Csr, make_csr, offsets
from umpteen.methods.one_vs_rest import PANEL_LABELS, OneVsRest
from umpteen.methods.training_data import TrainingData


class Alphas:
    """Dual variables of a method that solves the dual: the start and the solution.

    Parameters
    ----------
    start
        Labels x rows; None starts from zero.
    """

    def __init__(self, start: Csr | None = None) -> None:
        self.start = start
        self._found: list[tuple[NDArray[np.int32], Any]] = []

    def on(self, rows: NDArray[np.int64], n_rows: int) -> Csr | None:
        """The solution, if there is one, for a data set of `n_rows` rows in which the training rows are `rows`,
        rising."""
        if not self._found:
            return None
        found = sp.vstack([sp.csr_matrix(alphas, (len(ids), len(rows))) for ids, alphas in self._found], format="csr")
        found = found[np.argsort(np.concatenate([ids for ids, _ in self._found]))]
        return make_csr(found.data, rows[found.indices].astype(np.int32), found.indptr, (found.shape[0], n_rows))

    def keep(self, labels: NDArray[np.int32], alphas: Any) -> None:
        self._found.append((labels, alphas))


class DualOneVsRest(OneVsRest):
    """A one-vs-rest method that can solve the dual."""

    #: Set before training to give the solver a start and to keep its solution.
    alphas: Alphas | None = None

    def start_of(self, labels: NDArray[np.int32]) -> dict[str, Any]:
        """Arguments of `solve_dual` for the start of these labels."""
        if self.alphas is None:
            return {}
        start = self.alphas.start[labels] if self.alphas.start is not None else None
        given = (start.data, start.indices, start.indptr.astype(np.int64)) if start is not None else None
        return {"start": given, "keep_alphas": True}

    def keep_alphas(self, labels: NDArray[np.int32], solved: dict[str, Any]) -> None:
        if self.alphas is not None:
            self.alphas.keep(labels, solved["alphas"])


def solve_dual(
    data: TrainingData,
    labels: NDArray[np.int32],
    positive_cost: NDArray[np.float32],
    *,
    squared: bool,
    lambda_: float,
    tau: float,
    eps: float,
    prune: float,
    max_rounds: int,
    threads: int,
    token: _native.CancelToken | None,
    samples: int = 0,
    sample_error: float = 0.0,
    cutoff: float = 0.0,
    seed: int = 0,
    start: Any = None,
    keep_alphas: bool = False,
) -> dict[str, Any]:
    """Runs the kernel for some labels, whose own rows count `positive_cost` times."""
    rows_of = data.rows_of[:, labels]
    alphas, rows, indptr = start if start is not None else (None, None, None)
    return _native.solve_ppd(
        offsets(data.X),
        data.X.indices,
        data.X.data,
        data.X.shape[1],
        rows_of.indptr.astype(np.int64),
        rows_of.indices.astype(np.int32),
        labels.astype(np.int32),
        positive_cost,
        squared=squared,
        lambda_=lambda_,
        tau=tau,
        bias=data.bias,
        eps=eps,
        prune=prune,
        max_rounds=max_rounds,
        samples=samples,
        cutoff=cutoff,
        seed=seed,
        start_indptr=indptr,
        start_rows=rows,
        start_alphas=alphas,
        keep_alphas=keep_alphas,
        threads=threads,
        token=token,
        row_cost=data.row_costs,
        sample_error=sample_error,
    )


#: Unused room in a thread's growing lists: without it the dense rows of Mediamill took 1 % more than estimated.
_SPARE = 2 << 20


def bound_dual_memory(X: Csr, Y: Csr, threads: int) -> int:
    """The most memory the kernel needs beside X: X in another order of rows, and by columns; a panel of weights; v,
    hits and active rows of each waiting label; the active rows of the label at hand, and the rows it scores again."""
    n_rows, n_features = X.shape
    ordered = X.nnz * 8 + n_rows * 28 + Y.nnz * 4
    columns = X.nnz * 8 + n_features * 20 + n_rows * 4
    return threads * (PANEL_LABELS * (12 * n_features + 24 * n_rows) + 26 * n_rows + _SPARE) + ordered + columns
