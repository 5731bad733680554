"""Arrays as .npy files: written, mapped and compared with what the manifest says of them; no header is parsed."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from umpteen.errors import ModelCorruptError, ModelError, ModelFormatError, ModelMissingError
from umpteen.storage.disk import write_synced

#: What arrays and parts may be called, and what arrays may hold.
NAME = re.compile(r"[a-z][a-z0-9_-]{0,63}")
DTYPES = ("uint8", "uint16", "uint32", "int32", "int64", "float16", "float32", "float64")


def _npy_header(dtype: str, shape: Sequence[int]) -> bytes:
    """The header of a NumPy 1.0 file, always the same bytes for the same array. Knowing what it must be, we compare
    it on opening and never parse one."""
    descr = np.dtype(dtype).newbyteorder("<").str
    sizes = "".join(f"{n}, " for n in shape) if len(shape) != 1 else f"{shape[0]},"
    text = f"{{'descr': {descr!r}, 'fortran_order': False, 'shape': ({sizes}), }}"
    padding = -(len(text) + 11) % 64
    return (
        b"\x93NUMPY\x01\x00" + (len(text) + padding + 1).to_bytes(2, "little") + f"{text}{' ' * padding}\n".encode()
    )


def encode_array(key: str, array: NDArray[Any]) -> tuple[list[Any], dict[str, Any]]:
    """The pieces of an array's file, and its entry in the record."""
    if not NAME.fullmatch(key) or array.dtype.name not in DTYPES:
        raise ModelFormatError(f"array {key!r} of type {array.dtype} cannot be stored")
    header = _npy_header(array.dtype.name, array.shape)
    content = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
    digest = hashlib.sha256(header)
    digest.update(content.data)
    entry = {
        "dtype": array.dtype.name,
        "shape": list(array.shape),
        "bytes": len(header) + content.nbytes,
        "sha256": digest.hexdigest(),
    }
    return [header, content.data], entry


def decode_array(file: object, content: bytes, entry: Mapping[str, Any]) -> NDArray[Any]:
    """The array of a file that was read whole."""
    header = _npy_header(entry["dtype"], entry["shape"])
    dtype = np.dtype(entry["dtype"]).newbyteorder("<")
    n_bytes = math.prod(entry["shape"]) * dtype.itemsize
    if content[: len(header)] != header or len(content) != entry["bytes"] or entry["bytes"] != len(header) + n_bytes:
        raise ModelCorruptError(f"{file}: must be a NumPy array of {entry['dtype']} and shape {entry['shape']}")
    return np.frombuffer(content, dtype, offset=len(header)).reshape(entry["shape"])


def write_array(file: Path, key: str, array: NDArray[Any]) -> dict[str, Any]:
    pieces, entry = encode_array(key, array)
    write_synced(file, pieces)
    return entry


def map_array(file: Path, entry: Mapping[str, Any]) -> NDArray[Any]:
    header = _npy_header(entry["dtype"], entry["shape"])
    try:
        with file.open("rb") as handle:
            found = handle.read(len(header))
        dtype = np.dtype(entry["dtype"]).newbyteorder("<")
        n_bytes = math.prod(entry["shape"]) * dtype.itemsize
        if found != header or entry["bytes"] != len(header) + n_bytes:
            raise ModelCorruptError(
                f"{file}: must be a NumPy array of {entry['dtype']} and shape {entry['shape']}, "
                "but its header differs"
            )
        if n_bytes == 0:  # nothing to map
            return np.zeros(entry["shape"], dtype)
        return np.asarray(np.memmap(file, dtype, "r", len(header), tuple(entry["shape"])))
    except (OSError, ValueError) as error:
        if isinstance(error, ModelError):
            raise
        raise ModelMissingError(f"{file}: cannot be mapped ({error})") from error


def hash_file(file: Path) -> str:
    with file.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()
