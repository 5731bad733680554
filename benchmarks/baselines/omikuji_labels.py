"""omikuji with its defaults; run by a Python that has it: omikuji_labels.py FOLDER THREADS TOP_K.

FOLDER has train.npz and test.npz, rows of numbers, and labels.npz, those of the first; found.npy is written.
"""

import sys
from pathlib import Path

import numpy as np
import omikuji
import scipy.sparse as sp


def main(folder: Path, threads: int, top_k: int) -> None:
    X, Y, test = (sp.load_npz(folder / f"{name}.npz").tocsr() for name in ("train", "labels", "test"))
    with (folder / "train.txt").open("w") as out:
        print(X.shape[0], X.shape[1], Y.shape[1], file=out)
        for i in range(X.shape[0]):
            labels = ",".join(map(str, Y.indices[Y.indptr[i] : Y.indptr[i + 1]]))
            print(labels, *(f"{j}:{value:.6f}" for j, value in pairs(X, i)), file=out)
    params = omikuji.Model.default_hyper_param()
    model = omikuji.Model.train_on_data(str(folder / "train.txt"), params, n_threads=threads)
    found = np.full((test.shape[0], top_k), -1, np.int32)
    for i in range(test.shape[0]):
        ranked = [label for label, _ in model.predict(list(pairs(test, i)), top_k=top_k)]
        found[i, : len(ranked)] = ranked
    np.save(folder / "found.npy", found)


def pairs(X: sp.csr_matrix, i: int) -> list[tuple[int, float]]:
    some = slice(X.indptr[i], X.indptr[i + 1])
    return list(zip(X.indices[some].tolist(), X.data[some].tolist(), strict=True))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
