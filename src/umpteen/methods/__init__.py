"""One paper, one file."""

from __future__ import annotations

import importlib
from typing import Any

from umpteen.data.files import PathLike
from umpteen.errors import ModelCorruptError, ModelError, ModelFormatError, ParamError

#: Name on the command line and in manifests -> where it lives. Imported when asked for.
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

#: Made of trained models, not trained.
_BLEND = {"blend": "umpteen.methods.blend:Blend"}


def method_class(name: str) -> Any:
    """The class of a method, by its name."""
    if name not in METHODS:
        raise ParamError(f"method must be one of {', '.join(METHODS)}, but is {name!r}")
    return _import(METHODS[name])


def _import(home: str) -> Any:
    module, _, attribute = home.partition(":")
    return getattr(importlib.import_module(module), attribute)


def load(path: PathLike, *, checksums: bool = False) -> Any:
    """Opens a model directory. Arrays are mapped, not read, so this is fast and shares memory between processes.

    Parameters
    ----------
    checksums
        Also read every byte and compare it with its checksum.
    """
    from umpteen.storage.remote import open_model

    reader = open_model(path, checksums=checksums)
    manifest = reader.manifest
    name = manifest.get("method")
    homes = METHODS | _BLEND
    if not isinstance(name, str) or name not in homes:
        raise ModelFormatError(f"{reader.path}: its method is {name!r}, which this umpteen does not have")
    cls = _import(homes[name])
    for key in ("n_train_rows", "n_features", "n_labels"):
        value = manifest.get(key)
        if not isinstance(value, int) or isinstance(value, bool) or not 0 < value <= 2**31:
            raise ModelCorruptError(f"{reader.path}: {key} must be a positive count, but is {value!r}")
    params = manifest.get("params")
    if not isinstance(params, dict):
        raise ModelCorruptError(f"{reader.path}: the manifest lacks params")
    shared = {key: reader.part(key) for key in manifest["parts"] if key not in reader.shard_names}
    if "labels" not in shared:
        raise ModelCorruptError(f"{reader.path}: the part that holds the label counts is missing")
    try:
        method = cls(**params)
        method.validate()
        method._attach(reader.header, shared, [reader.part(shard) for shard in reader.shard_names])
    except ModelError as error:
        raise type(error)(f"{reader.path}: {error}") from error
    except (TypeError, ValueError, KeyError) as error:
        raise ModelCorruptError(f"{reader.path}: the manifest does not describe a {name} model ({error})") from error
    return method
