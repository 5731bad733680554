"""Trains what was chosen: a method, or a blend of several."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from umpteen.choosing.choice import ENTRY, Choice
from umpteen.data.files import PathLike
from umpteen.data.matrix import as_csr
from umpteen.errors import ParamError
from umpteen.methods.held_out import train_calibrated
from umpteen.methods.training import train_model
from umpteen.progress import Listener
from umpteen.storage.store import Part
from umpteen.trained.model import TrainedModel


def train_choice(
    choice: Choice,
    X: Any,
    Y: Any,
    model_dir: PathLike | None = None,
    *,
    label_names: Sequence[str] | None = None,
    resume: bool = True,
    progress: bool | Listener = False,
    extra_header: Mapping[str, Any] | None = None,
    extra_parts: Mapping[str, Part] | None = None,
    keep_rows: int = 0,
    calibration: float | str = 0,
    row_costs: NDArray[np.float32] | None = None,
) -> TrainedModel:
    """Trains on all rows, and keeps the choice in the manifest; see `train_model` and `Method.fit`.

    A blend has probabilities of its own. It is written when all its members are trained: an interruption loses
    them.
    """
    extra_header = {**(extra_header or {}), ENTRY: choice.as_header()}
    copies = [type(method)(**method.get_params()) for method in choice.methods]
    if choice.blend is None:
        return train_calibrated(
            copies[0], as_csr(X, "X"), as_csr(Y, "Y", values=False), model_dir, calibration=calibration,
            fold_header={ENTRY: extra_header[ENTRY]}, label_names=label_names, resume=resume, progress=progress,
            extra_header=extra_header, extra_parts=extra_parts, keep_rows=keep_rows, row_costs=row_costs,
        )  # fmt: skip
    if keep_rows:
        raise ParamError(f"keep_rows must be 0 for a blend, to which no labels are added, but is {keep_rows}")
    members = [
        train_model(copy, X, Y, label_names=label_names, progress=progress, extra_header=extra_header,
                    extra_parts=extra_parts, row_costs=row_costs)
        for copy in copies
    ]  # fmt: skip
    blend = choice.blend.over(members).fitted()
    model = TrainedModel({**blend.header, ENTRY: extra_header[ENTRY]}, blend.parts, blend.scorer, blend.threads)
    if model_dir is not None:
        model.save(model_dir)
    return model
