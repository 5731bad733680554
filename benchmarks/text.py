"""From raw text to metrics: several methods on corpora of texts, beside the same data as numbers made by others.

    python benchmarks/text.py [--sets StackExchange-Cooking,Debian-Tags] [--methods dismec,ppdsparse,fastxml]

The numbers are those of the data sets' own train.txt.xz: words of one letter and more, tf-idf. Settings of our
features come near to theirs, and pairs of words are tried beside them.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from common import RESULTS, data_root, table, write_result

import umpteen
from umpteen.methods import method_class
from umpteen.models.store import ModelReader

SETS = ("StackExchange-Cooking", "Debian-Tags", "Nuclei-Tags", "Tate-Subjects")
METHODS = {"dismec": {}, "ppdsparse": {"lambda_": 0.05}, "fastxml": {"n_trees": 20, "normalize": True}}
FEATURES = {
    "words": {"sublinear_tf": True, "max_df": 0.7, "token_pattern": r"(?u)\b\w+\b"},
    "words and pairs": {
        "sublinear_tf": True, "max_df": 0.7, "token_pattern": r"(?u)\b\w+\b", "ngram_range": (1, 2), "min_df": 2,
    },
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--sets", default=",".join(SETS))
    parser.add_argument("--methods", default=",".join(METHODS))
    options = parser.parse_args()
    rows, drawings = [], []
    for name in options.sets.split(","):
        folder = data_root() / name
        train, test = (umpteen.read_corpus(folder / f"{part}.jsonl.xz") for part in ("train", "test"))
        numbers = [umpteen.read_xc(folder / f"{part}.txt.xz") for part in ("train", "test")]
        for method in options.methods.split(","):
            plain = method_class(method)(threads=2, **METHODS[method])
            started = time.perf_counter()
            plain.fit(numbers[0].X, numbers[0].Y)
            seconds = time.perf_counter() - started
            labels = plain.predict_topk(numbers[1].X, 5)[0]
            scores = umpteen.evaluate(numbers[1].Y, labels, numbers[0].Y, deciles=False)
            rows.append([name, method, "the set's own numbers", *cells(scores), f"{seconds:.1f} s", "", ""])
            show(rows[-1])
            for words, settings in FEATURES.items():
                if words != "words" and method == "fastxml":
                    continue  # as its paper, on words
                least = {} if name == "StackExchange-Cooking" or "min_df" in settings else {"min_df": 2}
                tagger = umpteen.Tagger(
                    method_class(method)(threads=2, **METHODS[method]), umpteen.Tfidf(threads=2, **settings, **least)
                )
                with tempfile.TemporaryDirectory() as temporary:
                    started = time.perf_counter()
                    tagger.fit(train.texts, train.labels, Path(temporary) / "m")
                    seconds = time.perf_counter() - started
                    size = ModelReader(Path(temporary) / "m").n_bytes() / 1e6
                    scores = tagger.evaluate(test.texts, test.labels, deciles=False)
                    before, after = tagger.reliability(test.texts, test.labels)
                    rows.append(
                        [name, method, words, *cells(scores), f"{seconds:.1f} s", f"{size:.1f} MB",
                         f"{before.error:.3f} → {after.error:.3f}"]
                    )  # fmt: skip
                    show(rows[-1])
                    if method == "dismec" and words == "words":
                        drawings.append((name, before, after))
    header = ["data", "method", "features", "P@1 / 3 / 5", "PSP@1 / 5", "train", "model", "calibration error"]
    for name, before, after in drawings:
        for when, found in (("before", before), ("after", after)):
            svg = found.to_svg().replace("currentColor", "#777")
            (RESULTS / f"reliability_{name.lower()}_{when}.svg").write_text(svg + "\n")
    pictures = "\n".join(
        f"{name}: ![before](reliability_{name.lower()}_before.svg) ![after](reliability_{name.lower()}_after.svg)\n"
        for name, _, _ in drawings
    )
    text = (
        "2 threads, one run each. Training from text includes features, a first model for calibration on a held-out "
        "tenth, and writing. The calibration error is that of the five best labels, of scores squeezed into [0, 1] "
        "and of the probabilities learned, on the test texts. Tate-Subjects is split by sketchbook: rows "
        "held out at random have near-twins among the others, so that the probabilities learned there promise too "
        "much on the test texts.\n\n" + table(header, rows)
        + "\n\nReliability of DiSMEC's five best labels, before and after:\n\n" + pictures
    )  # fmt: skip
    write_result("text", "From raw text to tags", text, "python benchmarks/text.py")


def cells(scores: umpteen.Metrics) -> list[str]:
    return [
        " / ".join(f"{scores[f'P@{k}']:.2f}" for k in (1, 3, 5)),
        f"{scores['PSP@1']:.2f} / {scores['PSP@5']:.2f}",
    ]


def show(row: list[str]) -> None:
    print("  ", *row, file=sys.stderr)


if __name__ == "__main__":
    main()
