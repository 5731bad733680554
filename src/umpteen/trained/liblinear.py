"""Linear models as LIBLINEAR's model files: lines of text, a number for each feature and class.

The solver is MCSVM_CS, the only one whose files have a column for each class even when there are two of them. The
last line has what is added to the scores, as weights of a feature that is 1 in all rows. Zeros are written too, as
there is no other way.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from umpteen.data.files import PathLike, atomic_path
from umpteen.data.matrix import Csr
from umpteen.errors import ParamError

_MOST_WEIGHTS = 2**31 - 1  # LIBLINEAR counts them in 32 bits


def write_liblinear(path: PathLike, W: Csr, bias: NDArray[np.float32], labels: NDArray[np.int64]) -> None:
    """Writes the weights of these labels; see `TrainedModel.to_liblinear`."""
    n_features = W.shape[1]
    n_weights = (n_features + 1) * len(labels)
    if not len(labels):
        raise ParamError("a LIBLINEAR model must have a label, but none of this model's is ever ranked")
    if n_weights > _MOST_WEIGHTS:
        raise ParamError(
            f"LIBLINEAR holds at most {_MOST_WEIGHTS} weights, zeros included, but {n_features} features and "
            f"{len(labels)} labels make {n_weights}; to_weights() gives them as a sparse matrix"
        )
    by_feature = W[labels].tocsc()
    ends = by_feature.indptr.tolist()
    with atomic_path(path) as temporary, temporary.open("w", encoding="ascii") as file:
        file.write(f"solver_type MCSVM_CS\nnr_class {len(labels)}\nlabel {' '.join(map(str, labels.tolist()))}\n")
        file.write(f"nr_feature {n_features}\nbias 1\nw\n")
        for begin, end in pairwise(ends):
            cells = ["0"] * len(labels)
            for label, weight in zip(by_feature.indices[begin:end], by_feature.data[begin:end], strict=True):
                cells[label] = f"{weight:.9g}"  # as many digits as 32 bits have
            file.write(f"{' '.join(cells)} \n")
        file.write(f"{' '.join(f'{value:.9g}' for value in bias[labels])} \n")
