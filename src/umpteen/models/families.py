"""The families of models, by their name in manifests."""

from __future__ import annotations

import importlib
from typing import Any

from umpteen.errors import ModelFormatError
from umpteen.models.scorer import Scorer

FAMILIES = {
    "linear": "umpteen.models.linear:LinearModel",
    "forest": "umpteen.models.forest:ForestModel",
    "embedding": "umpteen.models.embedding:EmbeddingModel",
    "low-rank": "umpteen.models.low_rank:LowRankModel",
    "label-tree": "umpteen.models.label_tree:LabelTreeModel",
    "blend": "umpteen.trained.blend:BlendModel",
}

#: Families that are never stored.
IN_MEMORY = {"sklearn": "umpteen.models.foreign:ForeignModel"}

#: Spellings in models of earlier versions.
_FORMERLY = {"label tree": "label-tree"}


def scorer_class(family: Any) -> type[Scorer]:
    """The class that opens and scores models of a family."""
    known = _FORMERLY.get(family, family) if isinstance(family, str) else None
    places = FAMILIES | IN_MEMORY
    if known not in places:
        raise ModelFormatError(f"family must be one of {', '.join(FAMILIES)}, but is {family!r:.100}")
    module, _, name = places[known].partition(":")
    found: type[Scorer] = getattr(importlib.import_module(module), name)
    return found
