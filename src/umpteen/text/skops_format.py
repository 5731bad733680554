"""scikit-learn's transformers in a model: bytes that skops writes, opened only if all in them is listed here.

skops writes a ZIP archive of arrays and a description, schema.json, and opens types of which it knows that they run
nothing. Here it is given less: the transformers of texts and the few that go with them, arrays and plain values. Also
refused are functions of any kind; compressed members, which could be huge; a vocabulary with columns that are not
there, which compiled code would look up; runs of more terms than `Tfidf` allows; and texts that are file names.
"""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Iterator
from typing import Any

from umpteen.errors import MissingExtraError, ModelCorruptError, ModelError, ModelFormatError
from umpteen.text.patterns import is_linear
from umpteen.text.tfidf import MOST_WORDS

#: The types a model's features may have, as module and class.
TRUSTED = frozenset(
    {
        *(f"builtins.{name}" for name in ("dict", "list", "tuple", "set", "slice", "str", "int", "float", "bool")),
        *(f"numpy.{name}" for name in ("ndarray", "float64", "float32", "int64", "int32")),
        "sklearn.feature_extraction.text.CountVectorizer",
        "sklearn.feature_extraction.text.HashingVectorizer",
        "sklearn.feature_extraction.text.TfidfTransformer",
        "sklearn.feature_extraction.text.TfidfVectorizer",
        "sklearn.compose._column_transformer.ColumnTransformer",
        "sklearn.pipeline.FeatureUnion",
        "sklearn.pipeline.Pipeline",
        "sklearn.decomposition._truncated_svd.TruncatedSVD",
        "sklearn.preprocessing._data.MaxAbsScaler",
        "sklearn.preprocessing._data.Normalizer",
        "sklearn.preprocessing._data.StandardScaler",
        "sklearn.preprocessing._encoders.OneHotEncoder",
    }
)
_LOADERS = frozenset(
    f"{kind}Node" for kind in ("Cached", "Dict", "Json", "List", "NdArray", "Object", "Set", "Slice", "Tuple", "Type")
)
_SCHEMA = "schema.json"


def dump(transformer: Any) -> bytes:
    """A fitted transformer as bytes. Raises ModelFormatError if `load` would refuse it."""
    skops = _import_skops()
    try:
        data: bytes = skops.dumps(transformer, compression=zipfile.ZIP_STORED)
    except Exception as error:  # whatever cannot be written
        raise ModelFormatError(f"features {type(transformer).__name__} cannot be saved: {error}") from error
    try:
        _check_archive(data)
        _check_objects(transformer, trust_pattern=True)
    except ModelError as error:
        raise ModelFormatError(
            f"features {type(transformer).__name__} cannot be saved, since a model holds no code: {error}. Transform "
            "the texts yourself and use features='precomputed'"
        ) from error
    return data


def load(data: bytes, *, trust_pattern: bool = False) -> Any:
    """What `dump` has written. The bytes are not trusted."""
    skops = _import_skops()
    _check_archive(data)
    try:
        found = skops.loads(data, trusted=[])
    except Exception as error:  # damaged in a way only skops can see
        raise ModelCorruptError(f"the features cannot be read: {error!r:.200}") from error
    _check_objects(found, trust_pattern)
    return found


def _import_skops() -> Any:
    try:
        import skops.io
    except ImportError as error:
        raise MissingExtraError(
            "a model with features of scikit-learn is written and read by skops. Install it with: "
            "pip install 'umpteen[skops]'"
        ) from error
    return skops.io


def _check_archive(data: bytes) -> None:
    """Refuses types and functions that are not listed, before anything is made of them."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            if any(member.compress_type != zipfile.ZIP_STORED for member in archive.infolist()):
                raise ModelCorruptError("members of the features' archive must not be compressed")
            schema = json.loads(archive.read(_SCHEMA))
    except (zipfile.BadZipFile, KeyError, ValueError, RecursionError, NotImplementedError, OSError) as error:
        if isinstance(error, ModelError):
            raise
        raise ModelCorruptError(f"the features cannot be read: {error!r:.200}") from error
    refused = sorted({name for node in _nodes(schema) if (name := _unlisted(node)) is not None})
    if refused:
        raise ModelFormatError(f"its features have types that are not opened: {', '.join(refused[:5])}")


def _nodes(schema: Any) -> Iterator[dict[str, Any]]:
    """All objects of a JSON document."""
    left = [schema]
    while left:
        value = left.pop()
        if isinstance(value, dict):
            yield value
            left.extend(value.values())
        elif isinstance(value, list):
            left.extend(value)


def _unlisted(node: dict[str, Any]) -> str | None:
    """What a node of the description would make, if that is not listed."""
    if not {"__loader__", "__module__", "__class__"} & node.keys():
        return None
    made = f"{node.get('__module__')}.{node.get('__class__')}"[:100]
    loader = node.get("__loader__")
    if made in TRUSTED and isinstance(loader, str) and loader in _LOADERS:
        return None
    content = node.get("content")
    if loader in ("FunctionNode", "MethodNode") and isinstance(content, dict):
        return f"the function {content.get('module_path')}.{content.get('function')}"[:100]
    return made


def _check_objects(found: Any, trust_pattern: bool) -> None:
    """Refuses settings and vocabularies that would run forever, read files, or look up missing columns."""
    seen: set[int] = set()
    left = [found]
    while left:
        value = left.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, dict):
            left.extend(v for v in value.values() if not isinstance(v, (int, str, float)))
        elif isinstance(value, (list, tuple, set)):
            left.extend(value)
        elif type(value).__module__.startswith("sklearn."):
            _check_transformer(vars(value), trust_pattern)
            left.extend(vars(value).values())


def _check_transformer(state: dict[str, Any], trust_pattern: bool) -> None:
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
    words = state.get("vocabulary_")
    if words is not None and not (
        isinstance(words, dict) and all(isinstance(i, int) and 0 <= i < len(words) for i in words.values())
    ):
        raise ModelCorruptError(
            f"a vocabulary must have columns below {len(words) if hasattr(words, '__len__') else 0}"
        )
