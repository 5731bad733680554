"""Options that several commands share, so that they are named and explained once."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from umpteen.cli.defaults import default_of, extensible
from umpteen.errors import DataError, ParamError
from umpteen.nearest import did_you_mean
from umpteen.printing import format_json, printable

if TYPE_CHECKING:
    from umpteen.data.dataset import Dataset
    from umpteen.engines.base import Engine
    from umpteen.trained.model import TrainedModel


def _parse_place(text: Any) -> Any:
    """A directory, or a URL, which a Path would spoil."""
    return str(text) if "://" in str(text) else Path(text)


_DATA = "Data file"
FormatOption = Annotated[
    str | None,
    typer.Option(
        "--format",
        help="xc, svmlight, npz or npy; of texts jsonl, csv, tsv, annif-tsv, parquet or excel.",
        rich_help_panel=_DATA,
    ),
]
FORMAT = extensible("from the name", "umpteen.readers")
FEATURES = extensible("word", "umpteen.encoders")
METHOD = extensible("auto", "umpteen.methods:METHODS", default_of("umpteen.tagger:Tagger", "method"))
LabelsOption = Annotated[
    Path | None,
    typer.Option("--labels", help="File with the labels, if separate.", rich_help_panel=_DATA),
]
OneBasedOption = Annotated[
    bool | None,
    typer.Option("--one-based/--zero-based", help="Whether ids in text files count from 1.", rich_help_panel=_DATA),
]
LabelNamesOption = Annotated[
    Path | None,
    typer.Option("--label-names", help="File with one label name per line.", rich_help_panel=_DATA),
]
ResumeOption = Annotated[bool, typer.Option("--resume", help="Continue an interrupted run.")]
ThreadsOption = Annotated[int | None, typer.Option("--threads", help="Threads to use. Default: all cores.", min=1)]
_ENGINE = "Where the work is done"
EngineOption = Annotated[
    str, typer.Option("--engine", help="local (this machine) or ray (a Ray cluster).", rich_help_panel=_ENGINE)
]
ENGINE = default_of("umpteen.trained.model:TrainedModel.predict_topk", "engine")
AddressOption = Annotated[
    str | None,
    typer.Option(
        "--address",
        help="The Ray cluster: host:port, auto, or local to start one here. Default: $RAY_ADDRESS, else local.",
        rich_help_panel=_ENGINE,
    ),
]
CpusOption = Annotated[
    int | None,
    typer.Option(
        "--cpus-per-worker",
        help="Cores, and thus threads, of a Ray worker. Default: those of the smallest node.",
        min=1,
        rich_help_panel=_ENGINE,
    ),
]
WriteOption = Annotated[
    str | None,
    typer.Option(
        "--write",
        metavar="driver|workers",
        help="Who writes shards: the driver, or the Ray workers if all nodes see the directory.",
        rich_help_panel=_ENGINE,
    ),
]
KeepGoingOption = Annotated[
    bool,
    typer.Option("--keep-going", help="If a shard fails, train the others before stopping.", rich_help_panel=_ENGINE),
]
PropensityAOption = Annotated[float, typer.Option("--A", help="Propensity constant A.", min=0)]
PropensityBOption = Annotated[float, typer.Option("--B", help="Propensity constant B.", min=0)]
PROPENSITY_A = default_of("umpteen.evaluation.metrics:evaluate", "A")
PROPENSITY_B = default_of("umpteen.evaluation.metrics:evaluate", "B")
TopKOption = Annotated[int, typer.Option("--top-k", help="Labels per row.", min=1)]
DecisionTopKOption = Annotated[
    str | None,
    typer.Option(
        "--top-k",
        help="Give so many labels, however unlikely; or auto, as many as maximise the expected F1. By default, the "
        "labels that are likely enough.",
    ),
]
ThresholdOption = Annotated[
    str | None,
    typer.Option(
        "--threshold",
        help="Least probability; or micro or macro, the thresholds learned in training. By default micro; without "
        "calibration 0.5, or as many labels as training rows had if scores only rank.",
    ),
]
MinKnownOption = Annotated[
    float,
    typer.Option(
        "--min-known",
        help="Give no label to a text with a smaller share of words the model knows.",
        min=0,
        max=1,
    ),
]
LanguageOption = Annotated[
    str | None,
    typer.Option(
        "--language",
        metavar="CODE",
        help="Give names in this language, such as fi, of the vocabulary the model was trained with.",
    ),
]
OverwriteOption = Annotated[
    bool,
    typer.Option("--overwrite", help="Replace files and models that are already there, once the new are complete."),
]
TOP_K = default_of("umpteen.trained.model:TrainedModel.predict_topk", "top_k")
ModelArgument = Annotated[Path, typer.Argument(metavar="DIR", help="Model directory.", parser=_parse_place)]
ModelOption = Annotated[
    Path, typer.Option("--model", metavar="DIR", help="Where the model goes.", parser=_parse_place)
]


def read_data(
    path: Path,
    *,
    format: str | None,
    labels: Path | None,
    one_based: bool | None,
    threads: int | None = None,
    **sizes: Any,
) -> Dataset:
    """Reads the data file a command names, with the options its format has."""
    from umpteen.data.reading import format_of, read

    chosen = format_of(path) if format is None else format
    options: dict[str, Any] = {}
    if labels is not None:
        if chosen == "svmlight":
            raise ParamError("--labels cannot be used with svmlight files, which contain their labels")
        options["labels"] = labels
    if chosen not in ("npz", "npy"):
        options |= {"threads": threads, **sizes}
    if one_based is not None:
        if chosen in ("npz", "npy"):
            raise ParamError(f"--one-based and --zero-based are for text files, not for .{chosen}")
        options["one_based"] = one_based
    return read(path, format=chosen, **options)


def choose_engine(
    engine: str,
    threads: int | None,
    *,
    keep_going: bool = False,
    address: str | None = None,
    cpus_per_worker: int | None = None,
    write: str | None = None,
) -> Engine:
    """The engine the options describe."""
    from umpteen.engines import make_engine

    given = {"address": address, "cpus_per_worker": cpus_per_worker, "write": write}
    if engine == "ray":
        from umpteen.engines.ray import RayEngine

        options: dict[str, Any] = {"write": write} if write is not None else {}
        return RayEngine(address, cpus=cpus_per_worker, keep_going=keep_going, threads=threads, **options)
    for name, value in given.items():
        if value is not None:
            raise ParamError(f"--{name.replace('_', '-')} needs --engine ray, but the engine is {engine}")
    if engine == "local":
        from umpteen.engines.local import LocalEngine

        return LocalEngine(threads, keep_going=keep_going)
    return make_engine(engine, threads)


def read_for_model(model: TrainedModel, path: Path, **options: Any) -> Dataset:
    """A data file to predict on: it may lack features and labels the model knows, but must not have others."""
    return read_alike(path, model.n_features, model.n_labels, **options)


def read_alike(path: Path, n_features: int, n_labels: int, **options: Any) -> Dataset:
    """A data file with these numbers of features and labels; a text file may name fewer."""
    data = read_data(path, n_features=n_features, n_labels=n_labels, **options)
    if (data.n_features, data.n_labels) != (n_features, n_labels):
        raise DataError(
            f"{path}: must have {n_features} features and {n_labels} labels, "
            f"but has {data.n_features} and {data.n_labels}"
        )
    return data


def parse_number(value: str | None) -> Any:
    """A number where it is one; else the word, for the model to judge."""
    if value is None:
        return None
    for parse in (int, float):
        try:
            return parse(value)
        except ValueError:
            continue
    return value


def parse_settings(settings: list[str], option: str = "--set") -> dict[str, Any]:
    """`name=value` pairs; a value is JSON where it can be (0.5, true, null), else text."""
    parsed: dict[str, Any] = {}
    for setting in settings:
        name, equals, value = setting.partition("=")
        if not equals or not name:
            raise ParamError(f"{option} must be name=value, but is {setting!r}")
        try:
            parsed[name] = json.loads(value)
        except ValueError:
            parsed[name] = {"True": True, "False": False, "None": None}.get(value, value)
    return parsed


def make_text_features(settings: list[str], threads: int | None) -> Any:
    """What --features says: names of kinds of terms, and settings of the only kind, or of one by its name."""
    from umpteen.tagging.parameters import DEFAULT_FEATURES
    from umpteen.text.encoding import Encoding, is_encoder
    from umpteen.text.tfidf import Tfidf
    from umpteen.text.union import NAMED, TfidfUnion

    default = [DEFAULT_FEATURES] if isinstance(DEFAULT_FEATURES, str) else list(DEFAULT_FEATURES)
    names = [setting for setting in settings if "=" not in setting] or default
    for name in names:
        if name not in NAMED and not is_encoder(name):
            raise ParamError(
                f"--features must be one of {', '.join(NAMED)}, an encoder such as svd:256, or NAME=VALUE, "
                f"but is {name!r}{did_you_mean(name, NAMED)}"
            )
    parts: dict[str, dict[str, Any]] = {name: dict(NAMED.get(name, {})) for name in names}
    for setting, value in parse_settings([s for s in settings if "=" in s], "--features").items():
        owner, dot, inner = setting.rpartition(".")
        if dot and owner not in parts:
            raise ParamError(f"--features {setting}=… must begin with one of {', '.join(parts)}")
        parts[owner if dot else names[0]][inner] = value
    made = [(Tfidf() if name in NAMED else Encoding(name)).set_params(**params) for name, params in parts.items()]
    if len(made) == 1 and isinstance(made[0], Tfidf):
        return made[0].set_params(threads=threads)
    return TfidfUnion(tuple(made), threads=threads)


def print_text(text: str, *, err: bool = False) -> None:
    """Prints text that may hold names and paths of others: shown, not obeyed by the terminal."""
    typer.echo(printable(text, lines=True), err=err)


def refuse_missing(*paths: Path | None) -> None:
    """Raises before the long work if a file that is read after it is not there."""
    for path in paths:
        if path is not None and not path.exists():
            raise FileNotFoundError(2, "No such file or directory", str(path))


def refuse_unwritable(*targets: str | Path | None, overwrite: bool, inputs: Sequence[str | Path | None] = ()) -> None:
    """Raises before the long work if a file could not be written after it, if it is one that is read, or if it is
    there and not to be replaced."""
    for target in targets:
        if target is None or str(target) == "-":
            continue
        path = Path(target)
        for source in inputs:
            if source is not None and path.is_file() and Path(source).exists() and path.samefile(source):
                raise DataError(f"{path}: the output must be another file than the input")
        if path.is_dir():
            raise DataError(f"{path}: is a directory, but must be a file")
        if not path.parent.is_dir():
            raise FileNotFoundError(2, "No such file or directory", str(path))
        if path.is_file() and not overwrite:
            raise DataError(f"{path}: already exists; choose another name, or replace it with --overwrite")


def write_json(target: str, value: Any) -> None:
    """JSON to a file, or to standard output for "-"."""
    text = format_json(value, indent=1) + "\n"
    if target == "-":
        typer.echo(text, nl=False)
    else:
        from umpteen.data.files import write_bytes

        write_bytes(target, [text.encode()])
