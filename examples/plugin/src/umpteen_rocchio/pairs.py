"""A format of its own: a line is `labels<TAB>features`, each a list of ids separated by blanks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import scipy.sparse as sp

import umpteen


def read_pairs(path) -> umpteen.Dataset:
    lines = [line.split("\t") for line in Path(path).read_text(encoding="utf-8").splitlines()]
    return umpteen.Dataset(_matrix([line[1] for line in lines]), _matrix([line[0] for line in lines]))


def _matrix(texts: list[str]) -> sp.csr_matrix:
    ids = [[int(word) for word in text.split()] for text in texts]
    indptr = np.append(0, np.cumsum([len(row) for row in ids]))
    indices = np.array([i for row in ids for i in row], np.int32)
    return sp.csr_matrix((np.ones(len(indices), np.float32), indices, indptr))
