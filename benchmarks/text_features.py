"""Text features: against scikit-learn's TfidfVectorizer, on real text, in one run; and how well they rank test rows.

    python benchmarks/text_features.py [corpora] [single] [saving] [tokens] [SET …]

SET is StackExchange-Cooking, Nuclei-Tags, Debian-Tags or Tate-Subjects. What is chosen, is chosen by
which_features.py, which reads no test row.
"""

from __future__ import annotations

import re
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
from common import data_root, run_parts, table, time_all, time_each, version
from sklearn.feature_extraction.text import TfidfVectorizer
from which_features import compare as compare_features

import umpteen
from umpteen.data.label_lists import encode_labels
from umpteen.storage.store import ModelReader, ModelWriter

SETTINGS = {
    "words": {},
    "words and pairs": {"ngram_range": (1, 2), "min_df": 2, "max_df": 0.7, "sublinear_tf": True},
    "characters within words": {"analyzer": "char_wb", "ngram_range": (3, 5), "min_df": 2, "sublinear_tf": True},
}
#: Sets whose test rows judge, and the features compared.
JUDGED = ("StackExchange-Cooking", "Nuclei-Tags", "Debian-Tags", "Tate-Subjects")
RANKED = (
    "words", "stems", "characters", "words + characters", "words + static vectors",
    "words + characters + static vectors", "words + the encoder", "words + characters + the encoder",
    "the encoder alone",
)  # fmt: skip


def same(X, expected) -> bool:
    expected.sort_indices()
    rounded = expected.data.astype(np.float32)
    return bool(
        np.array_equal(X.indptr, expected.indptr)
        and np.array_equal(X.indices, expected.indices)
        and np.array_equal(X.data, rounded)
    )


def compare(name: str, texts: list[str], setting: str, params: dict) -> list[list[str]]:
    n_bytes = sum(len(text.encode()) for text in texts)
    peer = version("scikit-learn")
    ours, theirs = umpteen.Tfidf(**params, threads=2), TfidfVectorizer(**params)
    X = ours.fit_transform(texts)
    assert same(X, theirs.fit_transform(texts)), "the vectorisers disagree"
    assert list(ours.get_feature_names_out()) == list(theirs.get_feature_names_out())
    jobs: dict[str, Callable[[], object]] = {
        "umpteen, 2 threads": lambda: umpteen.Tfidf(**params, threads=2).fit_transform(texts),
        "umpteen, 1 thread": lambda: umpteen.Tfidf(**params, threads=1).fit_transform(texts),
        peer: lambda: TfidfVectorizer(**params).fit_transform(texts),
    }
    seconds = time_all(jobs, 5)
    jobs = {"umpteen, 2 threads": lambda: ours.transform(texts), peer: lambda: theirs.transform(texts)}
    again = time_all(jobs, 3)
    return [
        [
            f"{name}, {n_bytes / 1e6:.1f} MB, {setting}: {X.shape[1]:,} columns",
            job,
            f"{s * 1000:.0f} ms",
            f"{n_bytes / s / 1e6:.0f} MB/s",
            f"{seconds[peer] / s:.1f}",
            f"{again[job] * 1000:.0f} ms" if job in again else "",
        ]
        for job, s in seconds.items()
    ]


def quantiles(job: Callable[[str], object], texts: list[str]) -> list[str]:
    cuts = statistics.quantiles(time_each(job, texts), n=100)
    return [f"{1e6 * cuts[49]:.0f} µs", f"{1e6 * cuts[94]:.0f} µs"]


def one_at_a_time(name: str) -> str:
    train = umpteen.read_corpus(data_root() / name / "train.jsonl.xz").texts
    test = umpteen.read_corpus(data_root() / name / "test.jsonl.xz").texts[:2000]
    ours, theirs = umpteen.Tfidf(min_df=2).fit(train), TfidfVectorizer(min_df=2).fit(train)
    rows = [
        ["umpteen", *quantiles(lambda text: ours.transform([text]), test)],
        [version("scikit-learn"), *quantiles(lambda text: theirs.transform([text]), test)],
    ]
    length = statistics.mean(map(len, test))
    header = ["", "median", "95th percentile"]
    return f"{name}'s test texts, {length:.0f} characters on average:\n\n" + table(header, rows)


def saving() -> str:
    name = "Debian-Tags"
    train = umpteen.read_corpus(data_root() / name / "train.jsonl.xz").texts
    tfidf = umpteen.Tfidf(ngram_range=(1, 2)).fit(train)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "m"
        with ModelWriter.create(path, {}, []) as writer:
            writer.write_part("text", tfidf.to_part())
            writer.finish()
        started = time.perf_counter()
        loaded = umpteen.Tfidf.from_part(ModelReader(path).part("text"))
        loaded.transform(["ready"])
        seconds = time.perf_counter() - started
        n_bytes = ModelReader(path).n_bytes()
    return (
        f"Saved, all words and pairs of {name} ({tfidf.n_features_:,} terms): {n_bytes / 1e6:.1f} MB; opened and the "
        f"first text transformed in {seconds * 1000:.1f} ms."
    )


def test_rows(name: str) -> str:
    """All training rows learn, test rows judge."""
    train, test = (umpteen.read_corpus(data_root() / name / f"{part}.jsonl.xz") for part in ("train", "test"))
    _, Y_all = encode_labels([*train.labels, *test.labels])  # labels that only test rows have count too
    Y, Y_test = Y_all[: len(train.texts)], Y_all[len(train.texts) :]
    found = compare_features(list(train.texts), list(test.texts), Y, Y_test, RANKED)
    return f"All {Y.shape[0]:,} training rows learn, {Y_test.shape[0]:,} test rows judge. {found}"


def corpora() -> str:
    rows = []
    for name in ("Debian-Tags", "Tate-Subjects"):
        texts = umpteen.read_corpus(data_root() / name / "train.jsonl.xz").texts
        for setting, params in SETTINGS.items():
            rows += compare(name, texts, setting, params)
    header = ["text", "", "fit_transform, median of 5", "speed", "times as fast", "transform"]
    return "Both give the same columns and, rounded to float32, the same bits; checked before timing.\n\n" + table(
        header, rows
    )


def single() -> str:
    return "\n\n".join(map(one_at_a_time, ("StackExchange-Cooking", "Debian-Tags")))


def tokens() -> str:
    """The default pattern, whose words C++ finds, beside one with the same words that only `re` understands."""
    pattern, same_words = umpteen.Tfidf().token_pattern, r"(?u)\b\w[\w]+\b"
    find = re.compile(pattern).findall
    rows = []
    for name in ("StackExchange-Cooking", "Debian-Tags", "Tate-Subjects"):
        texts = umpteen.read_corpus(data_root() / name / "train.jsonl.xz").texts
        n_bytes = sum(len(text.encode()) for text in texts)
        ours = umpteen.Tfidf(threads=1).fit(texts)
        by_re = umpteen.Tfidf(threads=1, token_pattern=same_words).fit(texts)
        assert same(ours.transform(texts), by_re.transform(texts)), "the words differ"
        jobs: dict[str, Callable[[], object]] = {
            "words by C++, then counts and weights": partial(ours.transform, texts),
            "words by `re`, then the same": partial(by_re.transform, texts),
            "`re` alone: `findall(text.lower())`": lambda texts=texts: [find(text.lower()) for text in texts],
        }
        seconds = time_all(jobs, 5, clock=time.process_time)
        slowest = max(seconds.values())
        rows += [
            [f"{name}, {n_bytes / 1e6:.1f} MB", job, f"{s * 1000:.0f} ms", f"{n_bytes / s / 1e6:.0f} MB/s",
             f"{slowest / s:.1f}"]
            for job, s in seconds.items()
        ]  # fmt: skip
    header = ["text", "`transform`, 1 thread", "processor time, median of 5", "speed", "times as fast"]
    return (
        f"The default pattern is `{pattern}`. C++ finds its words in one pass over the text, so no text makes it "
        f"slow; `{same_words}` has the same words, and the same bits come of them, but `re` finds these. Times are "
        "of the processor, since the machine had other work.\n\n" + table(header, rows)
    )


PARTS = {
    "corpora": ("Whole corpora", corpora),
    "single": ("One text at a time", single),
    "saving": ("Saving", saving),
    "tokens": ("Words by our own tokeniser and by re", tokens),
    **{name: (f"Test rows of {name}", partial(test_rows, name)) for name in JUDGED},
}

if __name__ == "__main__":
    run_parts("text_features", "Text features", PARTS)
