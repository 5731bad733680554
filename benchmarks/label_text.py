"""What the text of labels is worth, and labels that no training row has: channel by channel.

python benchmarks/label_text.py [yso] [tate] [nuclei] [cooking]

$BM25_PYTHON is the Python of an environment with bm25s and PyStemmer.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
from common import data_root, run_parts, table

import umpteen
from umpteen.data.label_lists import encode_labels
from umpteen.data.matrix import Csr
from umpteen.vocabulary.concepts import Concept, Term

#: Every so manieth title of YSO-Finna-EN.
SHARE = 10
#: Labels ranked before those that training saw are left out.
DEEP = 500


class Texts(NamedTuple):
    texts: list[str]
    Y: Csr


class Study(NamedTuple):
    names: list[str]  # of labels, by number
    said: list[str]  # what they say: names without marks
    train: Texts
    test: Texts


#: Texts to the numbers of labels, best first, padded with -1.
Ranker = Callable[[list[str], int], np.ndarray]


def read_study(name: str, mark: str = "", share: int = 1) -> Study:
    folder = data_root() / name
    parts = [umpteen.read_corpus(folder / f"{part}.jsonl.xz") for part in ("train", "test")]
    train, test = (corpus.texts[::share] for corpus in parts)
    names, Y = encode_labels([row for corpus in parts for row in corpus.labels[::share]])
    n = len(train)
    said = [re.sub(mark, "", label) if mark else label.replace("-", " ") for label in names]
    return Study(list(names), said, Texts(train, Y[:n]), Texts(test, Y[n:]))


def is_hidden(name: str) -> bool:
    """One in ten, whatever the set: the first byte of the MD5 of its name, below 26."""
    return hashlib.md5(name.encode()).digest()[0] < 26


# --- channels -------------------------------------------------------------------------------------------------------


def train_method(method, study: Study, Y) -> Ranker:
    features = umpteen.Tfidf(sublinear_tf=True, min_df=2)
    method.fit(features.fit_transform(study.train.texts), Y)
    return lambda texts, top_k: method.predict_topk(features.transform(texts), top_k)[0]


def train_label_text(study: Study, Y) -> Ranker:
    features = umpteen.Tfidf(sublinear_tf=True, min_df=2).fit(study.train.texts)
    method = umpteen.LabelText(features.transform(study.said)).fit(features.transform(study.train.texts), Y)
    return lambda texts, top_k: method.predict_topk(features.transform(texts), top_k)[0]


def match_terms(study: Study, Y) -> Ranker:
    concepts = [Concept(f"l:{i}", [Term(text, "en", "preferred")]) for i, text in enumerate(study.said)]
    matcher = umpteen.LexicalMatcher(umpteen.Vocabulary.build(concepts, language="en"))
    if Y is not None:
        matcher.fit(study.train.texts, [[f"l:{i}" for i in row.indices] for row in Y])
    return lambda texts, top_k: matcher.rank(texts, top_k)[0]


def find_by_bm25(study: Study, some: list[int]) -> Ranker:
    def rank(texts: list[str], top_k: int) -> np.ndarray:
        with tempfile.TemporaryDirectory() as scratch:
            file = Path(scratch) / "bm25.json"
            file.write_text(json.dumps({"names": study.said, "texts": texts, "some": some, "top_k": top_k}))
            script = Path(__file__).parent / "baselines" / "bm25_labels.py"
            subprocess.run([os.environ["BM25_PYTHON"], str(script), str(file)], check=True)
            found = json.loads(file.read_text())
        out = np.full((len(texts), top_k), -1, np.int32)
        for row, listed in zip(out, found, strict=True):
            row[: len(listed)] = listed
        return out

    return rank


def channels(study: Study, Y) -> dict[str, Ranker]:
    """What is trained on the rows of Y, by name."""
    every = list(range(len(study.names)))
    return {
        "DiSMEC": train_method(umpteen.DiSMEC(), study, Y),
        "LabelTree": train_method(umpteen.LabelTree(), study, Y),
        "LabelText": train_label_text(study, Y),
        "LexicalMatcher, untrained": match_terms(study, None),
        "LexicalMatcher": match_terms(study, Y),
        "BM25 over names": find_by_bm25(study, every),
    }


# --- measures -------------------------------------------------------------------------------------------------------


def all_labels(study: Study) -> str:
    rows = []
    for name, rank in channels(study, study.train.Y).items():
        metrics = umpteen.evaluate(
            study.test.Y, rank(study.test.texts, 10), study.train.Y, k=(1, 5, 10), deciles=False
        )
        rows.append([name, *(f"{metrics[key]:.2f}" for key in ("P@1", "P@5", "PSP@1", "PSP@5", "recall@10"))])
    return table(["", "P@1", "P@5", "PSP@1", "PSP@5", "recall@10"], rows)


def hidden_labels(study: Study) -> str:
    hidden = np.array([is_hidden(name) for name in study.names])
    seen = study.train.Y.multiply(~hidden).tocsr().astype(study.train.Y.dtype)
    seen.eliminate_zeros()
    wanted = study.test.Y.multiply(hidden).tocsr()
    wanted.eliminate_zeros()
    some = np.flatnonzero(np.diff(wanted.indptr))
    texts, truth = [study.test.texts[i] for i in some], wanted[some]
    numbers = np.flatnonzero(hidden).tolist()
    every = list(range(len(study.names)))
    trained, by_words = match_terms(study, seen), train_label_text(study, seen)
    among = {
        "LabelText": [by_words] * 2,
        "LexicalMatcher, untrained": [match_terms(study, None)] * 2,
        "LexicalMatcher": [trained] * 2,
        "BM25 over names": [find_by_bm25(study, every), find_by_bm25(study, numbers)],
    }
    rows = []
    for name, (of_all, of_hidden) in among.items():
        rows.append([name, *judge(truth, of_all(texts, 10)), *judge(truth, keep(of_hidden(texts, DEEP), hidden))])
    header = ["", "P@1, all labels compete", "recall@10", "P@1, hidden ones alone", "recall@10"]
    n_rows, n_hidden = len(some), int(hidden.sum())
    return (
        f"{n_hidden:,} of {len(study.names):,} labels are hidden from training: those whose name's MD5 begins with a "
        f"byte below 26. {n_rows:,} test rows have one; only hidden labels count as right.\n\n" + table(header, rows)
    )


def keep(labels: np.ndarray, hidden: np.ndarray) -> np.ndarray:
    """The first ten of each row that are hidden."""
    out = np.full((len(labels), 10), -1, np.int32)
    for row, listed in zip(out, labels, strict=True):
        kept = [i for i in listed[listed >= 0] if hidden[i]][:10]
        row[: len(kept)] = kept
    return out


def judge(truth, labels: np.ndarray) -> list[str]:
    metrics = umpteen.evaluate(truth, labels, k=(1, 10), deciles=False)
    return [f"{metrics['P@1']:.2f}", f"{metrics['recall@10']:.2f}"]


def study_set(name: str, mark: str = "", share: int = 1) -> Callable[[], str]:
    def work() -> str:
        study = read_study(name, mark, share)
        part = f"every {share}th row of " if share > 1 else ""
        return (
            f"{part}{study.train.Y.shape[0]:,} training rows and {study.test.Y.shape[0]:,} test rows, "
            f"{len(study.names):,} labels.\n\nAll labels, trained with all rows:\n\n{all_labels(study)}\n\n"
            f"{hidden_labels(study)}"
        )

    return work


PARTS = {
    "yso": ("YSO-Finna-EN", study_set("YSO-Finna-EN", share=SHARE)),
    "tate": ("Tate-Subjects", study_set("Tate-Subjects", mark=r"^\d+ ")),
    "nuclei": ("Nuclei-Tags", study_set("Nuclei-Tags")),
    "cooking": ("StackExchange-Cooking", study_set("StackExchange-Cooking")),
}

if __name__ == "__main__":
    run_parts("label_text", "Label text, and labels nobody has trained", PARTS)
