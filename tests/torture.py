"""Models that are opened while others replace them: which version, whole, or an error; never a mixture of two.

    python -m tests.torture --loads 1000000 --seconds 36000 --record tests/records/torture.md

There are seven places. Writers, in processes of their own, do one of these to a place of theirs, for ever:

    replace    save(overwrite=True) of a model of few shards, or of many
    prune      load what is there, prune it, and save it in its place
    grow       load what is there, add labels to it, and save it in its place; now and then begin anew
    learn      remove what is there, and train another version into the same directory, shard by shard
    correct    teach a model of texts what is there by corrections, as `umpteen learn` and the server do
    copy       copy another version over it, file by file, each by renaming, as rsync does, in an order that is drawn

Readers open places that are drawn, small ones more often, with and without checksums, and ask. Every version of a
model has a number of its own, which is in its label names, in its label counts and in its weights, in every shard; in
models of texts, word j means label j - number, by the weights, and the names say so. A load that shows two numbers is
mixed. Errors are counted by kind: while files are copied one by one, or shards are
trained, there is no whole version most of the time, and that is what the error must say. Elsewhere there is always
one, and an error is a failure.

Writers rest for a moment after each write, and let readers go first where processors are few: a write that no reader
meets shows nothing. Files are kept in memory where there is a place for that. tests/records/torture.md has the last
long runs.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import multiprocessing
import os
import platform
import random
import re
import resource
import shutil
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

import umpteen
from umpteen.data.corrections import Correction
from umpteen.errors import ModelChangedError, ModelError, ModelLockedError
from umpteen.learning import improve_model
from umpteen.methods import method_of
from umpteen.storage.store import ModelReader
from umpteen.trained.loading import load_model

N_LABELS, N_FEATURES, VERSIONS = 60, 24, 6
#: Words, and labels, of the models of texts.
N_WORDS = 30
_SUMMARY = ("loads", "opened again", "mixed", "failed", "unexpected", "died")
#: Place -> shards, what its writers do to it, and how often it is read.
PLACES = {
    "few": (2, ("replace",), 40),
    "many": (60, ("replace",), 1),
    "pruned": (4, ("prune", "replace"), 15),
    "grown": (2, ("grow",), 15),
    "learned": (4, ("learn",), 14),
    "corrected": (3, ("correct", "correct", "prune", "replace"), 15),
    "copied": (2, ("copy",), 15),
}
#: Places that take one writer: two at once would be in each other's way.
_ALONE = ("copied", "learned")
#: A model that was grown to this many labels is begun anew.
_MOST_LABELS = N_LABELS + 20


def make_versions(folder: Path) -> dict[str, list[Path]]:
    """Models of every place, each in several versions."""
    made = {}
    for place in PLACES:
        made[place] = [folder / f"{place}-{number}" for number in range(1, VERSIONS + 1)]
        for number, path in enumerate(made[place], start=1):
            train(place, number, path)
    return made


def train(place: str, number: int, path: Path) -> None:
    """A version of a place's model: the weights of feature 0 are its number, and so are the counts of labels."""
    if place == "corrected":
        train_texts(number, path)
        return
    X = np.random.default_rng(0).random((N_LABELS, N_FEATURES)).astype(np.float32)
    X[:, 0] = number
    X, Y = np.tile(X, (number, 1)), np.tile(np.eye(N_LABELS, dtype=np.float32), (number, 1))
    shard = N_LABELS // PLACES[place][0]
    model = umpteen.Centroid(labels_per_shard=shard, normalize=False, weight_type="float32", threads=1)
    model.fit(X, Y, path, label_names=[f"{number} {label}" for label in range(N_LABELS)])


def train_texts(number: int, path: Path) -> None:
    """A version of the model of texts; all have the same words and as many labels."""
    texts = [f"word{j} word{j} rare{j % 5}" for j in range(N_WORDS)] * 3
    labels = [[f"{number} {(j - number) % N_WORDS:03d}"] for j in range(N_WORDS)] * 3
    method = umpteen.DiSMEC(labels_per_shard=N_WORDS // PLACES["corrected"][0], threads=1)
    umpteen.Tagger(method, umpteen.Tfidf(threads=1), calibration=0).fit(texts, labels).save(path)


def correct(path: Path, versions: list[Path], draw: random.Random) -> None:
    """Teaches what is there more of its own version, with a new label now and then; or begins anew."""
    tagger = umpteen.load(path)
    number, n_labels = int(tagger.classes_[0].split()[0]), len(tagger.classes_)
    if n_labels >= N_WORDS + 20:
        umpteen.load(draw.choice(versions)).save(path, overwrite=True)
        return
    j = draw.randrange(N_WORDS)
    said = [Correction(f"word{j} word{j} word{j}", [f"{number} {(j - number) % N_WORDS:03d}"], [], False)]
    if draw.random() < 0.5:
        said.append(Correction(f"rare{draw.randrange(5)}", [f"{number} {n_labels:03d} new"], [], True))
    improve_model(path, lambda tagger: said, threads=1)


def numbers_of_texts(tagger: Any) -> set[int]:
    """The versions that a model's names and its weights are of."""
    found = {int(name.split()[0]) for name in tagger.classes_}
    rows = tagger.suggest([f"word{j}" for j in range(N_WORDS)], top_k=1, threads=1)
    for j, [(name, _)] in enumerate(rows):
        found.add((j - int(name.split()[1])) % N_WORDS)
    return found


def grow(path: Path, versions: list[Path], draw: random.Random) -> None:
    """Adds labels of the same version to what is there, or begins anew with another."""
    model = umpteen.load(path)
    if model.n_labels >= _MOST_LABELS:
        umpteen.load(draw.choice(versions)).save(path, overwrite=True)
        return
    number, n = int(model.label_names[0].split()[0]), draw.randrange(1, 6)
    X = np.full((n, N_FEATURES), 0.5, np.float32)
    X[:, 0] = number
    X, Y = np.tile(X, (number, 1)), np.tile(np.eye(n, dtype=np.float32), (number, 1))
    names = [f"{number} new {model.n_labels + i}" for i in range(n)]
    method_of(model).add_labels(X, Y, names).save(path, overwrite=True)


def numbers(model: Any) -> set[int]:
    """The versions that a model's names, counts and weights are of."""
    row = np.zeros((1, N_FEATURES), np.float32)
    row[0, 0] = 1
    if isinstance(model, umpteen.Tagger):
        return numbers_of_texts(model)
    labels, scores = model.predict_topk(row, model.n_labels, threads=1)
    if sorted(labels[0].tolist()) != list(range(model.n_labels)):
        return {-1, -2}
    named = {int(name.split()[0]) for name in model.label_names}
    return named | set(model.train_counts.counts.tolist()) | {round(float(score), 3) for score in scores[0]}


def write(place: str, target: Path, versions: list[Path], seed: int, rest: float, end: Any) -> None:
    """Replaces a place until the end."""
    os.nice(5)
    draw = random.Random(seed)
    ways = PLACES[place][1]
    models = [umpteen.load(path) for path in versions]
    done = 0
    while not end.is_set():
        way = draw.choice(ways)
        if way == "copy":
            copy_files(draw.choice(versions), target, draw)
            time.sleep(draw.choice((0, 0.02, 0.1)))  # so that there is something whole at times
        elif way == "learn":
            shutil.rmtree(target)
            train(place, draw.randrange(1, VERSIONS + 1), target)
            time.sleep(draw.choice((0, 0.02, 0.1)))
        elif way == "grow":
            grow(target, versions, draw)
        elif way == "correct":
            with contextlib.suppress(ModelChangedError, ModelLockedError):  # another writer was faster
                correct(target, versions, draw)
        elif way == "prune":
            load_model(target).pruned(0.02 if place == "corrected" else 0.2).save(target, overwrite=True)
        else:
            draw.choice(models).save(target, overwrite=True)
        done += 1
        time.sleep(draw.random() * 2 * rest)
    end.report(f"writes to {place}", done)


def copy_files(source: Path, target: Path, draw: random.Random) -> None:
    files = [path.relative_to(source) for path in source.rglob("*") if path.is_file()]
    draw.shuffle(files)
    if draw.random() < 0.5:
        files.sort()
    for file in files:
        new = target / file.parent / f".{file.name}.{draw.randrange(10**6)}"
        shutil.copy2(source / file, new)
        new.replace(target / file)


def read(places: dict[str, Path], loads: int, seed: int, end: Any) -> None:
    """Opens places until there were so many loads, or the end."""
    draw = random.Random(seed)
    counts: Counter[str] = Counter()
    weights = [PLACES[place][2] for place in places]
    for number in range(loads):
        if number % 500 == 0:
            end.report_all(counts)
            if end.is_set():
                break
        (place,) = draw.choices(list(places), weights)
        checksums = draw.random() < 0.4
        how = f"{place}, {'with' if checksums else 'without'} checksums"
        counts["loads"] += 1
        try:
            reader = ModelReader(places[place], checksums=checksums)
            counts["opened again"] += reader.tries - 1
            found = numbers(umpteen.load(reader))
        except ModelError as error:
            message = re.sub(r"\S+?: |[0-9a-f]{12}…|\d+|;.*", "", str(error).replace("\n", " "))
            counts[f"{how}: {type(error).__name__}: {message:.100}"] += 1
            counts["failed"] += place not in _ALONE
            continue
        except Exception as error:
            counts[f"{how}: UNEXPECTED {type(error).__name__}: {str(error)[:80]}"] += 1
            counts["unexpected"] += 1
            continue
        counts[f"{how}: whole" if len(found) == 1 else f"{how}: MIXED"] += 1
        counts["mixed"] += len(found) != 1
    end.report_all(counts)


class End:
    """What ends all processes, and takes what they counted."""

    def __init__(self) -> None:
        self._set, self._lines = multiprocessing.Event(), multiprocessing.Queue()

    def is_set(self) -> bool:
        return self._set.is_set() or os.getppid() == 1

    def set(self) -> None:
        self._set.set()

    def report(self, key: str, count: int) -> None:
        self._lines.put((key, count))

    def report_all(self, counts: Counter[str]) -> None:
        """Reports what was counted, and begins anew."""
        for key, count in counts.items():
            self.report(key, count)
        counts.clear()

    def take(self, counts: Counter[str]) -> None:
        while not self._lines.empty():
            key, count = self._lines.get()
            counts[key] += count


def torture(
    folder: Path, loads: int, seconds: float, readers: int, writers: int, seed: int, rest: float
) -> Counter[str]:
    versions = make_versions(folder)
    places = {place: folder / f"{place}.model" for place in PLACES}
    for place, target in places.items():
        shutil.copytree(versions[place][0], target)
    end, counts = End(), Counter[str]()
    writing = [
        multiprocessing.Process(target=write, args=(place, places[place], versions[place], seed + n, rest, end))
        for place in PLACES
        for n in range(1 if place in _ALONE else writers)
    ]
    reading = [
        multiprocessing.Process(target=read, args=(places, -(-loads // readers), seed + 100 + n, end))
        for n in range(readers)
    ]
    for process in [*writing, *reading]:
        process.start()
    began = shown = time.monotonic()
    while any(process.is_alive() for process in reading) and time.monotonic() - began < seconds:
        time.sleep(0.2)
        end.take(counts)
        if time.monotonic() - shown > 60:
            shown = time.monotonic()
            said = ", ".join(f"{counts[key]:,} {key}" for key in _SUMMARY)
            print(f"{(shown - began) / 60:.0f} min: {said}", flush=True)
    end.set()
    for process in [*reading, *writing]:
        while process.is_alive():
            process.join(0.2)
            end.take(counts)
        counts["died"] += process.exitcode != 0
    end.take(counts)
    return counts


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--loads", type=int, default=1_000_000)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--readers", type=int, default=2)
    parser.add_argument("--writers", type=int, default=1, help="for each place that takes several")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rest", type=float, default=0.05, help="mean seconds that a writer rests after a write")
    parser.add_argument("--folder", type=Path, help="where to write; by default memory, or a temporary directory")
    parser.add_argument("--record", type=Path, help="a page that gets what came of it")
    options = parser.parse_args()
    memory = Path("/dev/shm")
    folder = options.folder or (memory if os.access(memory, os.W_OK) else None)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="umpteen-torture-", dir=folder) as name:
        counts = torture(
            Path(name), options.loads, options.seconds, options.readers, options.writers, options.seed, options.rest
        )
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    summary = {key: counts[key] for key in _SUMMARY} | {
        "cpu_minutes": round(sum(u.ru_utime + u.ru_stime for u in used) / 60, 1),
        "minutes": round((time.monotonic() - began) / 60, 1),
    }
    print(json.dumps(summary))
    lines = [f"{counts[key]:9,}  {key}" for key in sorted(set(counts) - set(summary))]
    print("\n".join(lines))
    if options.record is not None:
        options.record.write_text(_page(summary, lines, options))
    bad = counts["mixed"] + counts["failed"] + counts["unexpected"] + counts["died"]
    return 1 if bad or not counts["loads"] else 0


def _page(summary: dict[str, Any], lines: list[str], options: argparse.Namespace) -> str:
    """The page of a run: how it was made, how much there was, and what came of it by place and kind."""
    command = (
        f"python -m tests.torture --loads {options.loads} --readers {options.readers} --writers {options.writers} "
        f"--rest {options.rest:g} --seed {options.seed}"
    )
    return (
        "# Opened while others replace them\n\n"
        f"`{command}`, umpteen {umpteen.__version__}, Python {platform.python_version()}, {platform.system()} "
        f"{platform.release()}, {os.cpu_count()} cores. tests/torture.py says what is done.\n\n"
        f"| {' | '.join(summary)} |\n|{'---:|' * len(summary)}\n"
        f"| {' | '.join(f'{value:,}' for value in summary.values())} |\n\n"
        "A load is mixed if names, counts and weights are of two versions; failed if it is refused where there is\n"
        "always a whole model; opened again where a writer was faster. Where files are copied one by one, or a\n"
        "directory is trained anew, there is often no whole model, and the error must say so.\n\n"
        "```\n" + "\n".join(lines) + "\n```\n"
    )


if __name__ == "__main__":
    sys.exit(main())
