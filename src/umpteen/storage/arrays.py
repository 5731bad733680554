"""Arrays as .npy files: written, mapped and compared with their entries in the manifest. No header is parsed.

    {'descr': '<f4', 'fortran_order': False, 'shape': (10, ), }  # sha256 9f86d081…

A comment after the header that NumPy reads has the SHA-256 of the content that follows. The manifest has it too. So a
header alone shows whether a file belongs to this version of the model, even if all shapes are the same: a directory
that is being copied over another, file by file, is never mistaken for either.

In format 1, headers had no such comment, and checksums covered whole files.
"""

from __future__ import annotations

import hashlib
import math
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from umpteen.errors import ModelCorruptError, ModelError, ModelFormatError
from umpteen.storage.disk import write_synced
from umpteen.storage.folder import Folder, map_file

#: What arrays and parts may be called, and what arrays may hold.
NAME = re.compile(r"[a-z][a-z0-9_-]{0,63}")
DTYPES = {
    name: np.dtype(name).newbyteorder("<")
    for name in ("uint8", "uint16", "uint32", "int32", "int64", "float16", "float32", "float64")
}

Entry = Mapping[str, Any]


def _npy_header(dtype: str, shape: Sequence[int], sha256: str | None) -> bytes:
    """The header of a NumPy 1.0 file, always the same bytes for the same array, so that opening compares headers and
    never parses one. `sha256` is that of the content; None in format 1."""
    sizes = "".join(f"{n}, " for n in shape) if len(shape) != 1 else f"{shape[0]},"
    text = f"{{'descr': {DTYPES[dtype].str!r}, 'fortran_order': False, 'shape': ({sizes}), }}"
    text += "" if sha256 is None else f"  # sha256 {sha256}"
    padding = -(len(text) + 11) % 64
    return (
        b"\x93NUMPY\x01\x00" + (len(text) + padding + 1).to_bytes(2, "little") + f"{text}{' ' * padding}\n".encode()
    )


def _header_of(entry: Entry, version: int) -> bytes:
    """The header that an entry's file must have in a format version."""
    return _npy_header(entry["dtype"], entry["shape"], entry["sha256"] if version > 1 else None)


def size_of(entry: Entry, version: int) -> int:
    """The size that an entry's file must have."""
    return len(_header_of(entry, version)) + math.prod(entry["shape"]) * DTYPES[entry["dtype"]].itemsize


def encode_array(key: str, array: NDArray[Any]) -> tuple[list[Any], dict[str, Any]]:
    """The pieces of an array's file, and its entry in the record."""
    if not NAME.fullmatch(key) or array.dtype.name not in DTYPES:
        raise ModelFormatError(f"array {key!r} of type {array.dtype} cannot be stored")
    content = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
    digest = hashlib.sha256(content.data).hexdigest()
    header = _npy_header(array.dtype.name, array.shape, digest)
    entry = {
        "dtype": array.dtype.name,
        "shape": list(array.shape),
        "bytes": len(header) + content.nbytes,
        "sha256": digest,
    }
    return [header, content.data], entry


def decode_array(file: object, content: bytes, entry: Entry, version: int, *, checksums: bool) -> NDArray[Any]:
    """The array of a file that was read whole."""
    header = _header_of(entry, version)
    _check_size(file, len(content), entry)
    _check_header(file, content[: len(header)], header, entry)
    raw = np.frombuffer(content, np.uint8)
    if checksums:
        check_content(file, raw, entry, version)
    return _view(raw, len(header), entry)


def write_array(file: Path, key: str, array: NDArray[Any]) -> dict[str, Any]:
    pieces, entry = encode_array(key, array)
    write_synced(file, pieces)
    return entry


def map_array(folder: Folder, key: str, entry: Entry, version: int) -> tuple[NDArray[np.uint8], NDArray[Any]]:
    """Checks the kind, size and header of a part's file and maps it: all of its bytes, and the array."""
    name = f"{key}.npy"
    file = folder.path / name
    header = _header_of(entry, version)
    with folder.open(name) as (handle, found):
        _check_size(file, found.st_size, entry)
        _check_header(file, os.read(handle, len(header)), header, entry)
        if found.st_size == len(header):  # nothing to map
            raw = np.frombuffer(header, np.uint8)
        else:
            try:
                raw = map_file(handle, found.st_size)
            except OSError as error:
                raise ModelError(f"{file}: cannot be mapped ({error.strerror})") from error
    return raw, _view(raw, len(header), entry)


def check_content(file: object, raw: NDArray[np.uint8], entry: Entry, version: int) -> None:
    """Compares all bytes of a file with its checksum."""
    begin = len(_header_of(entry, version)) if version > 1 else 0
    found = hashlib.sha256(raw[begin:].data).hexdigest()
    if found != entry["sha256"]:
        raise ModelCorruptError(f"{file}: its SHA-256 must be {entry['sha256']}, but is {found}")


def _view(raw: NDArray[np.uint8], begin: int, entry: Entry) -> NDArray[Any]:
    array: NDArray[Any] = raw[begin:].view(DTYPES[entry["dtype"]]).reshape(entry["shape"])
    return array


def _check_size(file: object, found: int, entry: Entry) -> None:
    if found != entry["bytes"]:
        raise ModelCorruptError(f"{file}: must have {entry['bytes']} bytes, but has {found}")


def _check_header(file: object, found: bytes, header: bytes, entry: Entry) -> None:
    if found == header:
        return
    before, mark, _ = header.partition(b"# sha256 ")
    if mark and found.startswith(before + mark):
        raise ModelCorruptError(
            f"{file}: belongs to another version of the model than the manifest, which expects content "
            f"{entry['sha256'][:12]}…; is the directory being copied, or was a copy interrupted?"
        )
    raise ModelCorruptError(
        f"{file}: must be a NumPy array of {entry['dtype']} and shape {entry['shape']}, but its header differs"
    )
