"""LexicalMatcher beside Annif's MLLM: the same vocabulary, texts and measures, in one run.

python benchmarks/lexical.py [archaeology] [yso] [threshold]

$ANNIF_PYTHON is the Python of an environment with Annif, $NLTK_DATA a folder with NLTK's punkt_tab.
"""

from __future__ import annotations

import csv
import hashlib
import json
import os
import resource
import shutil
import subprocess
import tempfile
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np
from common import data_root, run_parts, table

import umpteen
from umpteen.data.label_lists import encode_labels

#: Titles of YSO-Finna-EN to train on and to test with: MLLM takes some milliseconds for each.
TRAIN, TEST = 5000, 2000


class Study(NamedTuple):
    """Texts with the URIs of their labels."""

    vocabulary: umpteen.Vocabulary
    vocabulary_file: Path
    language: str
    train: tuple[list[str], list[list[str]]]
    test: tuple[list[str], list[list[str]]]


def seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def judge(uris: list[list[str]], found: list[list[str]], train: list[list[str]]) -> list[str]:
    """F1 of the five best, averaged over texts with labels, nDCG@5, P@1 and recall@10."""
    names, Y = encode_labels([*uris, *train])
    ids = {name: i for i, name in enumerate(names)}
    labels = np.full((len(uris), 10), -1, np.int32)
    for row, listed in zip(labels, found, strict=True):  # what is nobody's label is wrong, and keeps its place
        row[: len(listed)] = [ids.get(uri, len(ids) + i) for i, uri in enumerate(listed)]
    truth = Y[: len(uris)].copy()
    truth.resize(len(uris), len(ids) + 10)
    f1 = []
    for wanted, listed in zip(uris, found, strict=True):
        if wanted:
            best = listed[:5]
            f1.append(2 * len(set(best) & set(wanted)) / (len(best) + len(wanted)))
    metrics = umpteen.evaluate(truth, labels, k=(1, 5, 10), deciles=False)
    return [f"{100 * np.mean(f1):.2f}", *(f"{metrics[key]:.2f}" for key in ("nDCG@5", "P@1", "recall@10"))]


def run_ours(study: Study, n_train: int | None, threshold: float = 0.0) -> tuple[list[list[str]], dict[str, float]]:
    times = [seconds()]
    matcher = umpteen.LexicalMatcher(study.vocabulary, threads=1)
    times.append(seconds())
    if n_train is not None:
        matcher.fit(study.train[0][:n_train], study.train[1][:n_train])
    times.append(seconds())
    ids, _ = matcher.rank(study.test[0], 10, threshold)
    times.append(seconds())
    uris = study.vocabulary.uris
    found = [[uris[i] for i in row if i >= 0] for row in ids.tolist()]
    return found, dict(zip(("vocabulary", "train", "suggest"), np.diff(times).tolist(), strict=True))


def run_annif(study: Study, n_train: int) -> tuple[list[list[str]], dict[str, float]]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        shutil.copy(study.vocabulary_file, folder / f"vocabulary{study.vocabulary_file.suffix}")
        for part, (texts, uris), n in (("train", study.train, n_train), ("test", study.test, None)):
            lines = [
                json.dumps({"text": text, "subjects": [{"uri": uri} for uri in row]})
                for text, row in islice(zip(texts, uris, strict=True), n)
            ]
            (folder / f"{part}.jsonl").write_text("\n".join(lines) + "\n")
        script = Path(__file__).parent / "baselines" / "annif_mllm.py"
        one = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        subprocess.run(
            [os.environ["ANNIF_PYTHON"], str(script), name, study.language], check=True, env=os.environ | one
        )
        said = json.loads((folder / "mllm.json").read_text())
    return said["found"], said["seconds"]


def compare(study: Study, sizes: list[int]) -> str:
    rows = []
    for n in sizes:
        found, spent = run_annif(study, n)
        per_text = 1e6 * spent["suggest"] / len(found)
        rows.append([f"MLLM, {n:,} texts", *judge(study.test[1], found, study.train[1]),
                     f"{spent['train']:.1f} s", f"{per_text:,.0f} µs"])  # fmt: skip
    for n in [None, *sizes]:
        found, spent = run_ours(study, n)
        name = "LexicalMatcher, untrained" if n is None else f"LexicalMatcher, {n:,} texts"
        per_text = 1e6 * spent["suggest"] / len(found)
        train = "" if n is None else f"{spent['vocabulary'] + spent['train']:.1f} s"
        rows.append([name, *judge(study.test[1], found, study.train[1]), train, f"{per_text:,.0f} µs"])
    header = ["", "F1@5", "nDCG@5", "P@1", "recall@10", "train", "suggest, a text"]
    return table(header, rows)


def archaeology() -> str:
    study = read_archaeology()
    said = (
        f"{len(study.train[0]):,} Finnish titles to train on and {len(study.test[0]):,} to test with (MD5 of the "
        f"title, first byte modulo 4 is 0), {len(study.vocabulary)} concepts in SKOS. Processor time on one thread; "
        "training includes the table of terms.\n\n"
    )
    return said + compare(study, [500, len(study.train[0])])


def read_archaeology() -> Study:
    folder = data_root() / "Annif-Archaeology"
    parts: dict[bool, tuple[list[str], list[list[str]]]] = {False: ([], []), True: ([], [])}
    for line in (folder / "documents.jsonl").read_text().splitlines():
        entry = json.loads(line)
        texts, uris = parts[hashlib.md5(entry["text"].encode()).digest()[0] % 4 == 0]
        texts.append(entry["text"])
        uris.append([subject["uri"] for subject in entry["subjects"]])
    file = folder / "yso-archaeology.ttl"
    vocabulary = umpteen.read_vocabulary(file, language="fi")
    known = set(vocabulary.uris)
    train, test = (
        (texts, [[uri for uri in row if uri in known] for row in uris]) for texts, uris in (parts[False], parts[True])
    )
    return Study(vocabulary, file, "fi", train, test)


def yso() -> str:
    study = read_yso()
    with tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch) / "vocabulary.csv"
        with file.open("w", newline="") as lines:
            out = csv.writer(lines)
            out.writerow(["uri", "label_en"])
            out.writerows([uri, study.vocabulary.name(i, "en")] for i, uri in enumerate(study.vocabulary.uris))
        said = (
            f"{TRAIN:,} titles of the training file and {TEST:,} of the test file, every twentieth; "
            f"{len(study.vocabulary):,} concepts with one English name each and no neighbours. Processor time on one "
            "thread; training includes the table of terms.\n\n"
        )
        return said + compare(study._replace(vocabulary_file=file), [500, TRAIN])


def read_yso() -> Study:
    folder = data_root() / "YSO-Finna-EN"
    vocabulary = umpteen.read_vocabulary(folder / "vocabulary.tsv.xz", language="en")
    uri_of = dict(zip(vocabulary.names(), vocabulary.uris, strict=True))
    parts = []
    for name, n in (("train", TRAIN), ("test", TEST)):
        corpus = islice(umpteen.iter_corpus(folder / f"{name}.jsonl.xz"), 20 * n)
        some = list(corpus)[::20]  # every twentieth: neighbours in the file share labels
        parts.append(
            ([text for text, _ in some], [[find(vocabulary, uri_of, name) for name in row] for _, row in some])
        )
    return Study(vocabulary, folder / "vocabulary.tsv.xz", "en", *parts)


def threshold() -> str:
    rows = []
    for name, study in (("Annif-Archaeology", read_archaeology()), ("YSO-Finna-EN", read_yso())):
        for least in (0.0, 0.02, 0.05, 0.1):
            found, _ = run_ours(study, TRAIN, least)
            rows.append([name, f"{least:g}", *judge(study.test[1], found, study.train[1])])
    return (
        "The same texts, all of them to train on. MLLM gives fewer concepts; so does `rank(…, threshold=…)`, which "
        "leaves out concepts of a lower probability. On held-out training titles of YSO-Finna-EN F1@5 is best at "
        "0.1, nDCG@5 at 0; 0.05 is between.\n\n"
        + table(["", "threshold", "F1@5", "nDCG@5", "P@1", "recall@10"], rows)
    )


def find(vocabulary: umpteen.Vocabulary, uri_of: dict[str, str], name: str) -> str:
    return uri_of[name] if name in uri_of else vocabulary.uris[vocabulary.find(name)]


PARTS = {
    "archaeology": ("Annif-Archaeology", archaeology),
    "yso": ("YSO-Finna-EN", yso),
    "threshold": ("Leaving out what is not likely", threshold),
}

if __name__ == "__main__":
    run_parts("lexical", "LexicalMatcher beside Annif's MLLM", PARTS)
