"""What the text of labels is worth, and labels that no training row has or only a few: channel by channel.

python benchmarks/label_text.py [yso] [yso-new] [yso-few] [tate] [nuclei] [cooking]

$PEERS_PYTHON is the Python of an environment with bm25s, PyStemmer and omikuji.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np
import scipy.sparse as sp
from common import data_root, run_parts, table

import umpteen
from umpteen.data.label_lists import encode_labels
from umpteen.data.matrix import Csr, as_csr
from umpteen.tagging.channels import CHANNELS
from umpteen.tagging.concepts import name_concepts
from umpteen.tagging.label_terms import describe_labels
from umpteen.vocabulary.concepts import Concept, Term, Vocabulary

#: One in so many titles of YSO-Finna-EN, by a hash of the title.
SHARE = 50
#: Labels ranked before those that training saw are left out.
DEEP = 500
THREADS = 2


class Texts(NamedTuple):
    texts: list[str]
    Y: Csr


class Study(NamedTuple):
    names: list[str]  # of labels, by number
    said: list[str]  # what they say: names without marks
    train: Texts
    test: Texts
    vocabulary: Vocabulary


class Ranker(Protocol):
    """Texts to the numbers of labels, best first, padded with -1: of all labels, or of those in `among`."""

    def __call__(self, texts: list[str], top_k: int, among: list[int] | None = None) -> np.ndarray: ...


def is_drawn(text: str, share: int) -> bool:
    """One text in so many, whatever the set: by the first four bytes of its MD5."""
    return int.from_bytes(hashlib.md5(text.encode()).digest()[:4], "big") % share == 0


def is_hidden(name: str) -> bool:
    """One in ten, whatever the set: the first byte of the MD5 of its name, below 26."""
    return hashlib.md5(name.encode()).digest()[0] < 26


def read_study(name: str, mark: str = "", share: int = 1) -> Study:
    folder = data_root() / name
    parts = [umpteen.read_corpus(folder / f"{part}.jsonl.xz") for part in ("train", "test")]
    drawn = [[i for i, text in enumerate(corpus.texts) if is_drawn(text, share)] for corpus in parts]
    texts = [[corpus.texts[i] for i in some] for corpus, some in zip(parts, drawn, strict=True)]
    labels = [corpus.labels[i] for corpus, some in zip(parts, drawn, strict=True) for i in some]
    file = folder / "vocabulary.tsv.xz"
    vocabulary = umpteen.read_vocabulary(file, language="en") if file.exists() else None
    if vocabulary is not None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            labels = name_concepts(vocabulary, labels)
    names, Y = encode_labels(labels, [] if vocabulary is None else vocabulary.names_in_use())
    said = [re.sub(mark, "", label) if mark else label.replace("-", " ") for label in names]
    if vocabulary is None:
        pairs = zip(names, said, strict=True)
        concepts = [
            Concept(f"l:{name}", [Term(name, "en", "preferred"), Term(text, "en", "alternative")])
            for name, text in pairs
        ]
        vocabulary = Vocabulary.build(concepts, language="en")
    else:
        said = list(names)
    n = len(texts[0])
    return Study(list(names), said, Texts(texts[0], Y[:n]), Texts(texts[1], Y[n:]), vocabulary)


# --- channels -------------------------------------------------------------------------------------------------------


def words() -> umpteen.Tfidf:
    """The features of a tagger."""
    return umpteen.Tfidf(sublinear_tf=True, threads=THREADS)


def train_method(method, study: Study, Y) -> Ranker:
    features = words()
    method.fit(features.fit_transform(study.train.texts), Y)
    return lambda texts, top_k, among=None: method.predict_topk(features.transform(texts), top_k, include=among)[0]


def train_label_text(study: Study, Y) -> Ranker:
    terms = describe_labels(study.vocabulary, words().fit(study.train.texts), study.names)
    return train_method(umpteen.LabelText(terms, threads=THREADS), study, Y)


def train_channels(study: Study, Y) -> Ranker:
    labels = [[study.names[i] for i in row.indices] for row in Y]
    tagger = umpteen.Tagger("dismec", words(), vocabulary=study.vocabulary, channels=CHANNELS, threads=THREADS)
    tagger.fit(study.train.texts, labels)
    weights = ", ".join(f"{channel.name} {channel.weight:.2f}" for channel in tagger.channels_)
    print(f"    channels: {weights}", file=sys.stderr, flush=True)
    numbers = {name: i for i, name in enumerate(study.names)}
    places = np.array([*(numbers[name] for name in tagger.classes_), -1])
    at = {number: label for label, number in enumerate(places[:-1].tolist())}

    def rank(texts: list[str], top_k: int, among: list[int] | None = None) -> np.ndarray:
        some = None if among is None else [at[i] for i in among]
        return places[tagger.rank(texts, top_k, include=some)[0]].astype(np.int32)

    return rank


def match_terms(study: Study, Y) -> Ranker:
    matcher = umpteen.LexicalMatcher(study.vocabulary, threads=THREADS)
    if Y is not None:
        matcher.fit(study.train.texts, [[study.names[i] for i in row.indices] for row in Y])
    numbers = {name: i for i, name in enumerate(study.names)}
    places = np.array([*(numbers.get(name, -1) for name in study.vocabulary.names()), -1])

    def rank(texts: list[str], top_k: int, among: list[int] | None = None) -> np.ndarray:
        if among is None:
            return places[matcher.rank(texts, top_k)[0]].astype(np.int32)
        return keep(places[matcher.rank(texts, DEEP)[0]], set(among), top_k)

    return rank


def find_by_bm25(study: Study) -> Ranker:
    def rank(texts: list[str], top_k: int, among: list[int] | None = None) -> np.ndarray:
        some = list(range(len(study.names))) if among is None else among
        with tempfile.TemporaryDirectory() as scratch:
            file = Path(scratch) / "bm25.json"
            file.write_text(json.dumps({"names": study.said, "texts": texts, "some": some, "top_k": top_k}))
            run_peer("bm25_labels.py", file)
            found = json.loads(file.read_text())
        out = np.full((len(texts), top_k), -1, np.int32)
        for row, listed in zip(out, found, strict=True):
            row[: len(listed)] = listed
        return out

    return rank


def train_omikuji(study: Study, Y) -> Ranker:
    def rank(texts: list[str], top_k: int, among: list[int] | None = None) -> np.ndarray:
        features = words()
        with tempfile.TemporaryDirectory() as scratch:
            folder = Path(scratch)
            sp.save_npz(folder / "train.npz", features.fit_transform(study.train.texts))
            sp.save_npz(folder / "test.npz", features.transform(texts))
            sp.save_npz(folder / "labels.npz", sp.csr_matrix(Y))
            run_peer("omikuji_labels.py", folder, THREADS, top_k)
            return np.load(folder / "found.npy")

    return rank


def run_peer(script: str, *arguments: object) -> None:
    place = Path(__file__).parent / "baselines" / script
    done = subprocess.run([os.environ["PEERS_PYTHON"], place, *map(str, arguments)], capture_output=True, check=False)
    if done.returncode:
        raise SystemExit(f"{script}: {done.stderr.decode()[-2000:]}")


#: What is trained on the rows of Y, by name.
CONTESTANTS: dict[str, Callable[[Study, Csr], Ranker]] = {
    "DiSMEC": lambda study, Y: train_method(umpteen.DiSMEC(threads=THREADS), study, Y),
    "LabelTree": lambda study, Y: train_method(umpteen.LabelTree(threads=THREADS), study, Y),
    "omikuji": train_omikuji,
    "LabelText": train_label_text,
    "LexicalMatcher, untrained": lambda study, Y: match_terms(study, None),
    "LexicalMatcher": match_terms,
    "BM25 over names": lambda study, Y: find_by_bm25(study),
    "all channels": train_channels,
}
NEW = ("LabelText", "LexicalMatcher, untrained", "LexicalMatcher", "BM25 over names", "all channels")
FEW = ("DiSMEC", "LabelText", "LexicalMatcher", "all channels")


# --- measures -------------------------------------------------------------------------------------------------------

MEASURES = ("P@1", "P@5", "PSP@1", "PSP@5", "macroF1@5", "recall@10")


def all_labels(study: Study) -> str:
    rows = []
    for name, make in CONTESTANTS.items():
        with said(name):
            found = make(study, study.train.Y)(study.test.texts, 10)
        metrics = umpteen.evaluate(study.test.Y, found, study.train.Y, k=(1, 5, 10), deciles=False)
        rows.append([name, *(f"{metrics[key]:.2f}" for key in MEASURES)])
    return table(["", *MEASURES], rows)


def hidden_labels(study: Study, n_rows: int = 0) -> str:
    """With all rows of hidden labels left out of training, or all but the first so many of each label."""
    hidden = np.array([is_hidden(name) for name in study.names])
    seen = hide(study.train.Y, hidden, n_rows)
    wanted = study.test.Y.multiply(hidden).tocsr()
    wanted.eliminate_zeros()
    some = np.flatnonzero(np.diff(wanted.indptr))
    texts, truth = [study.test.texts[i] for i in some], as_csr(wanted[some], "Y")
    among = np.flatnonzero(hidden).tolist()
    rows = []
    for name in NEW if n_rows == 0 else FEW:
        with said(f"{name}, {n_rows} rows"):
            rank = CONTESTANTS[name](study, seen)
            rows.append([name, *judge(truth, rank(texts, 10)), *judge(truth, rank(texts, 10, among))])
    header = ["", "P@1, all labels compete", "recall@10", "P@1, hidden ones alone", "recall@10"]
    if n_rows:
        title = f"The same with the first {n_rows} of the training rows of each hidden label:"
    else:
        title = (
            f"{int(hidden.sum()):,} of {len(study.names):,} labels are hidden from training: those whose name's MD5 "
            f"begins with a byte below 26. {len(some):,} test rows have one; only hidden labels count as right:"
        )
    return f"{title}\n\n{table(header, rows)}"


def hide(Y: Csr, hidden: np.ndarray, n_rows: int) -> Csr:
    by_label = sp.csc_matrix(Y)
    order = np.arange(by_label.nnz) - np.repeat(by_label.indptr[:-1], np.diff(by_label.indptr))
    labels = np.repeat(np.arange(Y.shape[1]), np.diff(by_label.indptr))
    by_label.data = np.where(hidden[labels] & (order >= n_rows), 0, by_label.data).astype(np.float32)
    by_label.eliminate_zeros()
    return as_csr(by_label.tocsr(), "Y")


def keep(labels: np.ndarray, among: set[int], top_k: int) -> np.ndarray:
    """The first so many of each row that are wanted."""
    out = np.full((len(labels), top_k), -1, np.int32)
    for row, listed in zip(out, labels.tolist(), strict=True):
        kept = [i for i in listed if i in among][:top_k]
        row[: len(kept)] = kept
    return out


def judge(truth, labels: np.ndarray) -> list[str]:
    metrics = umpteen.evaluate(truth, labels, k=(1, 10), deciles=False)
    return [f"{metrics['P@1']:.2f}", f"{metrics['recall@10']:.2f}"]


class said:
    """Says on stderr what is done, and how much processor time it took in this process."""

    def __init__(self, what: str) -> None:
        self.what = what

    def __enter__(self) -> None:
        self.started = time.process_time()

    def __exit__(self, *error: object) -> None:
        print(f"  {self.what}: {time.process_time() - self.started:.1f} s", file=sys.stderr, flush=True)


def study_set(name: str, mark: str = "", share: int = 1, *questions: str) -> Callable[[], str]:
    """The work of a part: of a large set some of the questions, which are all, new and few."""

    def work() -> str:
        study = read_study(name, mark, share)
        part = "" if share == 1 else (
            f"One text in {share}: those whose MD5, its first four bytes as a number, can be divided by {share}. "
        )  # fmt: skip
        sections = [
            f"{part}{study.train.Y.shape[0]:,} training rows and {study.test.Y.shape[0]:,} test rows, "
            f"{len(study.names):,} labels."
        ]
        if not questions or "all" in questions:
            sections.append(f"All labels, trained with all rows:\n\n{all_labels(study)}")
        if not questions or "new" in questions:
            sections.append(hidden_labels(study))
        if not questions or "few" in questions:
            sections += [hidden_labels(study, n_rows) for n_rows in (1, 5)]
        return "\n\n".join(sections)

    return work


PARTS = {
    "yso": ("YSO-Finna-EN", study_set("YSO-Finna-EN", "", SHARE, "all")),
    "yso-new": ("YSO-Finna-EN: labels of no row", study_set("YSO-Finna-EN", "", SHARE, "new")),
    "yso-few": ("YSO-Finna-EN: labels of one row, and of five", study_set("YSO-Finna-EN", "", SHARE, "few")),
    "tate": ("Tate-Subjects", study_set("Tate-Subjects", mark=r"^\d+ ")),
    "nuclei": ("Nuclei-Tags", study_set("Nuclei-Tags")),
    "cooking": ("StackExchange-Cooking", study_set("StackExchange-Cooking")),
}

if __name__ == "__main__":
    run_parts("label_text", "Label text, and labels nobody has trained", PARTS)
