"""umpteen synthetic"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from umpteen.cli.defaults import default_of
from umpteen.cli.options import print_text


def command(
    output: Annotated[Path, typer.Argument(metavar="DIR", help="Directory for train.txt and test.txt.")],
    like: Annotated[str, typer.Option("--like", help="The public data set to imitate.")] = "eurlex-4k",
    scale: Annotated[float, typer.Option("--scale", help="Multiplies rows, features and labels.", min=0)] = 0.1,
    seed: Annotated[int, typer.Option("--seed", help="Same seed, same bytes.", min=0)] = default_of(
        "umpteen.data.synthetic:make_synthetic", "seed"
    ),
) -> None:
    """Make a learnable data set with the shape of a public one, to try things on.

    umpteen synthetic demo --like eurlex-4k --scale 0.2
    """
    from umpteen.data.synthetic import make_synthetic
    from umpteen.data.xc_text import write_xc

    output.mkdir(parents=True, exist_ok=True)
    for part in ("train", "test"):
        data = make_synthetic(like=like, scale=scale, part=part, seed=seed)
        path = output / f"{part}.txt"
        write_xc(data, path)
        print_text(f"{path}: {data.n_rows:,} rows × {data.n_features:,} features × {data.n_labels:,} labels")
