"""What turns texts into rows: a `Tfidf`, several side by side, dense vectors, or another library's transformer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from umpteen.errors import ParamError
from umpteen.text.encoding import Encoding, is_encoder, name_of
from umpteen.text.foreign import ForeignFeatures, is_transformer
from umpteen.text.tfidf import Tfidf
from umpteen.text.union import NAMED, TfidfUnion

TextFeatures: TypeAlias = Tfidf | TfidfUnion | ForeignFeatures
#: What a saved model may name.
KINDS: dict[str, type[TextFeatures]] = {kind.name: kind for kind in (Tfidf, TfidfUnion, ForeignFeatures)}


def make_features(given: Any, threads: int | None = None) -> TextFeatures:
    """Features to fit, from an object that has them as parameters, a name such as "char_wb", or a list of these."""
    if isinstance(given, (Tfidf, TfidfUnion)):
        return type(given)(**given.get_params())
    if isinstance(given, str) and given in NAMED:
        return Tfidf(**NAMED[given], threads=threads)
    if not isinstance(given, Encoding) and is_transformer(given):
        return ForeignFeatures(given)
    if isinstance(given, Encoding) or is_encoder(given):
        return TfidfUnion((given,), threads=threads)
    if isinstance(given, Sequence) and not isinstance(given, str):
        return TfidfUnion(tuple(given), threads=threads)
    names = ", ".join(f'"{name}"' for name in NAMED)
    raise ParamError(
        f'features must be a Tfidf, a TfidfUnion, one of {names}, an encoder such as "svd:256", a list of these, a '
        f'transformer such as TfidfVectorizer(), or "precomputed", but is {given!r:.100}'
    )


def unfitted(features: TextFeatures) -> Any:
    """The same settings, not fitted, as a tagger takes them."""
    return features.unfitted() if isinstance(features, ForeignFeatures) else type(features)(**features.get_params())


def describe(features: TextFeatures) -> dict[str, Any]:
    """The settings that are not defaults, as JSON holds them; `restore` makes the features again, not fitted."""
    if isinstance(features, TfidfUnion):
        parts = [part if isinstance(part, str) else _describe_part(part) for part in features.parts]
        weights = {} if features.weights is None else {"weights": [float(weight) for weight in features.weights]}
        return {"parts": parts, **weights}
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
    return TfidfUnion(tuple(parts), weights=settings.get("weights"), threads=threads)
