"""Writes the models of this directory and what omikuji predicts with them: run it where omikuji is installed.

python make.py
"""

import json
import random
from pathlib import Path

import omikuji

HERE = Path(__file__).parent
#: Features, and omikuji's settings: few features have dense weights, many have sparse ones.
MODELS = {
    "dense": (40, {"n_trees": 2}),
    "sparse": (500, {"n_trees": 2}),
    "logistic": (500, {"n_trees": 1, "linear_loss_type": 1}),
    "wide": (40, {"n_trees": 1, "cluster_k": 8, "cluster_balanced": False}),
}


def make(name: str, n_features: int, settings: dict) -> None:
    draw = random.Random(name)
    rows = []
    for _ in range(200):
        features = sorted(draw.sample(range(n_features), draw.randint(4, 9)))
        labels = sorted({feature * 24 // n_features for feature in features[:2]})
        rows.append((labels, [(feature, round(draw.random(), 3)) for feature in features]))
    lines = [f"{len(rows)} {n_features} 24"]
    lines += [",".join(map(str, labels)) + " " + " ".join(f"{f}:{v}" for f, v in row) for labels, row in rows]
    (HERE / "train.txt").write_text("\n".join(lines) + "\n")
    chosen = omikuji.Model.default_hyper_param()
    chosen.min_branch_size = 6
    for setting, value in settings.items():
        setattr(chosen, setting, value)
    model = omikuji.Model.train_on_data(str(HERE / "train.txt"), chosen, n_threads=1)
    (HERE / "train.txt").unlink()
    model.save(str(HERE / name))
    known = [row for _, row in rows[:30]]
    found = [{"row": row, "all": model.predict(row, 100, 24), "five": model.predict(row, 10, 5)} for row in known]
    (HERE / name / "predictions.json").write_text(json.dumps(found))


if __name__ == "__main__":
    for name, (n_features, settings) in MODELS.items():
        make(name, n_features, settings)
