"""The class of a model, by the family its manifest names."""

from __future__ import annotations

import importlib
from typing import Any

from umpteen.errors import ModelFormatError

FAMILIES = {
    "linear": "umpteen.models.linear:LinearModel",
    "forest": "umpteen.models.forest:ForestModel",
    "embedding": "umpteen.models.embedding:EmbeddingModel",
    "low-rank": "umpteen.models.low_rank:LowRankModel",
}


def model_class(family: Any) -> Any:
    if family not in FAMILIES:
        raise ModelFormatError(f"family must be one of {', '.join(FAMILIES)}, but is {family!r}")
    module, _, name = FAMILIES[family].partition(":")
    return getattr(importlib.import_module(module), name)
