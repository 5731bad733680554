"""Fuzzers guided by coverage: their seeds, and rounds until they had their time."""

from __future__ import annotations

import gzip
import random
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from . import own
from .http import try_http
from .inputs import scratch
from .loader import try_loader
from .readers import try_readers
from .sockets import try_sockets

ROOT = Path(__file__).resolve().parents[2]
#: Seconds by the clock, where only those can be limited: the machine may have other things to do.
ROUND_PATIENCE = 1800

TARGETS: dict[str, Callable[[bytes], Any]] = {
    "readers": try_readers, "loader": try_loader, "http": try_http, "sockets": try_sockets,
}  # fmt: skip


def seeds(target: str) -> Iterator[bytes]:
    """Inputs to begin with."""
    if target == "text":
        for text in (b"2 5 4\n2,0 4:1.25 1:0.5\n 0:2\n", b"0,1 0:1 # c\n\n1 2:3e-4\r\n", b" \n0\n", b"1:1 2:-0.5\n"):
            for how in (0, 1, 2, 4, 6, 26, 96):
                yield bytes([how]) + text
    elif target == "readers":
        import umpteen

        texts = {
            0: b'{"text": "Herring", "labels": ["fish", "law"]}\n{"text": "b", "subjects": [{"uri": "x"}]}\n',
            1: b'text,labels\n"Herring, and ""more""",fish;law\nb,\n',
            2: b"text\tlabels\nHerring\tfish law\n",
            3: b"Herring\t<http://e.org/fish> <http://e.org/law>\n",
            5: b"1,2 1:0.5 3:1 # c\n\n0 2:1\n",
            6: "law\nhäring\r\n魚\n".encode(),
            7: b"2 5 4\n2,0 4:1.25 1:0.5\n 0:2\n",
        }
        for format, text in texts.items():
            for how in (0, 1, 2, 8, 16):
                yield bytes([format, how]) + text
        for how in (32, 96, 160, 224):  # in streams: gzip, bzip2, xz, Zstandard
            for damage in (b"\0", b"\x01", b"U", b"\xff"):
                yield bytes([0, how]) + damage + texts[0] * 3
        file = scratch() / "seed.npz"
        umpteen.write_npz(umpteen.make_synthetic(3, 4, 2, labels_per_row=1, features_per_row=2, seed=0), file)
        yield b"\x04\x00" + file.read_bytes()
        yield b"\x00\x00" + gzip.compress(texts[0])
    else:
        draw = random.Random(0)
        for _ in range(200):
            yield draw.randbytes(draw.choice((8, 20, 40)))


def guide(target: str, corpus: Path, seconds: int, engine: str) -> None:
    """One round of a guided fuzzer, in this process; ends it."""
    if engine == "own":
        own.guide(TARGETS[target], corpus, seconds)
        return
    import atheris

    with atheris.instrument_imports(include=["umpteen"]):
        import umpteen
        import umpteen.methods
        import umpteen.serving.app
        import umpteen.serving.worker
        import umpteen.tagger

        for name in umpteen.__all__:
            getattr(umpteen, name)
    TARGETS[target](b"\0" * 8)  # what is made once is made before memory is counted
    atheris.Setup(
        [
            sys.argv[0], f"-max_total_time={seconds}", "-rss_limit_mb=3000", f"-timeout={ROUND_PATIENCE}",
            "-max_len=4096", "-print_final_stats=1", f"-artifact_prefix={corpus.parent}/found-", str(corpus),
        ],
        lambda data: TARGETS[target](bytes(data)) and None,
    )  # fmt: skip
    atheris.Fuzz()


def fuzz(target: str, cpu_minutes: float, work: Path, round_seconds: int, engine: str) -> dict[str, Any]:
    """Rounds of a guided fuzzer until it has used its time on a processor; what it found stops it."""
    corpus = work / target / "corpus"
    corpus.mkdir(parents=True, exist_ok=True)
    for i, seed in enumerate(seeds(target)):
        (corpus / f"seed-{i}").write_bytes(seed)
    if target == "text":
        build = work / "build"
        subprocess.run(
            ["cmake", "-S", str(ROOT), "-B", str(build), "-G", "Ninja", "-DCMAKE_CXX_COMPILER=clang++",
             "-DUMPTEEN_PYTHON=OFF", "-DUMPTEEN_FUZZ=ON"], check=True, stdout=subprocess.DEVNULL,
        )  # fmt: skip
        subprocess.run(["ninja", "-C", str(build), "text_reader_fuzz"], check=True, stdout=subprocess.DEVNULL)
        command = [
            str(build / "text_reader_fuzz"), f"-max_total_time={round_seconds}", "-max_len=4096",
            "-print_final_stats=1", f"-timeout={ROUND_PATIENCE}", f"-artifact_prefix={corpus.parent}/found-",
            str(corpus),
        ]  # fmt: skip
    else:
        command = [sys.executable, "-m", "tests.fuzz", "guide", target, str(corpus), str(round_seconds)]
        command += ["--engine", engine]
    used, inputs, coverage, stopped = 0.0, 0, "", ""
    while used < cpu_minutes * 60 and not stopped:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, errors="replace")
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        used += after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        for line in done.stderr.splitlines():
            if line.startswith("stat::number_of_executed_units:"):
                inputs += int(line.split()[-1])
            elif " cov: " in line:
                coverage = line.split(" cov: ")[1].split()[0]
        if done.returncode != 0:
            stopped = "\n".join((done.stderr + done.stdout).splitlines()[-60:])
        print(f"{target}: {used / 60:.1f} CPU minutes, {inputs} inputs, coverage {coverage}", flush=True)
    if stopped:
        print(stopped)
    return {
        "target": target,
        "guided by": "libFuzzer" if target == "text" else engine,
        "cpu_minutes": round(used / 60, 1),
        "inputs": inputs,
        "coverage": coverage,
        "corpus": len(list(corpus.iterdir())),
        "findings": int(bool(stopped)),
    }
