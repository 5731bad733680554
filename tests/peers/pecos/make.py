"""Writes the models of this directory and what PECOS predicts with them: run it where libpecos is installed.

python make.py
"""

import json
from pathlib import Path

import numpy as np
import scipy.sparse as sp
from pecos.xmc import Indexer, LabelEmbeddingFactory
from pecos.xmc.xlinear.model import XLinearModel

HERE = Path(__file__).parent
MODELS = {
    "l3-hinge": {"bias": 1.0, "negative_sampling_scheme": "tfn"},
    "sigmoid": {"bias": 0.5, "solver_type": "L2R_LR_DUAL"},
    "log-l2-hinge": {"bias": -1.0},
}


def pairs(row: sp.csr_matrix) -> list:
    return [[int(i), round(float(value), 7)] for i, value in zip(row.indices, row.data, strict=True)]


def make(name: str, settings: dict) -> None:
    draw = np.random.default_rng(len(name))
    X = sp.random(200, 40, 0.15, "csr", np.float32, random_state=draw)
    known = [{int(feature) * 24 // 40 for feature in row.indices[:2]} for row in X]
    Y = sp.csr_matrix([[label in labels for label in range(24)] for labels in known], dtype=np.float32)
    C = Indexer.gen(LabelEmbeddingFactory.create(Y, X), nr_splits=3, max_leaf_size=5, seed=0)
    model = XLinearModel.train(X, Y, C=C, threshold=0.02, post_processor=name, **settings)
    model.save(str(HERE / name))
    rows = X[:30]
    found = []
    for options in ({"beam_size": 100, "only_topk": 24}, {"beam_size": 10, "only_topk": 5}):
        scores = model.predict(rows, post_processor=name, **options)
        found.append([pairs(row) for row in scores])
    entries = [{"row": pairs(row), "all": whole, "five": five} for row, whole, five in zip(rows, *found, strict=True)]
    (HERE / name / "predictions.json").write_text(json.dumps(entries))


if __name__ == "__main__":
    for name, settings in MODELS.items():
        make(name, settings)
