"""Work in a process of its own, killed at a point that is drawn."""

from __future__ import annotations

import os
import random
import resource
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

#: Steps on disk, as Python reports them (sys.addaudithook).
STEPS = {"open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.chmod", "os.truncate", "shutil.rmtree"}


def fork(work: Callable[[], None], prepare: Callable[[], None] = lambda: None) -> int:
    """Starts work in a process of its own; this one must have no threads."""
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        prepare()
        work()
        code = 0
    except BaseException as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
    finally:
        os._exit(code)


def run(work: Callable[[], None], prepare: Callable[[], None] = lambda: None) -> None:
    """Does work to its end, in a process of its own."""
    _, status = os.waitpid(fork(work, prepare), 0)
    assert status == 0, f"the work failed with status {status}"


def watch_steps(folder: Path, act: Callable[[], None]) -> Callable[[], None]:
    """What has `act` called before every step on disk that concerns a folder."""

    def prepare() -> None:
        inside, fsync = os.fspath(folder), os.fsync

        def on_event(event: str, args: tuple[Any, ...]) -> None:
            # Removing is reported with names inside a directory that is open, so all of it counts.
            if event in STEPS and (event == "os.remove" or inside in os.fspath(str(args[0]))):
                act()

        def sync(handle: int) -> None:
            act()
            fsync(handle)

        os.fsync = sync
        sys.addaudithook(on_event)

    return prepare


def count_steps(folder: Path, work: Callable[[], None]) -> int:
    """How many steps on disk work takes."""
    with tempfile.NamedTemporaryFile() as file:
        handle = os.open(file.name, os.O_WRONLY | os.O_APPEND)
        run(work, watch_steps(folder, lambda: os.write(handle, b"x") and None))
        os.close(handle)
        return Path(file.name).stat().st_size


@dataclass
class Killer:
    """Kills a piece of work at a point that is drawn; what it takes when left alone is measured first."""

    folder: Path
    work: Callable[[], None]
    seconds: float
    steps: int
    largest: int

    def kill(self, mode: str, draw: random.Random) -> bool:
        """Whether the work was killed before its end."""
        prepare, delay = lambda: None, None
        if mode == "step":
            left = draw.randrange(self.steps)

            def count() -> None:
                nonlocal left
                if left == 0:
                    os.kill(os.getpid(), signal.SIGKILL)
                left -= 1

            prepare = watch_steps(self.folder, count)
        elif mode == "torn":
            limit = draw.randrange(1, self.largest)

            def prepare() -> None:
                signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
                resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

        else:
            delay = draw.uniform(0, self.seconds * 1.1)
        child = fork(self.work, prepare)
        if delay is not None:
            time.sleep(delay)
            os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        assert not os.WIFEXITED(status) or os.WEXITSTATUS(status) == 0, f"the work failed with status {status}"
        return os.WIFSIGNALED(status)
