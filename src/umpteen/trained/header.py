"""What the manifest of a trained model must hold, and what a newer umpteen may have written into it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from umpteen import __version__
from umpteen.data.preprocessing import Preprocessing
from umpteen.errors import ModelCorruptError, ModelFormatError
from umpteen.printing import printable
from umpteen.storage.store import Part


def is_newer(header: Mapping[str, Any]) -> bool:
    """Whether a newer umpteen made the model."""

    def numbers(version: Any) -> tuple[int, ...] | None:
        found = re.match(r"v?(\d{1,9})\.(\d{1,9})(?:\.(\d{1,9}))?", str(version)[:100])
        return tuple(int(number or 0) for number in found.groups()) if found else None

    made_by, this = numbers(header.get("umpteen_version")), numbers(__version__)
    return made_by is not None and this is not None and made_by > this


def explain_newer(header: Mapping[str, Any], error: Exception) -> Exception:
    """The error to raise for something unknown in a model: that a newer umpteen made it, if so; else `error`."""
    if not is_newer(header):
        return error
    return ModelFormatError(
        f"made by a newer umpteen, {printable(header['umpteen_version']):.40}; this is {__version__} ({error}). "
        "Use that version to open it"
    )


def check_header(header: Mapping[str, Any]) -> None:
    for key in ("n_train_rows", "n_features", "n_labels"):
        value = header.get(key)
        if not isinstance(value, int) or isinstance(value, bool) or not 0 < value <= 2**31:
            raise ModelCorruptError(f"{key} must be a positive count, but is {value!r:.100}")
    if not isinstance(header.get("method"), str):
        raise ModelCorruptError(f"method must be a name, but is {header.get('method')!r:.100}")
    if not isinstance(header.get("params"), dict):
        raise ModelCorruptError(f"params must be an object, but is {header.get('params')!r:.100}")


def open_preprocessing(header: Mapping[str, Any], parts: Mapping[str, Part]) -> Preprocessing:
    idf = parts["preprocessing"].array("idf", "float32") if "preprocessing" in parts else None
    if idf is not None and len(idf) != header["n_features"]:
        raise ModelCorruptError(f"there must be {header['n_features']} idf, but there are {len(idf)}")
    return Preprocessing.from_json(header.get("preprocessing"), idf)


def open_label_counts(header: Mapping[str, Any], parts: Mapping[str, Part]) -> NDArray[np.int64]:
    """The model's label counts, checked."""
    if "labels" not in parts or "counts" not in parts["labels"].arrays:
        raise ModelCorruptError("the part with the label counts is missing")
    counts, n_labels = parts["labels"].arrays["counts"], header["n_labels"]
    if counts.shape != (n_labels,):
        raise ModelCorruptError(f"there must be {n_labels} label counts, but their shape is {counts.shape}")
    if counts.dtype != np.int64:
        raise ModelCorruptError(f"label counts must be int64, but are {counts.dtype}")
    if counts.min(initial=0) < 0:
        raise ModelCorruptError(f"label counts must be at least 0, but one is {counts.min()}")
    return counts


def open_retired(header: Mapping[str, Any], parts: Mapping[str, Part]) -> NDArray[np.int32]:
    """The labels that are no longer to be given, checked."""
    if "retired" not in parts:
        return np.zeros(0, np.int32)
    labels: NDArray[np.int32] = parts["retired"].array("labels", "int32")
    if len(labels) and not (labels[0] >= 0 and labels[-1] < header["n_labels"] and (np.diff(labels) > 0).all()):
        raise ModelCorruptError(f"retired labels must rise within [0, {header['n_labels']}), but do not")
    return labels
