"""Fixed comparisons: run a data set's, keep the figures, write the page of all results.

python -m benchmarks run benchmarks/bibtex.toml --result benchmarks/results/bibtex.json
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from benchmarks.common import RESULTS, ROOT, data_root
from benchmarks.runner.configs import Config, read_config
from benchmarks.runner.figures import keep_figures, merge_figures, read_figures
from benchmarks.runner.page import write_page
from umpteen.cli.compare import (
    ROUNDS,
    SEEDS,
    CalibrateOption,
    LauncherOption,
    RoundsOption,
    SeedsOption,
    StudiesOption,
    TimeoutOption,
    refuse_rounds_of_seeds,
    run_comparison,
)
from umpteen.cli.main import run_app
from umpteen.cli.options import ThreadsOption
from umpteen.comparing.programs import parse_contestants, peer_python
from umpteen.comparing.running import Conditions, Contest, write_result
from umpteen.data.files import write_bytes
from umpteen.data.synthetic import make_synthetic
from umpteen.errors import ParamError

#: What `quick` runs: every family, and the two peers that are quickest to install.
QUICK_METHODS = "centroid,dismec,ppdsparse,pdsparse,label-tree,fastxml:n_trees=20,rxml:n_learners=1"
QUICK_PEERS = ("omikuji", "napkinxc")

OutputOption = Annotated[Path, typer.Option("--output", metavar="DIR", help="Where the report goes.")]
OUTPUT = Path("umpteen-bench")

app = typer.Typer(help=__doc__, no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)


@app.command()
def run(
    config: Annotated[Path, typer.Argument(metavar="FILE.toml", help="A data set, methods and peers.")],
    output: OutputOption = OUTPUT,
    result: Annotated[
        Path | None, typer.Option("--result", metavar="FILE.json", help="Also keep the figures here, for `results`.")
    ] = None,
    threads: ThreadsOption = None,
    rounds: RoundsOption = ROUNDS,
    seeds: SeedsOption = SEEDS,
    timeout: TimeoutOption = None,
    launcher: LauncherOption = "",
    calibrate: CalibrateOption = False,
    studies: StudiesOption = True,
    only: Annotated[
        str | None,
        typer.Option("--only", metavar="NAMES", help="Some of the file's; the figures kept of others stay."),
    ] = None,
    times: Annotated[
        bool,
        typer.Option("--times/--no-times", help="Whether to keep times of the clock; not where the machine is busy."),
    ] = True,
) -> None:
    """Run the comparison a file describes. Data sets lie in $UMPTEEN_DATA, else in ../shared/data.

    python -m benchmarks run benchmarks/bibtex.toml --result benchmarks/results/bibtex.json

    python -m benchmarks run benchmarks/bibtex.toml --result benchmarks/results/bibtex.json --only rxml,sleec
    """
    described = read_config(config)
    contestants = described.contestants if only is None else described.choose(only)
    refuse_rounds_of_seeds(rounds, seeds)
    conditions = Conditions(threads, rounds, timeout, launcher=launcher, seeds=seeds)
    found = run_comparison(
        described.contest(data_root()), contestants, output, conditions, calibrate=calibrate, studies=studies
    )
    if result is not None:
        result.parent.mkdir(parents=True, exist_ok=True)
        figures = keep_figures(found, times=times)
        kept = read_figures(result) if only is not None and result.exists() else None
        write_result(result, figures if kept is None else merge_figures(kept, figures))
        typer.echo(f"figures    {result}")


@app.command()
def results(
    folder: Annotated[
        Path, typer.Option("--results", metavar="DIR", help="Where `run --result` keeps figures.")
    ] = RESULTS,
    published: Annotated[
        Path, typer.Option("--published", metavar="FILE", help="Figures of papers and peers, with their sources.")
    ] = ROOT / "benchmarks" / "published.json",
    output: Annotated[Path, typer.Option("--output", metavar="FILE", help="The page.")] = (
        ROOT / "docs" / "RESULTS.md"
    ),
) -> None:
    """Write the page of all results, from the figures that `run` kept and those that are published."""
    write_bytes(output, [write_page(folder, published).encode()])
    typer.echo(f"page       {output}")


@app.command()
def papers(
    names: Annotated[list[str], typer.Argument(metavar="SET…", help="Bibtex, Delicious, Mediamill; or classes.")],
    splits: Annotated[int, typer.Option("--splits", help="Random splits of a set's rows.", min=1)] = 10,
    methods: Annotated[
        str | None, typer.Option("--methods", metavar="NAME;…", help="Some of them, with semicolons between.")
    ] = None,
) -> None:
    """Take the papers' tables again by their protocol, and write their page; what is kept is not taken twice.

    python -m benchmarks papers Bibtex --splits 10
    """
    from benchmarks import papers as study

    chosen = [each.strip() for each in methods.split(";")] if methods else list(study.METHODS)
    for name, known in [(each, study.METHODS) for each in chosen] + [
        (each, (*study.SETS, "classes")) for each in names
    ]:
        if name not in known:
            raise ParamError(f"{name!r} is none of {', '.join(known)}")
    for name in names:
        if name == "classes":
            study.run_classes(study.CLASS_SETS)
        else:
            study.run_splits(name, chosen, splits)
    study.write_page()
    typer.echo(f"page       {study.PAGE}")


@app.command()
def quick(output: OutputOption = OUTPUT, threads: ThreadsOption = None) -> None:
    """Compare every family of methods on Bibtex, or on synthetic rows of its shape, in a minute or two."""
    installed = [peer for peer in QUICK_PEERS if peer_python(peer).exists()]
    missing = sorted({*QUICK_PEERS}.difference(installed))
    if missing:
        typer.echo(f"note: without {', '.join(missing)}; umpteen peers install {' '.join(missing)} installs them")
    contestants = parse_contestants([QUICK_METHODS]) + parse_contestants(installed, peers=True)
    run_comparison(_quick_contest(), contestants, output, Conditions(threads, timeout=120), calibrate=True)


def _quick_contest() -> Contest:
    if (data_root() / "Bibtex").exists():
        return Config("Bibtex", [], label_names=True).contest(data_root())
    typer.echo(
        f"note: no Bibtex in {data_root()}, so on synthetic rows of its shape; UMPTEEN_DATA names another place"
    )
    train, test = (make_synthetic(like="bibtex", part=part, seed=0) for part in ("train", "test"))
    return Contest("synthetic, like Bibtex", train, test.X, test.Y)


if __name__ == "__main__":
    run_app(app)
