"""From raw text to metrics: several methods on corpora of texts, beside the same data as numbers made by others.

    python benchmarks/text.py [StackExchange-Cooking | Debian-Tags | Nuclei-Tags | Tate-Subjects]

The numbers are those of the data sets' own train.txt.xz. Settings of our features make the same of the texts
("words"), and pairs of words are tried beside them.
"""

from __future__ import annotations

import sys
import tempfile
import time
from functools import partial
from pathlib import Path

from common import at_k, data_root, read, run_parts, table

import umpteen
from umpteen.methods import method_class
from umpteen.storage.store import ModelReader

SETS = ("StackExchange-Cooking", "Debian-Tags", "Nuclei-Tags", "Tate-Subjects")
METHODS = {"dismec": {}, "ppdsparse": {"lambda_": 0.05}, "fastxml": {"n_trees": 20, "normalize": True}}
#: A word may hold signs between its letters, and end in some: "e.g", "non-stick", "c++".
WORDS = {"sublinear_tf": True, "max_df": 0.7, "token_pattern": r"[^\W_]+(?:[-.+'#][^\W_]+)*[+#]*"}
FEATURES = {"words": WORDS, "words and pairs": WORDS | {"ngram_range": (1, 2), "min_df": 2}}


def measure(name: str) -> str:
    folder = data_root() / name
    train, test = (umpteen.read_corpus(folder / f"{part}.jsonl.xz") for part in ("train", "test"))
    numbers = read(name)
    rows = []
    for method, params in METHODS.items():
        plain = method_class(method)(threads=2, **params)
        started = time.perf_counter()
        plain.fit(numbers[0].X, numbers[0].Y)
        seconds = time.perf_counter() - started
        labels = plain.predict_topk(numbers[1].X, 5)[0]
        scores = umpteen.evaluate(numbers[1].Y, labels, numbers[0].Y, deciles=False)
        rows.append(
            [method, "the set's own numbers", at_k(scores), at_k(scores, "PSP", (1, 5)), f"{seconds:.1f} s", ""]
        )
        show(rows[-1])
        for words, settings in FEATURES.items():
            if words != "words" and method == "fastxml":
                continue  # as its paper, on words
            least = {} if name == "StackExchange-Cooking" or "min_df" in settings else {"min_df": 2}
            tagger = umpteen.Tagger(
                method_class(method)(threads=2, **params), umpteen.Tfidf(threads=2, **settings, **least)
            )
            with tempfile.TemporaryDirectory() as temporary:
                started = time.perf_counter()
                tagger.fit(train.texts, train.labels, Path(temporary) / "m")
                seconds = time.perf_counter() - started
                size = ModelReader(Path(temporary) / "m").n_bytes() / 1e6
            scores = tagger.evaluate(test.texts, test.labels, deciles=False)
            rows.append([method, words, at_k(scores), at_k(scores, "PSP", (1, 5)), f"{seconds:.1f} s",
                         f"{size:.1f} MB"])  # fmt: skip
            show(rows[-1])
    header = ["method", "features", "P@1 / 3 / 5", "PSP@1 / 5", "train", "model"]
    return (
        "2 threads, one run each. Training from text includes features, a first model for calibration on a held-out "
        "tenth, and writing. How far probabilities hold is [measured elsewhere](decisions.md).\n\n"
        + table(header, rows)
    )


def show(row: list[str]) -> None:
    print("  ", *row, file=sys.stderr)


PARTS = {name: (name, partial(measure, name)) for name in SETS}

if __name__ == "__main__":
    run_parts("text", "From raw text to tags", PARTS)
