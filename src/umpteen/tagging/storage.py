"""What a tagger stores with its trained model, and how it is opened again: the features of texts and the method."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

from umpteen.data.tables.fields import Fields
from umpteen.errors import MissingExtraError, ModelCorruptError, ModelError, ModelFormatError, ParamError
from umpteen.lexical.matcher import LexicalMatcher
from umpteen.methods import METHODS, method_of
from umpteen.methods.base import Method
from umpteen.storage.store import Part
from umpteen.text.features import KINDS, TextFeatures
from umpteen.text.foreign import ForeignFeatures
from umpteen.text.with_terms import WithTerms
from umpteen.trained.header import explain_newer
from umpteen.trained.model import TrainedModel

PRECOMPUTED = "precomputed"
FIELDS = "fields"
#: Before the names of the parts of what finds terms of a vocabulary.
MATCHER = "matcher-"
VOCABULARY = "vocabulary"


@dataclass(frozen=True)
class Untrainable:
    """Stands for the method of a loaded model that this umpteen cannot train, and says why."""

    method: str
    reason: str


def recipe_of(model: TrainedModel, path: object) -> Method | Untrainable:
    """The method that trained a model, not fitted; or why there is none."""
    if model.method not in METHODS:
        return Untrainable(model.method, f"its method is {model.method}, which is not trained here")
    try:
        method: Method = method_of(model)
    except (ModelError, ParamError) as error:  # also a package's that cannot be used
        warnings.warn(f"{path}: {error}. The model can suggest, but cannot be trained further here",
                      stacklevel=4)  # fmt: skip
        return Untrainable(model.method, str(error))
    del method.model_
    return method


def open_features(
    model: TrainedModel, header: dict[str, Any], path: object, trust_pattern: bool, encoder: Any = None
) -> TextFeatures | None:
    """What turns texts into the model's rows; None if rows are precomputed. Nothing in the model is trusted."""
    kind = header.get("features")
    if kind == PRECOMPUTED:
        return None
    if kind not in list(KINDS):
        error: Exception = ModelFormatError(
            f"{path}: its features are {kind!r:.100}, which this umpteen does not have"
        )
        raise explain_newer(model.header, error)
    if VOCABULARY not in model.parts:
        raise ModelCorruptError(f"{path}: the model's vocabulary is missing")
    try:
        features = KINDS[kind].from_part(model.parts[VOCABULARY], trust_pattern=trust_pattern, encoder=encoder)
    except ModelError as error:
        raise explain_newer(model.header, type(error)(f"{path}: {error}")) from error
    found: TextFeatures = features
    if MATCHER + LexicalMatcher.PARTS[0] in model.parts:
        found = WithTerms(features, _open_matcher(model, path))
    if found.n_features_ != model.n_features:
        raise ModelCorruptError(f"{path}: the vocabulary does not have {model.n_features} terms")
    return found


def _open_matcher(model: TrainedModel, path: object) -> LexicalMatcher:
    """What finds terms of the vocabulary. Nothing in the model is trusted."""
    if missing := [name for name in LexicalMatcher.PARTS if MATCHER + name not in model.parts]:
        raise ModelCorruptError(f"{path}: the part {MATCHER}{missing[0]} is missing")
    try:
        return LexicalMatcher.from_parts({name: model.parts[MATCHER + name] for name in LexicalMatcher.PARTS})
    except ModelError as error:
        raise type(error)(f"{path}: {error}") from error


def open_fields(header: dict[str, Any], path: object) -> Fields | None:
    """The columns of tables that the texts and labels came from, if that is known. The model is not trusted."""
    if header.get(FIELDS) is None:
        return None
    try:
        return Fields.from_dict(header[FIELDS])
    except ParamError as error:
        raise ModelCorruptError(f"{path}: {error}") from error


def describe_features(
    features: TextFeatures | None, calibration: float | str, seed: int, fields: Fields | None, *, in_memory: bool
) -> tuple[dict[str, Any], dict[str, Part]]:
    """The manifest entries and the parts that store a tagger with its model. Features that cannot be saved are
    refused unless the model stays in memory, and then it is one of rows."""
    part = _store_features(features, in_memory)
    base = features.base if isinstance(features, WithTerms) else features
    kind = PRECOMPUTED if base is None or part is None else base.name
    header: dict[str, Any] = {"features": kind, "calibration": calibration, "seed": seed}
    if fields is not None:
        header[FIELDS] = fields.as_dict()
    parts = {} if part is None else {VOCABULARY: part}
    if isinstance(features, WithTerms):
        parts |= {MATCHER + name: own for name, own in features.matcher.to_parts().items()}
    return {"text": header}, parts


def _store_features(features: TextFeatures | None, in_memory: bool) -> Part | None:
    if features is None:
        return None
    try:
        return features.to_part()
    except (ModelFormatError, MissingExtraError):
        if in_memory and isinstance(features, ForeignFeatures):
            return None  # `check_stored` says why, once the tagger is saved
        raise


def features_of(model: TrainedModel, features: TextFeatures | None) -> TextFeatures | None:
    """The features of which a model has columns: without terms, if these were left out."""
    if isinstance(features, WithTerms) and model.n_features != features.n_features_:
        features = features.base
    return features


def check_stored(model: TrainedModel, features: TextFeatures | None) -> None:
    """Raises what kept the features from being stored with the model, if something did."""
    if features is not None and VOCABULARY not in model.parts:
        features.to_part()
        raise ModelFormatError("the features could not be saved when this tagger was fitted; fit it again")
