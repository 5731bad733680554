"""umpteen prune"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from umpteen.cli.options import ModelArgument, OverwriteOption, print_text
from umpteen.cli.training import replacing


def command(
    model: ModelArgument,
    delta: Annotated[float, typer.Option("--delta", help="Drop weights whose absolute value is below this.", min=0)],
    target: Annotated[Path, typer.Option("--model", metavar="DIR2", help="Where the smaller model goes.")],
    overwrite: OverwriteOption = False,
) -> None:
    """Make a smaller model without training it again.

    Most weights are small and matter little: on EURLex-4K, the tenth of DiSMEC's weights that is above 0.05 ranks as
    well as all of them. `umpteen evaluate` shows what a delta costs on your data. The original model is not changed,
    and only one of its shards is in memory at a time.

    umpteen prune eurlex.model --delta 0.05 --model small.model
    """
    from umpteen.memory import format_bytes
    from umpteen.storage.store import ModelReader
    from umpteen.trained.loading import load_model

    whole = load_model(model)
    with replacing(target, overwrite) as place:
        smaller = whole.pruned(delta, place)
        weights = [pruned.scorer.describe()["weights"] for pruned in (whole, smaller)]
    sizes = [ModelReader(path).n_bytes() for path in (model, target)]
    for name, path, n_bytes, nnz in zip(("before", "after"), (model, target), sizes, weights, strict=True):
        print_text(f"{name:10} {path} ({format_bytes(n_bytes)}, {nnz:,} weights)")
    if weights[0] == weights[1]:
        print_text(f"note: no weight is smaller than {delta:g}, so nothing was dropped")
