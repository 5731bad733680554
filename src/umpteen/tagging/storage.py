"""What a tagger stores with its trained model, and how it is opened again: the features of texts and the method."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

from umpteen.data.tables.fields import Fields
from umpteen.errors import MissingExtraError, ModelCorruptError, ModelError, ModelFormatError, ParamError
from umpteen.methods import METHODS, method_of
from umpteen.methods.base import Method
from umpteen.storage.store import Part
from umpteen.text.features import KINDS, TextFeatures
from umpteen.text.foreign import ForeignFeatures
from umpteen.trained.header import explain_newer
from umpteen.trained.model import TrainedModel

PRECOMPUTED = "precomputed"
FIELDS = "fields"
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
    if features.n_features_ != model.n_features:
        raise ModelCorruptError(f"{path}: the vocabulary does not have {model.n_features} terms")
    return features


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
    kind = PRECOMPUTED if features is None or part is None else features.name
    header: dict[str, Any] = {"features": kind, "calibration": calibration, "seed": seed}
    if fields is not None:
        header[FIELDS] = fields.as_dict()
    return {"text": header}, {} if part is None else {VOCABULARY: part}


def _store_features(features: TextFeatures | None, in_memory: bool) -> Part | None:
    if features is None:
        return None
    try:
        return features.to_part()
    except (ModelFormatError, MissingExtraError):
        if in_memory and isinstance(features, ForeignFeatures):
            return None  # `check_stored` says why, once the tagger is saved
        raise


def check_stored(model: TrainedModel, features: TextFeatures | None) -> None:
    """Raises what kept the features from being stored with the model, if something did."""
    if features is not None and VOCABULARY not in model.parts:
        features.to_part()
        raise ModelFormatError("the features could not be saved when this tagger was fitted; fit it again")
