"""The file that labels go to. It gets its name when it is complete.

Until then it is called NAME.part. In formats that can be continued, NAME.part.json says how far it is, and what it is
made from: the input, the model and the options. If these are the same, the next run continues there.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
import sys
import time
from pathlib import Path
from typing import IO, Any

from umpteen.data.files import PathLike, open_compressed
from umpteen.data.tables.lines import STANDARD_INPUT
from umpteen.errors import DataError
from umpteen.printing import printable
from umpteen.storage.disk import replace_file

#: Seconds between two notes of how far a file is.
_EVERY = 2.0
_MOST_NOTE = 1 << 20


class _Terminal:
    """A terminal, which would obey control characters in names and texts; they are written out. Gets whole lines."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    def write(self, data: bytes) -> int:
        self._file.write(printable(data.decode("utf-8", "replace"), lines=True).encode())
        return len(data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


class Target:
    """Where labels go.

    Attributes
    ----------
    name : str
        Where labels go, for messages.
    n_rows : int
        How many rows of the input an earlier run has done.
    columns : list of str or None
        The columns of the input that it found.
    """

    def __init__(self, path: PathLike, made_from: dict[str, Any] | None) -> None:
        self.path = None if str(path) == STANDARD_INPUT else Path(path)
        self.name = str(path)
        self._is_device = False
        self.n_rows = 0
        self.columns: list[str] | None = None
        self._made_from = made_from
        self._noted = time.monotonic()
        self._safe, self._n_noted = (0, 0), 0
        if self.path is None:
            output: Any = sys.stdout.buffer
            self.file: IO[bytes] = _Terminal(output) if sys.stdout.isatty() else output  # type: ignore[assignment]
            return
        if self.path.is_dir():
            raise DataError(f"{self.path}: is a directory, but must be a file")
        if self.path.exists() and not self.path.is_file():  # such as a pipe: nothing to be renamed
            self.file, self.path, self._is_device = self.path.open("wb"), None, True
            return
        if self.path.is_symlink():
            self.path = self.path.resolve()
        self._part = self.path.with_name(f"{self.path.name}.part")
        self._note = self.path.with_name(f"{self.path.name}.part.json")
        self._lock = _lock(self._part)
        known = self._read_note()
        if known is not None:
            self.n_rows, self.columns = known["rows"], known["columns"]
            self._safe, self._n_noted = (known["rows"], known["bytes"]), known["rows"]
            os.truncate(self._part, known["bytes"])
            self.file = self._part.open("ab")
        else:
            self._note.unlink(missing_ok=True)
            self.file = open_compressed(self.path.suffix)(self._part)

    def _read_note(self) -> dict[str, Any] | None:
        """How far an earlier run came, if it did the same."""
        if self._made_from is None or not self._note.is_file() or self._note.stat().st_size > _MOST_NOTE:
            return None
        try:
            note = json.loads(self._note.read_bytes())
            same = note["made_from"] == json.loads(json.dumps(self._made_from))
            fits = all(type(note[key]) is int and note[key] >= 0 for key in ("rows", "bytes"))
            fits = (
                fits and isinstance(note["columns"], list) and all(isinstance(name, str) for name in note["columns"])
            )
            return note if same and fits and self._part.stat().st_size >= note["bytes"] else None
        except (ValueError, KeyError, TypeError, RecursionError):
            return None

    @property
    def is_continuable(self) -> bool:
        """Whether another run may go on where this one is interrupted."""
        return self.path is not None and self._made_from is not None

    def advance(self, n_rows: int, columns: list[str]) -> None:
        """Takes down that so many rows of the input are written, and notes it every now and then."""
        if not self.is_continuable:
            return
        self.file.flush()  # raises before these rows count as written, if the disk is full
        self._safe, self.columns = (n_rows, self.file.tell()), columns
        if time.monotonic() - self._noted >= _EVERY:
            self._write_note()

    def _write_note(self) -> None:
        os.fsync(self.file.fileno())
        rows, size = self._safe
        note = {"made_from": self._made_from, "rows": rows, "bytes": size, "columns": self.columns}
        replace_file(self._note, json.dumps(note).encode())
        self._noted, self._n_noted = time.monotonic(), rows

    def finish(self) -> None:
        """Gives the file its name."""
        if self.path is None:
            self.file.flush()
            self._close_device()
            return
        self.file.close()
        if self.path.exists():  # what is replaced may be for its owner alone
            self._part.chmod(stat.S_IMODE(self.path.stat().st_mode))
        self._part.replace(self.path)
        self._note.unlink(missing_ok=True)
        self._unlock()

    def abandon(self, keep: bool) -> int:
        """Ends the work before it is done. Returns how many rows are kept, to be continued; else all is removed."""
        if self.path is None:
            with contextlib.suppress(OSError, ValueError):
                self._close_device()
            return 0
        n_rows = self._safe[0] if keep and self._made_from is not None else 0
        if n_rows:
            try:
                os.truncate(self._part, self._safe[1])  # on a full disk, half a batch gives room for the note
                self._write_note()
            except OSError:
                n_rows = self._n_noted
        kept = n_rows > 0
        with contextlib.suppress(OSError, ValueError):
            self.file.close()
        if not kept:
            self._part.unlink(missing_ok=True)
            self._note.unlink(missing_ok=True)
        self._unlock()
        return n_rows

    def _close_device(self) -> None:
        if self._is_device:
            self.file.close()

    def _unlock(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def _lock(part: Path) -> int | None:
    """Makes sure that one process writes a file; None where that is not possible."""
    try:
        handle = os.open(part, os.O_RDWR | os.O_CREAT, 0o666)
    except OSError as error:
        raise type(error)(error.errno, error.strerror, str(part.with_suffix(""))) from error
    try:
        import fcntl

        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not os.path.samestat(os.fstat(handle), os.stat(part)):  # noqa: PTH116 - got its name since it was opened
            raise BlockingIOError
    except (BlockingIOError, FileNotFoundError):
        os.close(handle)
        raise DataError(f"{part}: another process is writing this file") from None
    except (ImportError, OSError):
        os.close(handle)
        return None
    return handle


def describe_input(path: PathLike) -> dict[str, Any] | None:
    """What identifies the content of an input; None if it can be read only once."""
    if str(path) == STANDARD_INPUT or not Path(path).is_file():
        return None
    found = Path(path).stat()
    return {"path": str(Path(path).resolve()), "bytes": found.st_size, "changed": found.st_mtime_ns}
