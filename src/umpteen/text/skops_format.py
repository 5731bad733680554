"""scikit-learn's transformers in a model: bytes that skops writes, opened only if all in them is listed here.

skops writes a ZIP archive of arrays and a description, schema.json, and opens types of which it knows that they run
nothing. Here it is given less: the transformers of texts and the few that go with them, arrays and plain values, no
functions. The description is given to skops as a plain tree, without the numbers by which a node may stand for
another: sixty nodes that each name the one before twice would be looked over 2^60 times. Compressed members, and
arrays that are named again and again, are refused, since they could take any memory. What is made of it is looked
over in skops_objects.py.
"""

from __future__ import annotations

import io
import json
import re
import zipfile
from collections.abc import Iterator
from typing import Any

import numpy as np

from umpteen.errors import MissingExtraError, ModelCorruptError, ModelError, ModelFormatError
from umpteen.text.skops_objects import check_objects

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
    f"{kind}Node" for kind in ("Dict", "Json", "List", "NdArray", "Object", "Set", "Slice", "Tuple", "Type")
)
_SCHEMA = "schema.json"
#: How often an array may be named, if all are.
_MOST_TIMES = 4
#: A version of scikit-learn, as the description has it.
_VERSION = re.compile(r'"[\w.+-]{1,40}"', re.ASCII)


def dump(transformer: Any) -> bytes:
    """A fitted transformer as bytes. Raises ModelFormatError if `load` would refuse it."""
    skops = _import_skops()
    _make_plain(transformer)
    try:
        data: bytes = skops.dumps(transformer, compression=zipfile.ZIP_STORED)
    except Exception as error:  # whatever cannot be written
        raise ModelFormatError(f"features {type(transformer).__name__} cannot be saved: {error}") from error
    try:
        _check_archive(data)
        check_objects(transformer, trust_pattern=True)
    except ModelError as error:
        advice = "Transform the texts yourself and use features='precomputed'"
        if "umpteen.text" in str(error):
            advice = "A Tfidf is saved alone or by columns, features={'title': Tfidf(), 'abstract': Tfidf()}"
        raise ModelFormatError(
            f"features {type(transformer).__name__} cannot be saved, since a model holds no code: {error}. {advice}"
        ) from error
    return data


def load(data: bytes, *, trust_pattern: bool = False) -> Any:
    """What `dump` has written. The bytes are not trusted."""
    skops = _import_skops()
    tree = _check_archive(data)
    try:
        found = skops.loads(tree, trusted=[])
    except Exception as error:  # damaged in a way only skops can see
        raise ModelCorruptError(f"the features cannot be read: {error!r:.200}") from error
    check_objects(found, trust_pattern)
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


def _make_plain(transformer: Any) -> None:
    """Columns of a vocabulary as Python's numbers: where rare words were left out they are numpy's, and skops would
    write a file for each word."""
    seen: set[int] = set()
    left = [transformer]
    while left:
        value = left.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, (list, tuple)):
            left.extend(value)
        elif type(value).__module__.startswith("sklearn."):
            words = vars(value).get("vocabulary_")
            if isinstance(words, dict):
                value.vocabulary_ = {word: int(i) if isinstance(i, np.integer) else i for word, i in words.items()}
            left.extend(vars(value).values())


def _check_archive(data: bytes) -> bytes:
    """Refuses types and functions that are not listed, before anything is made of them; returns the archive with a
    description in which no node stands for another."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = {member.filename: member for member in archive.infolist()}
            if any(member.compress_type != zipfile.ZIP_STORED for member in members.values()):
                raise ModelCorruptError("members of the features' archive must not be compressed")
            if sum(member.file_size for member in members.values()) > len(data):
                raise ModelCorruptError("members of the features' archive must not overlap")
            schema = json.loads(archive.read(_SCHEMA))
            _check_schema(schema, members, len(data))
            tree = io.BytesIO()
            with zipfile.ZipFile(tree, "w", zipfile.ZIP_STORED) as copy:
                for name in members:
                    copy.writestr(name, json.dumps(schema) if name == _SCHEMA else archive.read(name))
    except ModelError:
        raise
    except Exception as error:  # damaged archives fail in many ways
        raise ModelCorruptError(f"the features cannot be read: {error!r:.200}") from error
    return tree.getvalue()


def _check_schema(schema: Any, members: dict[str, zipfile.ZipInfo], size: int) -> None:
    """Refuses what a description must not have, and takes the numbers of its nodes out of it."""
    nodes = list(_nodes(schema))
    refused = sorted({name for node in nodes if (name := _unlisted(node)) is not None})
    if refused:
        raise ModelFormatError(f"its features have types that are not opened: {', '.join(refused[:5])}")
    named = 0
    for node in nodes:
        if "__loader__" in node:
            node.pop("__id__", None)
            named += members[node["file"]].file_size if "file" in node else 0
        if node.get("__loader__") == "ObjectNode" and node.get("content") is not None:
            _check_version(node["content"])
    if named > _MOST_TIMES * size:
        raise ModelCorruptError(f"arrays of the features' archive must not be named more than {_MOST_TIMES} times")


def _check_version(attributes: dict[str, Any]) -> None:
    """Refuses a version of scikit-learn that is none: a warning shows it at the terminal."""
    if attributes["__loader__"] != "DictNode":
        raise ModelCorruptError("attributes of the features must be a dictionary")
    version = attributes["content"].get("_sklearn_version")
    if version is not None and not _VERSION.fullmatch(version["content"]):
        raise ModelCorruptError("the version of scikit-learn must be a version")


def _nodes(schema: Any) -> Iterator[dict[str, Any]]:
    """All objects of a JSON document but those that map keys to nodes: a key may be any word, `__class__` too."""
    left = [schema]
    while left:
        value = left.pop()
        if isinstance(value, list):
            left.extend(value)
        elif isinstance(value, dict):
            yield value
            for name, inner in value.items():
                is_map = name == "content" and value.get("__loader__") == "DictNode" and isinstance(inner, dict)
                left.extend(inner.values() if is_map else [inner])


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
