"""umpteen train"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

import typer

from umpteen.cli.facts import describe_data
from umpteen.cli.options import (
    FormatOption,
    LabelsOption,
    OneBasedOption,
    ThreadsOption,
    parse_settings,
    read_alike,
    read_data,
)
from umpteen.errors import ParamError


def command(
    train: Annotated[Path, typer.Argument(metavar="TRAIN", help="Training data.")],
    method: Annotated[str, typer.Option("--method", help="Which method to train.")] = "centroid",
    model: Annotated[Path, typer.Option("--model", metavar="DIR", help="Where the model goes.")] = Path(
        "umpteen.model"
    ),
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="A parameter of the method; may be given several times."),
    ] = None,
    valid: Annotated[
        Path | None, typer.Option("--valid", metavar="FILE", help="Data to evaluate the finished model on.")
    ] = None,
    valid_labels: Annotated[
        Path | None, typer.Option("--valid-labels", metavar="FILE", help="Their labels, where they are apart.")
    ] = None,
    threads: ThreadsOption = None,
    seed: Annotated[int | None, typer.Option("--seed", help="Seed of methods that draw random numbers.")] = None,
    engine: Annotated[str, typer.Option("--engine", help="Where shards are trained.")] = "local",
    resume: Annotated[bool, typer.Option("--resume", help="Continue an interrupted run.")] = False,
    label_names: Annotated[
        Path | None,
        typer.Option("--label-names", help="File with one label name a line.", rich_help_panel="Data file"),
    ] = None,
    labels: LabelsOption = None,
    format: FormatOption = None,
    one_based: OneBasedOption = None,
) -> None:
    """Train a model and write it to a directory.

    Shards of the model appear there as they finish; after an interruption --resume continues with the rest.

    umpteen train train.txt.xz --method centroid --model eurlex.model --valid test.txt.xz
    """
    from umpteen.data.files import read_names
    from umpteen.memory import available_memory, format_bytes
    from umpteen.methods import method_class
    from umpteen.models.store import ModelReader

    cls = method_class(method)
    params = parse_settings(settings or [])
    if seed is not None:
        params["seed"] = seed
    cls.check_param_names(params)
    for name in ("threads", "engine"):
        if name in params:
            raise ParamError(f"--set {name}=… does not go with this command; use --{name}")
    estimator = cls(**params).set_params(threads=threads, engine=engine)
    estimator.validate()

    options: dict[str, Any] = {"format": format, "one_based": one_based, "threads": threads}
    started = time.perf_counter()
    data = read_data(train, labels=labels, **options)
    names = read_names(label_names) if label_names is not None else data.label_names
    typer.echo(f"data       {train} ({time.perf_counter() - started:.1f} s)")
    for line in describe_data(data).splitlines():
        typer.echo(f"           {line}")
    held_out = None
    if valid is not None:  # before the long work, not after it
        held_out = read_alike(valid, data.n_features, data.n_labels, labels=valid_labels, **options)
    estimate = estimator.estimate(data.X, data.Y)
    available = available_memory()
    typer.echo(f"method     {estimator!r}")
    typer.echo(
        f"estimate   at most {format_bytes(estimate.peak_bytes)} of memory"
        + (f" ({format_bytes(available)} are free)" if available is not None else "")
        + f", model at most {format_bytes(estimate.model_bytes)}"
    )
    started = time.perf_counter()
    try:
        estimator.fit(data.X, data.Y, model, label_names=names, resume=resume, progress=True)
    except KeyboardInterrupt:
        typer.echo(f"interrupted; finished shards are kept in {model}: run again with --resume", err=True)
        raise typer.Exit(130) from None
    seconds = time.perf_counter() - started
    reader = ModelReader(model)
    typer.echo(
        f"model      {model} ({format_bytes(reader.n_bytes())}, {len(reader.shard_names)} shards, {seconds:.1f} s)"
    )
    if held_out is not None:
        from umpteen.cli.evaluate import evaluate_model

        typer.echo(f"valid      {valid}")
        typer.echo(str(evaluate_model(estimator, held_out, threads=threads)))
