"""Opens a model directory as a trained model."""

from __future__ import annotations

from umpteen.data.files import PathLike
from umpteen.errors import ModelCorruptError, ModelError
from umpteen.storage.remote import open_model
from umpteen.storage.store import ModelReader
from umpteen.trained.model import TrainedModel


def load_model(path: PathLike | ModelReader, *, checksums: bool = False) -> TrainedModel:
    """Opens a model directory. Arrays are mapped, not read, so this is fast and shares memory between processes.

    Parameters
    ----------
    path
        A directory, a URL, or one of these as `umpteen.storage.remote.open_model` opened it.
    checksums
        Also read every byte and compare it with its checksum.
    """
    reader = open_model(path, checksums=checksums)
    parts = {name: reader.part(name) for name in reader.manifest["parts"] if name not in reader.shard_names}
    shards = [reader.part(name) for name in reader.shard_names]
    try:
        model = TrainedModel.open(reader.header, parts, shards)
    except ModelError as error:
        raise type(error)(f"{reader.path}: {error}") from error
    except (TypeError, ValueError, LookupError, AttributeError, ArithmeticError) as error:
        method = str(reader.manifest.get("method"))[:100]
        raise ModelCorruptError(
            f"{reader.path}: the manifest does not describe a {method} model ({error})"
        ) from error
    model.scorer.version = reader.version
    return model
