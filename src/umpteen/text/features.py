"""What turns texts into rows: a `Tfidf`, several side by side, dense vectors, or another library's transformer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from umpteen.data.tables.fields import PARAMETERS, Fields
from umpteen.errors import ParamError
from umpteen.text.encoding import Encoding, is_encoder, name_of
from umpteen.text.fields import check_fields
from umpteen.text.foreign import ForeignFeatures, is_transformer
from umpteen.text.tfidf import Tfidf
from umpteen.text.union import AUTO_WEIGHT, NAMED, TfidfUnion
from umpteen.text.with_terms import WithTerms

PlainFeatures: TypeAlias = Tfidf | TfidfUnion | ForeignFeatures
TextFeatures: TypeAlias = PlainFeatures | WithTerms
#: What a saved model may name.
KINDS: dict[str, type[PlainFeatures]] = {kind.name: kind for kind in (Tfidf, TfidfUnion, ForeignFeatures)}


def make_features(given: Any, threads: int | None = None) -> PlainFeatures:
    """Features to fit, from an object that has them as parameters, a name such as "char_wb", or a list of these; or
    such for each field of records, by their names, which may have weights: ``{"title^3": "word", "abstract": …}``."""
    if isinstance(given, (Tfidf, TfidfUnion)):
        return type(given)(**given.get_params() | ({"threads": threads} if given.threads is None else {}))
    if isinstance(given, str) and given in NAMED:
        return Tfidf(**NAMED[given], threads=threads)
    if not isinstance(given, Encoding) and is_transformer(given):
        return ForeignFeatures(given)
    if isinstance(given, Encoding) or is_encoder(given):
        return TfidfUnion((given,), threads=threads)
    if isinstance(given, Mapping):
        return _make_fields(given, threads)
    if isinstance(given, Sequence) and not isinstance(given, str):
        return TfidfUnion(tuple(given), threads=threads)
    names = ", ".join(f'"{name}"' for name in NAMED)
    raise ParamError(
        f'features must be a Tfidf, a TfidfUnion, one of {names}, an encoder such as "svd:256", a list of these, a '
        f'dictionary of these by field, a transformer such as TfidfVectorizer(), or "precomputed", but is '
        f"{given!r:.100}"
    )


def _make_fields(given: Mapping[str, Any], threads: int | None) -> TfidfUnion:
    """Parts for each field, which share its weight."""
    weights = Fields.make(list(given), None, words=PARAMETERS | {"text": "features"}).texts
    parts = [
        (field, weight, part)
        for (field, weight), value in zip(weights.items(), given.values(), strict=True)
        for part in (value if isinstance(value, Sequence) and not isinstance(value, str) else [value])
    ]
    return TfidfUnion(
        tuple(part for _, _, part in parts),
        weights=None if set(weights.values()) == {1} else [weight for _, weight, _ in parts],
        fields=[field for field, _, _ in parts],
        threads=threads,
    )


def fields_of(features: TextFeatures | None) -> list[str]:
    """The fields of records that features tell apart."""
    features = features.base if isinstance(features, WithTerms) else features
    fields = check_fields(features.fields, len(features.parts)) if isinstance(features, TfidfUnion) else []
    return list(dict.fromkeys(field for field in fields if field is not None))


def unfitted(features: TextFeatures) -> Any:
    """The same settings, not fitted, as a tagger takes them."""
    if isinstance(features, WithTerms):
        return unfitted(features.base)
    return features.unfitted() if isinstance(features, ForeignFeatures) else type(features)(**features.get_params())


def describe(features: TextFeatures) -> dict[str, Any]:
    """The settings that are not defaults, as JSON holds them; `restore` makes the features again, not fitted."""
    if isinstance(features, WithTerms):
        return describe(features.base)
    if isinstance(features, TfidfUnion):
        parts = [part if isinstance(part, str) else _describe_part(part) for part in features.parts]
        weights = {} if features.weights is None else {"weights": [float(weight) for weight in features.weights]}
        fields = {} if features.fields is None else {"fields": list(features.fields)}
        dense = {} if features.dense_weight == AUTO_WEIGHT else {"dense_weight": float(features.dense_weight)}
        return {"parts": parts, **weights, **dense, **fields}
    return _describe_part(features)


def _describe_part(part: Any) -> dict[str, Any]:
    if callable(part):
        part = Encoding(part)
    defaults = part.param_defaults()
    changed = {k: v for k, v in part.get_params().items() if v != defaults[k] and k != "threads"}
    if isinstance(part, Encoding):
        changed["encoder"] = name_of(part.encoder)
    return {k: list(v) if isinstance(v, tuple) else v for k, v in changed.items()}


def restore(settings: Mapping[str, Any], threads: int | None = None) -> TextFeatures:
    """The features that `describe` has described."""
    if "parts" not in settings:
        return Tfidf(**settings, threads=threads)
    parts = [
        part if isinstance(part, str) else Encoding(**part) if "encoder" in part else Tfidf(**part)
        for part in settings["parts"]
    ]
    given = {name: settings[name] for name in ("weights", "dense_weight", "fields") if name in settings}
    return TfidfUnion(tuple(parts), **given, threads=threads)
