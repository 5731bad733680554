"""One paper, one file."""

from __future__ import annotations

import importlib
from typing import Any

from umpteen.errors import ModelFormatError, ParamError
from umpteen.trained.header import explain_newer
from umpteen.trained.model import TrainedModel

#: Name on the command line and in manifests -> where the class is. Imported when needed.
METHODS = {
    "centroid": "umpteen.methods.centroid:Centroid",
    "dismec": "umpteen.methods.dismec:DiSMEC",
    "ppdsparse": "umpteen.methods.ppdsparse:PPDSparse",
    "pdsparse": "umpteen.methods.pdsparse:PDSparse",
    "fastxml": "umpteen.methods.fastxml:FastXML",
    "pfastrexml": "umpteen.methods.pfastrexml:PfastreXML",
    "rxml": "umpteen.methods.rxml:RXML",
    "sleec": "umpteen.methods.rxml:SLEEC",
    "rxml-global": "umpteen.methods.rxml_global:RXMLGlobal",
    "label-tree": "umpteen.methods.label_tree:LabelTree",
}


def method_class(name: str) -> Any:
    """A method's class, by name."""
    if name not in METHODS:
        raise ParamError(f"method must be one of {', '.join(METHODS)}, but is {name!r}")
    module, _, attribute = METHODS[name].partition(":")
    return getattr(importlib.import_module(module), attribute)


def method_of(model: TrainedModel) -> Any:
    """The method that trained a model, with its parameters and the model; see `Method.from_model`."""
    if model.method not in METHODS:
        error = ModelFormatError(f"the model's method is {model.method!r:.100}, which this umpteen does not have")
        raise explain_newer(model.header, error)
    return method_class(model.method).from_model(model)
