"""Models that are opened while others replace them: which version, whole, or an error; never a mixture of two.

    python -m tests.torture --loads 1000000 --seconds 36000 --writers 2 --readers 2

There are five places. Writers, in processes of their own, do one of these to a place of theirs, for ever:

    replace    save(overwrite=True) of a model of few shards, or of many
    prune      load what is there, prune it, and save it in its place
    learn      remove what is there, and train another version into the same directory, shard by shard
    copy       copy another version over it, file by file, each by renaming, as rsync does, in an order that is drawn

Readers open places that are drawn, with and without checksums, and ask. Every version of a model has the same shapes
and a number of its own, which is in its label names, in its label counts and in its weights, in every shard. A load
that shows two numbers is mixed. Errors are counted by kind: while files are copied one by one, or shards are trained,
there is no whole version most of the time, and that is what the error must say. Where models are replaced there is
always one, and an error is a failure.

tests/records/torture.txt has the last long run.
"""

from __future__ import annotations

import argparse
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
from umpteen.errors import ModelError
from umpteen.storage.store import ModelReader

N_LABELS, N_FEATURES, VERSIONS = 60, 24, 6
_SUMMARY = ("loads", "opened again", "mixed", "failed", "unexpected", "died")
#: Place -> shards, and what its writers do to it.
PLACES = {
    "few": (2, ("replace",)),
    "many": (60, ("replace",)),
    "pruned": (6, ("prune", "replace")),
    "learned": (6, ("learn",)),
    "copied": (4, ("copy",)),
}


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
    X = np.random.default_rng(0).random((N_LABELS, N_FEATURES)).astype(np.float32)
    X[:, 0] = number
    X, Y = np.tile(X, (number, 1)), np.tile(np.eye(N_LABELS, dtype=np.float32), (number, 1))
    shard = N_LABELS // PLACES[place][0]
    model = umpteen.Centroid(labels_per_shard=shard, normalize=False, weight_type="float32", threads=1)
    model.fit(X, Y, path, label_names=[f"{number} {label}" for label in range(N_LABELS)])


def numbers(model: Any) -> set[int]:
    """The versions that a model's names, counts and weights are of."""
    row = np.zeros((1, N_FEATURES), np.float32)
    row[0, 0] = 1
    labels, scores = model.predict_topk(row, N_LABELS, threads=1)
    if sorted(labels[0].tolist()) != list(range(N_LABELS)):
        return {-1, -2}
    named = {int(name.split()[0]) for name in model.label_names}
    return named | set(model.train_counts.counts.tolist()) | {round(float(score), 3) for score in scores[0]}


def write(place: str, target: Path, versions: list[Path], seed: int, end: Any) -> None:
    """Replaces a place until the end."""
    draw = random.Random(seed)
    ways = PLACES[place][1]
    models = [umpteen.load(path) for path in versions]
    done = 0
    while not end.is_set():
        way = draw.choice(ways)
        if way == "copy":
            copy_files(draw.choice(versions), target, draw)
            time.sleep(draw.choice((0, 0.002, 0.02, 0.1)))  # so that there is something whole at times
        elif way == "learn":
            shutil.rmtree(target)
            train(place, draw.randrange(1, VERSIONS + 1), target)
            time.sleep(draw.choice((0, 0.02, 0.1)))
        elif way == "prune":
            umpteen.load(target).pruned(0.2).save(target, overwrite=True)
        else:
            draw.choice(models).save(target, overwrite=True)
        done += 1
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
    for _ in range(loads):
        if end.is_set():
            break
        place = draw.choice(list(places))
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
            counts["failed"] += bool({"replace", "prune"} & set(PLACES[place][1]))
            continue
        except Exception as error:
            counts[f"{how}: UNEXPECTED {type(error).__name__}: {str(error)[:80]}"] += 1
            counts["unexpected"] += 1
            continue
        counts[f"{how}: whole" if len(found) == 1 else f"{how}: MIXED"] += 1
        counts["mixed"] += len(found) != 1
    for key, count in counts.items():
        end.report(key, count)


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

    def take(self, counts: Counter[str]) -> None:
        while not self._lines.empty():
            key, count = self._lines.get()
            counts[key] += count


def torture(folder: Path, loads: int, seconds: float, readers: int, writers: int, seed: int) -> Counter[str]:
    versions = make_versions(folder)
    places = {place: folder / f"{place}.model" for place in PLACES}
    for place, target in places.items():
        shutil.copytree(versions[place][0], target)
    end, counts = End(), Counter[str]()
    writing = [
        multiprocessing.Process(target=write, args=(place, places[place], versions[place], seed + n, end))
        for place in PLACES
        for n in range(1 if place in ("copied", "learned") else writers)  # two at once would be in each other's way
    ]
    reading = [
        multiprocessing.Process(target=read, args=(places, -(-loads // readers), seed + 100 + n, end))
        for n in range(readers)
    ]
    for process in [*writing, *reading]:
        process.start()
    began = time.monotonic()
    while any(process.is_alive() for process in reading) and time.monotonic() - began < seconds:
        time.sleep(0.2)
        end.take(counts)
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
    parser.add_argument("--folder", type=Path, help="where to write; by default a temporary directory")
    options = parser.parse_args()
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="umpteen-torture-", dir=options.folder) as name:
        counts = torture(Path(name), options.loads, options.seconds, options.readers, options.writers, options.seed)
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    summary = {key: counts[key] for key in _SUMMARY} | {
        "cpu_minutes": round(sum(u.ru_utime + u.ru_stime for u in used) / 60, 1),
        "minutes": round((time.monotonic() - began) / 60, 1),
    }
    print(
        f"Python {platform.python_version()}, {platform.system()} {platform.release()}, umpteen {umpteen.__version__}"
    )
    print(json.dumps(summary))
    for key in sorted(set(counts) - set(summary)):
        print(f"{counts[key]:9,}  {key}")
    bad = counts["mixed"] + counts["failed"] + counts["unexpected"] + counts["died"]
    return 1 if bad or not counts["loads"] else 0


if __name__ == "__main__":
    sys.exit(main())
