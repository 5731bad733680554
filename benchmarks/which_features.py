"""Which features rank the labels of held-out training rows best, and what they cost beside words.

    python benchmarks/which_features.py [SET …] [costs]

SET is StackExchange-Cooking, Debian-Tags, Nuclei-Tags, Tate-Subjects or YSO-Finna-EN. A fifth of a part of its
training rows judges; no test row is read. Static vectors are wordllama's, if it is installed.
"""

from __future__ import annotations

import importlib.util
import sys
import time
from functools import partial
from itertools import islice
from typing import Any

import numpy as np
from common import at_k, data_root, run_parts, table

import umpteen
from umpteen import Tfidf, TfidfUnion
from umpteen.choosing.dense_weight import weigh_dense
from umpteen.data.label_lists import encode_labels

#: How many training rows of a set are read, and how many of these, drawn at random, are used.
SETS = {
    "StackExchange-Cooking": (12_404, 12_404),
    "Debian-Tags": (20_679, 7_000),
    "Nuclei-Tags": (10_688, 5_000),
    "Tate-Subjects": (46_004, 3_000),
    "YSO-Finna-EN": (60_000, 2_500),
}
COMMON_PAIRS = Tfidf(sublinear_tf=True, ngram_range=(2, 2), min_df=5)
CHARACTERS = {"sublinear_tf": True, "analyzer": "char_wb", "ngram_range": (4, 4)}
FEATURES: dict[str, Any] = {
    "words": "word",
    "stems": Tfidf(sublinear_tf=True, language="en"),
    "words + starts": ["word", "start"],
    "words + 0.7 starts": TfidfUnion(["word", "start"], weights=[1, 0.7]),
    "words + starts + 0.4 pairs of five texts": TfidfUnion(["word", "start", COMMON_PAIRS], weights=[1, 1, 0.4]),
    "words + characters": ["word", "char_wb"],
    "characters": Tfidf(**CHARACTERS, min_df=2),
    "characters, hashed to 16,384": Tfidf(**CHARACTERS, hashing=1 << 14),
    "words + svd:128": ["word", "svd:128"],
    "words + static vectors": ["word", "static:"],
}


def split(name: str, at_least: int = 0) -> tuple[list[str], list[str], Any, Any]:
    """Texts to learn from and to judge by, and the labels of both."""
    read, used = SETS[name]
    used = max(used, at_least)
    records = list(islice(umpteen.iter_corpus(data_root() / name / "train.jsonl.xz"), read))
    chosen = np.sort(np.random.default_rng(1).permutation(len(records))[:used])
    _, Y = encode_labels([records[i].labels for i in chosen])
    texts = [records[i].text for i in chosen]
    out = np.random.default_rng(3).random(len(texts)) < 0.2
    kept, left = np.flatnonzero(~out), np.flatnonzero(out)
    return [texts[i] for i in kept], [texts[i] for i in left], Y[kept], Y[left]


def open_features(given: Any) -> Any:
    """Features to fit; None without the vectors they need."""
    if given == FEATURES["words + static vectors"]:
        spec = importlib.util.find_spec("wordllama")
        if spec is None or not spec.submodule_search_locations:
            return None
        given = ["word", f"static:{spec.submodule_search_locations[0]}"]
    return umpteen.text.features.make_features(given, threads=1)


def measure(name: str) -> str:
    texts, held_out, Y, Y_held_out = split(name)
    rows: list[list[str]] = []
    base: list[float] = []
    for called, given in FEATURES.items():
        features = open_features(given)
        if features is None:
            continue
        began = time.process_time()
        X = weigh_dense(features, features.fit_transform(texts), Y, 0, 1)
        made = time.process_time()
        model = umpteen.DiSMEC(threads=1).fit(X, Y)
        trained = time.process_time()
        found = umpteen.evaluate(Y_held_out, model.predict_topk(features.transform(held_out), 5)[0], Y, deciles=False)
        got = [found[f"P@{k}"] for k in (1, 3, 5)] + [found["PSP@5"]]
        base = base or [*got, trained - made]
        rows.append(
            [
                called,
                at_k(found),
                f"{got[3]:.2f}",
                " / ".join(f"{value - before:+.2f}" for value, before in zip(got, base, strict=False)),
                f"{made - began:.1f} s",
                f"{trained - made:.1f} s ({(trained - made) / base[4]:.1f})",
                f"{X.shape[1]:,}",
            ]
        )
        print("  ", name, *rows[-1], file=sys.stderr)
    header = ["features", "P@1 / 3 / 5", "PSP@5", "against words", "to rows", "training (times words)", "columns"]
    return (
        f"{len(texts):,} training rows learn, {len(held_out):,} judge. DiSMEC, processor time of one thread. The "
        f"weight of dense vectors is chosen on a fifth of the rows that learn; rows and that choice are one time."
        f"\n\n{table(header, rows)}"
    )


def costs() -> str:
    """Rows with 384 more, dense columns: what training and prediction take beside rows of words alone."""
    rows = []
    for name in ("StackExchange-Cooking", "Debian-Tags", "YSO-Finna-EN"):
        texts, held_out, Y, _ = split(name, at_least=5000)
        features = umpteen.text.features.make_features(["word", "svd:384"], threads=1)
        both = features.fit_transform(texts), features.transform(held_out)
        n_words = both[0].shape[1] - 384
        found: dict[str, list[float]] = {}
        for called, (X, X_held_out) in {"words": [A[:, :n_words] for A in both], "both": both}.items():
            began = time.process_time()
            model = umpteen.DiSMEC(threads=1).fit(X, Y)
            trained = time.process_time()
            model.predict_topk(X_held_out, 5)
            found[called] = [trained - began, time.process_time() - trained]
        times = [more / less for more, less in zip(found["both"], found["words"], strict=True)]
        (fit, ranked), (fit_both, ranked_both) = found["words"], found["both"]
        rows.append(
            [name, f"{fit:.2f} → {fit_both:.2f} s", f"{times[0]:.1f}", f"{ranked:.3f} → {ranked_both:.3f} s",
             f"{times[1]:.1f}"]
        )  # fmt: skip
        print("  ", *rows[-1], file=sys.stderr)
    return (
        "DiSMEC on rows drawn as above, at least 5,000 of each set, processor time of one thread, words alone → "
        "words and 384 dense columns.\n\n"
        + table(["set", "training", "times", "ranking held-out rows", "times"], rows)
    )


PARTS: dict[str, Any] = {name: (name, partial(measure, name)) for name in SETS}
PARTS["costs"] = ("What 384 dense columns cost", costs)

if __name__ == "__main__":
    run_parts("which_features", "Which features", PARTS)
