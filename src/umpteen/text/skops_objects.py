"""What may stand in the transformers that an archive of skops describes, once they are made and before one is used.

scikit-learn trusts what its transformers learnt. A file may have been written by hand, so everything is looked over
here that would run code, take forever or any memory, start processes, read files, or let compiled code look up
columns that are not there.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from umpteen.errors import ModelCorruptError, ModelFormatError
from umpteen.text.patterns import is_linear
from umpteen.text.tfidf import MOST_WORDS

_PLAIN = (type(None), bool, int, float, str, slice, np.integer, np.floating)
#: What counts may be stored as.
_DTYPES = (np.float64, np.float32, np.int64, np.int32)
#: Most columns of hashes: a row of them may be made dense.
MOST_HASHES = 1 << 24


def check_objects(found: Any, trust_pattern: bool) -> None:
    """Raises ModelError for anything but plain values, arrays, and transformers that are as their fit leaves them."""
    seen: set[int] = set()
    left = [found]
    while left:
        value = left.pop()
        if id(value) in seen or isinstance(value, _PLAIN):
            continue
        seen.add(id(value))
        if isinstance(value, dict):
            left.extend(value.values())
        elif isinstance(value, (list, tuple, set)):
            left.extend(value)
        elif isinstance(value, np.ndarray):
            left.extend(value.ravel().tolist() if value.dtype == object else [])
        elif type(value).__module__.startswith("sklearn."):
            left.extend(_check_transformer(value, trust_pattern))
        else:
            raise ModelFormatError(f"its features hold {value!r:.100}, which is no plain value")


def _check_transformer(transformer: Any, trust_pattern: bool) -> list[Any]:
    """Checks what a transformer holds; returns that of it which is still to be looked over."""
    kind, state = type(transformer), vars(transformer)
    hidden = [name for name in state if hasattr(kind, name)]
    if hidden:
        raise ModelFormatError(f"its {kind.__name__} replaces {hidden[0]!r:.100} of its class")
    if isinstance(state.get("dtype"), type) and state["dtype"] not in _DTYPES:
        raise ModelFormatError(f"dtype must be a type of numbers, but is {state['dtype']!r:.100}")
    _check_settings(state, trust_pattern)
    words = state.get("vocabulary_")
    if words is not None and not (
        isinstance(words, dict) and all(isinstance(i, int) and 0 <= i < len(words) for i in words.values())
    ):
        raise ModelCorruptError(
            f"a vocabulary must have columns below {len(words) if hasattr(words, '__len__') else 0}"
        )
    if kind.__name__ == "OneHotEncoder" and "categories_" in state:
        try:
            _check_encoder(state)
        except (TypeError, ValueError, KeyError, AttributeError) as error:
            raise ModelCorruptError(f"the categories of a OneHotEncoder are damaged ({error!r:.100})") from error
    return [value for name, value in state.items() if name != "dtype"]


def _check_settings(state: dict[str, Any], trust_pattern: bool) -> None:
    pattern = state.get("token_pattern")
    if isinstance(pattern, str) and not trust_pattern and not is_linear(pattern):
        raise ModelFormatError(
            f"token_pattern {pattern!r:.100} is not of a form that is run from a file: it might take forever; if "
            "you trust the author of the model, open it with umpteen.load(…, trust_pattern=True)"
        )
    if state.get("input", "content") != "content":
        raise ModelFormatError(f"input must be 'content', not names of files, but is {state['input']!r:.100}")
    runs = state.get("ngram_range", (1, 1))
    if not (isinstance(runs, (list, tuple)) and all(type(n) is int and 1 <= n <= MOST_WORDS for n in runs)):
        raise ModelFormatError(f"ngram_range must be two numbers from 1 to {MOST_WORDS}, but is {runs!r:.100}")
    if state.get("memory") is not None:
        raise ModelFormatError("memory must be None: a model has no cache of its own")
    n_features = state.get("n_features", 1)
    if type(n_features) is not int or not 1 <= n_features <= MOST_HASHES:
        raise ModelFormatError(f"n_features must be from 1 to {MOST_HASHES}, but is {n_features!r:.100}")
    if not isinstance(state.get("verbose_feature_names_out", True), bool):  # else a format, of any width
        raise ModelFormatError("verbose_feature_names_out must be True or False, as others are run to make names")
    if state.get("n_jobs") is not None:
        state["n_jobs"] = None  # the rows are the same; how many processes to start is not for a file to say


def _check_encoder(state: dict[str, Any]) -> None:
    """Raises ValueError unless every category leads to a column that is there: scikit-learn does not look."""
    categories, columns = state["categories_"], state["_n_features_outs"]
    dropped = state.get("_drop_idx_after_grouping")
    rare = mappings = [None] * len(categories)
    if state.get("_infrequent_enabled"):
        rare, mappings = state["_infrequent_indices"], state["_default_to_infrequent_mappings"]
    dropped = [None] * len(categories) if dropped is None else dropped
    for values, n_columns, drop, group, mapping in zip(categories, columns, dropped, rare, mappings, strict=True):
        _check_sorted(values)
        size = len(values)
        if (group is None) != (mapping is None):
            raise ValueError("rare categories must have a column")
        if mapping is not None:
            if mapping.shape != (size,) or mapping.dtype.kind != "i" or mapping.min() < 0:
                raise ValueError("each category must have a column")
            size = int(mapping.max()) + 1
        if drop is not None and not 0 <= drop < size:
            raise ValueError("what is dropped must be a category")
        if n_columns != size - (drop is not None):
            raise ValueError(f"{size} categories must have as many columns, but have {n_columns!r:.50}")


def _check_sorted(values: Any) -> None:
    """Numbers are searched for by bisection, which finds places behind the end where they are not in order."""
    if (
        not isinstance(values, np.ndarray)
        or values.ndim != 1
        or not len(values)
        or values.dtype.kind not in "OUSbiuf"
    ):
        raise ValueError("categories must be an array of values")
    if values.dtype.kind in "biuf":
        known = values[:-1] if values[-1] != values[-1] else values  # NaN stands last
        if not (known[1:] > known[:-1]).all() or (known != known).any():
            raise ValueError("categories that are numbers must be in order")
