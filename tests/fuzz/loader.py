"""Model directories with anything in them damaged."""

from __future__ import annotations

import contextlib
import faulthandler
import hashlib
import json
import os
import random
import resource
import shutil
import signal
import struct
from collections import Counter
from collections.abc import Callable, Iterable
from functools import cache, partial
from itertools import islice
from pathlib import Path

from .families import questions, train_families, train_grown
from .inputs import Bytes, Finding, change_json, change_number, scratch, to_json

#: Memory a damaged model may cost beyond what was there before.
ROOM = 1 << 30
#: Seconds of processor time one may take.
PATIENCE = 20


class Directory:
    """A copy of a model that is damaged and made whole again."""

    def __init__(self, model: Path, place: Path) -> None:
        self.path = place / model.name
        shutil.copytree(model, self.path, dirs_exist_ok=True)
        self._original = {p: p.read_bytes() for p in sorted(self.path.rglob("*")) if p.is_file()}
        # What is opened is the manifest and the arrays; the parts' own records are for resuming.
        self.files = [p for p in self._original if p.name == "manifest.json" or p.suffix == ".npy"]

    def restore(self) -> None:
        there = {p for p in self.path.rglob("*") if p.is_symlink() or not p.is_dir()}
        for extra in there - self._original.keys():
            extra.unlink()
        for file, content in self._original.items():
            if self._is_changed(file):
                file.rmdir() if file.is_dir() and not file.is_symlink() else file.unlink(missing_ok=True)
                file.write_bytes(content)

    def _is_changed(self, file: Path) -> bool:
        if file.is_symlink() or not file.is_file() or file.stat().st_size != len(self._original[file]):
            return True
        return file.read_bytes() != self._original[file]

    def changed(self) -> bool:
        return any(map(self._is_changed, self.files))

    def damage(self, choices: Bytes) -> list[str]:
        """One to four changes; returns what was done."""
        return [self._change(choices) for _ in range(choices.pick((1, 1, 1, 2, 2, 3)))]

    def _change(self, choices: Bytes) -> str:
        kind = choices.pick(
            ("bytes", "bytes", "array", "array", "json", "json", "json", "number", "text", "size", "file")
        )
        file = choices.pick(self.files)
        if kind in ("json", "number", "text"):
            file = self.path / "manifest.json"
        if not file.is_file() or file.is_symlink() or file.stat().st_size > 1 << 22:
            return f"{file.name} is gone"
        content = bytearray(file.read_bytes())
        if kind == "bytes" and content:
            for _ in range(1 + choices.number(3)):
                content[choices.number(len(content))] = choices.number(256)
        elif kind == "array" and file.suffix == ".npy" and len(content) > 136:
            width = choices.pick((1, 2, 4, 8))
            at = 128 + choices.number(max(1, (len(content) - 128) // width)) * width
            value = choices.pick((0, 1, -1, 2**31 - 1, -(2**31), 0x7C00, 0x7E00, 0x7FC00000, 0x7F800000, 255, 2**40))
            content[at : at + width] = struct.pack("<q", value)[: len(content[at : at + width])]
        elif kind in ("json", "number"):
            with contextlib.suppress(ValueError, RecursionError, OverflowError):  # of numbers that are no float
                manifest = json.loads(content)
                what = (change_json if kind == "json" else change_number)(manifest, choices)
                content = bytearray(to_json(manifest))
                file.write_bytes(content)
                return what
        elif kind == "text":
            begin = choices.number(max(1, len(content)))
            content[begin : begin + choices.number(9)] = choices.some(8)
        elif kind == "size":
            size = choices.pick((0, 1, 64, 127, 128, len(content) - 1, len(content) // 2, len(content) + 8))
            content = content[: max(0, size)].ljust(max(0, size), b"\0")
        elif kind == "file":
            return self._replace_file(file, choices)
        file.write_bytes(content)
        return f"{kind} of {file.parent.name}/{file.name}"

    def _replace_file(self, file: Path, choices: Bytes) -> str:
        other = choices.pick(self.files)
        how = choices.pick(("swap", "gone", "link", "directory", "pipe", "holes", "version"))
        if how == "swap" and other.is_file() and not other.is_symlink():
            a, b = file.read_bytes(), other.read_bytes()
            file.write_bytes(b)
            other.write_bytes(a)
        elif how == "link":
            file.unlink()
            file.symlink_to(choices.pick(("/dev/null", "/dev/zero", "/proc/self/maps", "/nowhere", str(other))))
        elif how == "pipe":
            file.unlink()
            os.mkfifo(file)
        elif how == "holes":
            os.truncate(file, choices.pick((1 << 20, 3 << 30)))
        elif how == "directory":
            file.unlink()
            file.mkdir()
        elif how == "version" and file.suffix == ".npy":  # other content of the same shape under its own header
            content = bytearray(file.read_bytes())
            at = content.find(b"# sha256 ")
            content[at + 9 : at + 73] = hashlib.sha256(choices.some(4)).hexdigest().encode()
            file.write_bytes(content)
        else:
            file.unlink(missing_ok=True)
        return f"{how} {file.parent.name}/{file.name}"


class Families:
    """Models to damage, with what they say when they are whole."""

    def __init__(self) -> None:
        import umpteen

        place = scratch()
        whole = place / "whole"
        whole.mkdir()
        self.models = train_families(whole) | train_grown(whole)
        (place / "copy").mkdir()
        self.copies = {name: Directory(path, place / "copy") for name, path in self.models.items()}
        self.answers = {name: questions(umpteen.load(path)) for name, path in self.models.items()}


families = cache(Families)


def try_loader(data: bytes) -> str:
    """The first byte says which family; the others what is done to it. Returns what came of it."""
    import umpteen
    from umpteen.errors import MemoryLimitError, UmpteenError

    choices = Bytes(data)
    world = families()
    name = choices.pick(sorted(world.copies))
    copy = world.copies[name]
    try:
        done = copy.damage(choices)
        try:
            questions(umpteen.load(copy.path))
            outcome = "answered"
        except (UmpteenError, MemoryLimitError) as error:
            if not str(error):
                raise Finding("an error must say what is wrong") from error
            outcome = "refused"
        except Finding as found:
            raise Finding(f"{name}: {found} ({'; '.join(done)})") from found
        # With checksums nothing that was changed may be answered, unless it is what was answered before.
        try:
            answers = questions(umpteen.load(copy.path, checksums=True))
        except UmpteenError:
            return f"{outcome}, by checksums refused"
        if answers != world.answers[name]:
            raise Finding(f"{name}: other answers in spite of checksums ({'; '.join(done)})")
        return f"{outcome}, and rightly" if copy.changed() else "not changed"
    finally:
        copy.restore()


def mutate_models(mutations: int, seed: int, each: Callable[[bytes], str] = try_loader) -> Counter[str]:
    """Damages models so many times, by bytes that are drawn."""
    families()  # made once, before the processes are
    drawn = (random.Random(f"{seed}-{number}").randbytes(64) for number in range(mutations))
    return run_apart((data.hex(), partial(each, data)) for data in drawn)


def run_apart(cases: Iterable[tuple[str, Callable[[], str]]]) -> Counter[str]:
    """Runs what has names, some hundred at a time in a process that has limits on memory and time, and counts what
    came of it. A process that dies, and whatever else must not be, is reported with the name of what did it."""
    outcomes: Counter[str] = Counter()
    rest = iter(cases)
    while some := list(islice(rest, 250)):
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reader)
            code = 1
            try:
                _run_some(some, writer)
                code = 0
            finally:
                os._exit(code)
        os.close(writer)
        with os.fdopen(reader, errors="replace") as pipe:
            lines = pipe.read().splitlines()
        _, status = os.waitpid(child, 0)
        for line in lines:
            kind, _, text = line.partition(" ")
            if kind == "did":
                outcomes[text] += 1
            elif kind == "found":
                outcomes["FOUND"] += 1
                print(text, flush=True)
        if status != 0:
            outcomes["FOUND"] += 1
            print(f"the process died with status {status} at {lines[-1] if lines else 'its start'}", flush=True)
    return outcomes


def _run_some(cases: list[tuple[str, Callable[[], str]]], writer: int) -> None:
    faulthandler.enable()
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    if "libasan" not in os.environ.get("LD_PRELOAD", ""):  # which maps terabytes it does not use
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + ROOM, used + ROOM))

    def write(line: str) -> None:
        os.write(writer, f"{line!r}"[1:-1].encode("ascii", "backslashreplace") + b"\n")

    for name, case in cases:
        write(f"try {name}")
        signal.setitimer(signal.ITIMER_PROF, PATIENCE)  # ends the process
        try:
            outcome = f"did {case()}"
        except BaseException as error:
            trace = error.__traceback__
            while trace is not None and trace.tb_next is not None:
                trace = trace.tb_next
            where = f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}" if trace else ""
            outcome = f"found {type(error).__name__}: {str(error)[:300]!r} at {where} by {name}"
        signal.setitimer(signal.ITIMER_PROF, 0)
        write(outcome)
