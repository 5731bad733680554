"""Every exception umpteen raises on purpose.

UmpteenError
├── ParamError          (ValueError)       a setting has a bad value
├── DataError           (ValueError)       a file or a matrix has bad content; names the file and line if there is one
├── NotFittedError      (ValueError, AttributeError)   predict before fit
├── MemoryLimitError    (MemoryError)      the work would not fit; refused before it starts
├── ModelError                             a model directory cannot be used
│   ├── ModelExistsError    (FileExistsError)    something is already there
│   ├── ModelMissingError   (FileNotFoundError)  there is no model, or a part of it is missing
│   ├── ModelFormatError    (ValueError)         not a format this version reads
│   ├── ModelCorruptError   (ValueError)         sizes, checksums or contents disagree with the manifest
│   ├── ModelChangedError                        replaced again and again while it was opened
│   └── ModelUnfinishedError                     training was interrupted; it can be resumed
├── ShardError          (RuntimeError)     training one shard failed; names the shard, the cause is chained
└── MissingExtraError   (ImportError)      an optional part is not installed

Each also inherits the built-in a caller would expect.
"""

from __future__ import annotations

import sys
from typing import Any


class UmpteenError(Exception):
    """Base of all errors raised on purpose by umpteen."""


class ParamError(UmpteenError, ValueError):
    """A setting has a bad value."""


class DataError(UmpteenError, ValueError):
    """A file or a matrix has bad content."""


class NotFittedError(UmpteenError, ValueError, AttributeError):
    """The method has not been fitted yet."""


def not_fitted(message: str) -> NotFittedError:
    """A NotFittedError; where scikit-learn is loaded, one that is scikit-learn's too."""
    exceptions = sys.modules.get("sklearn.exceptions")
    if exceptions is None:
        return NotFittedError(message)
    both = type("NotFittedError", (NotFittedError, exceptions.NotFittedError), {"__reduce__": _remake})
    error: NotFittedError = both(message)
    return error


def _remake(error: NotFittedError) -> tuple[Any, tuple[str]]:
    return not_fitted, (str(error),)


class MemoryLimitError(UmpteenError, MemoryError):
    """The work would not fit into memory."""


class ModelError(UmpteenError):
    """A model directory cannot be used."""


class ModelExistsError(ModelError, FileExistsError):
    """Something is already there."""


class ModelMissingError(ModelError, FileNotFoundError):
    """There is no model, or a part of it is missing."""


class ModelFormatError(ModelError, ValueError):
    """The model is in a format this version does not read."""


class ModelCorruptError(ModelError, ValueError):
    """The model's files disagree with its manifest."""


class ModelLockedError(ModelError):
    """Another process is writing this model."""


class ModelChangedError(ModelError):
    """The model was replaced again and again while it was opened, or while its parts are held."""


class ModelUnfinishedError(ModelError):
    """Training of this model was interrupted and can be resumed."""


class ShardError(UmpteenError, RuntimeError):
    """Training one shard failed."""


class MissingExtraError(UmpteenError, ImportError):
    """An optional part is not installed."""
