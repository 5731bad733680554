"""One paper, one file."""

from __future__ import annotations

from typing import Any

from umpteen.errors import ModelFormatError, ParamError
from umpteen.extensions import METHODS_GROUP, Registry, import_given
from umpteen.nearest import did_you_mean
from umpteen.trained.header import explain_newer
from umpteen.trained.model import TrainedModel

#: Name on the command line and in manifests -> where the class is. Imported when needed.
_OWN = {
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
    "label-text": "umpteen.methods.label_text:LabelText",
}

#: All methods: ours, and those that installed packages declare.
METHODS = Registry(METHODS_GROUP, dict(_OWN))


def method_class(name: str) -> Any:
    """A method's class, by name; or by "module:Class", which a user may name but a file may not."""
    if name not in METHODS and ":" in name:
        cls = _check_class(import_given(name), name)
        METHODS[cls.name] = name  # so that this process knows the models it trains
        return cls
    if name not in METHODS:
        hint = did_you_mean(name, METHODS)
        raise ParamError(f"method must be one of {', '.join(METHODS)}, or module:Class, but is {name!r}{hint}")
    return _check_class(METHODS.load(name), name)


def _check_class(cls: Any, name: str) -> Any:
    from umpteen.methods.base import Method

    if not (isinstance(cls, type) and issubclass(cls, Method)):
        raise ParamError(f"{name!r} must name a class derived from umpteen.Method, but is {cls!r:.100}")
    called = getattr(cls, "name", None)
    if ":" in name and (not isinstance(called, str) or called in _OWN):
        raise ParamError(f"{name!r} must have a name of its own, but its name is {called!r:.100}")
    if ":" not in name and called != name:
        raise ParamError(f"the method declared as {name!r} must have this name, but its name is {called!r:.100}")
    return cls


def method_of(model: TrainedModel) -> Any:
    """The method that trained a model, with its parameters and the model; see `Method.from_model`."""
    if model.method not in METHODS:
        error = ModelFormatError(f"the model's method is {model.method!r:.100}, which this umpteen does not have")
        raise explain_newer(model.header, error)
    return method_class(model.method).from_model(model)
