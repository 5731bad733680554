"""umpteen bench"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from umpteen.cli.compare import CalibrateOption, LauncherOption, RoundsOption, TimeoutOption
from umpteen.cli.options import ThreadsOption

if TYPE_CHECKING:
    from umpteen.comparing.running import Task

app = typer.Typer(help="Fixed comparisons: install peers, run a data set's, write the page of all results.")

#: What `--quick` runs: every family, and the two peers that are quickest to install.
QUICK_METHODS = "centroid,dismec,ppdsparse,pdsparse,label-tree,fastxml:n_trees=20,rxml:n_learners=1"
QUICK_PEERS = ("omikuji", "napkinxc")

OutputOption = Annotated[Path, typer.Option("--output", metavar="DIR", help="Where the report goes.")]


@app.callback(invoke_without_command=True)
def bench(
    context: typer.Context,
    quick: Annotated[bool, typer.Option("--quick", help="A small comparison, in a minute or two.")] = False,
    output: OutputOption = Path("umpteen-bench"),
    threads: ThreadsOption = None,
) -> None:
    """Fixed comparisons: install peers, run a data set's, write the page of all results.

    umpteen bench --quick
    """
    if context.invoked_subcommand is not None:
        return
    if not quick:
        typer.echo(context.get_help())
        return
    from umpteen.cli.compare import run_comparison
    from umpteen.comparing.programs import parse_contestants, peer_python
    from umpteen.comparing.running import Conditions

    installed = [peer for peer in QUICK_PEERS if peer_python(peer).exists()]
    missing = sorted({*QUICK_PEERS}.difference(installed))
    if missing:
        typer.echo(
            f"note: without {', '.join(missing)}; umpteen bench setup --peers {','.join(missing)} installs them"
        )
    contestants = parse_contestants([QUICK_METHODS]) + parse_contestants(installed, peers=True)
    run_comparison(_quick_task(), contestants, output, Conditions(threads, timeout=120), calibrate=True)


def _quick_task() -> Task:
    """Bibtex where it is, else synthetic rows of its shape."""
    from umpteen.cli.compare import task_of_rows
    from umpteen.comparing.running import Task
    from umpteen.data.synthetic import make_synthetic

    folder = data_root() / "Bibtex"
    if folder.exists():
        options: dict[str, Any] = {"format": None, "one_based": None, "threads": None}
        train, test = folder / "train.txt.xz", folder / "test.txt.xz"
        return task_of_rows("Bibtex", train, test, None, None, folder / "label_names.txt", options, {})
    typer.echo(
        f"note: no Bibtex in {data_root()}, so on synthetic rows of its shape; UMPTEEN_DATA names another place"
    )
    train_rows, test_rows = (make_synthetic(like="bibtex", part=part, seed=0) for part in ("train", "test"))
    return Task("synthetic, like Bibtex", train_rows, test_rows.X, test_rows.Y)


def data_root() -> Path:
    """Where data sets are: $UMPTEEN_DATA, else shared/data beside the working directory."""
    return Path(os.environ.get("UMPTEEN_DATA", Path("..") / "shared" / "data"))


@app.command()
def setup(
    peers: Annotated[
        str | None, typer.Option("--peers", help="Which, with commas between; by default all that are known.")
    ] = None,
) -> None:
    """Install peers, each in an environment of its own, in the user's cache directory or $UMPTEEN_PEERS.

    umpteen bench setup --peers omikuji,napkinxc
    """
    import subprocess

    from umpteen.comparing.programs import PEERS, create_environment
    from umpteen.comparing.running import last_words

    failed = False
    for peer in peers.split(",") if peers else PEERS:
        try:
            typer.echo(f"{peer:10} {create_environment(peer.strip())}")
        except subprocess.CalledProcessError as error:
            failed = True
            typer.echo(f"{peer:10} failed: {last_words(error.output or '')}", err=True)
    if failed:
        raise typer.Exit(1)


@app.command()
def run(
    config: Annotated[Path, typer.Argument(metavar="FILE.toml", help="A data set, methods and peers.")],
    output: OutputOption = Path("umpteen-bench"),
    result: Annotated[
        Path | None, typer.Option("--result", metavar="FILE.json", help="Also keep the figures here, for `results`.")
    ] = None,
    threads: ThreadsOption = None,
    rounds: RoundsOption = 1,
    timeout: TimeoutOption = None,
    launcher: LauncherOption = "",
    calibrate: CalibrateOption = False,
    studies: Annotated[bool, typer.Option("--studies/--no-studies", help="As for compare.")] = True,
    only: Annotated[
        str | None,
        typer.Option("--only", metavar="NAMES", help="Some of the file's; the figures kept of others stay."),
    ] = None,
    times: Annotated[
        bool, typer.Option("--times/--no-times", help="Whether to keep times: not where the machine has other work.")
    ] = True,
) -> None:
    """Run the comparison a file describes. Data sets lie in $UMPTEEN_DATA, else in ../shared/data.

    umpteen bench run benchmarks/bibtex.toml --result benchmarks/results/bibtex.json

    umpteen bench run benchmarks/bibtex.toml --result benchmarks/results/bibtex.json --only rxml,sleec
    """
    from umpteen.cli.compare import run_comparison
    from umpteen.comparing.configs import read_config
    from umpteen.comparing.programs import choose_contestants
    from umpteen.comparing.results import keep_figures, merge_figures, read_figures
    from umpteen.comparing.running import Conditions, write_result

    described = read_config(config)
    task = described.task(data_root())
    conditions = Conditions(threads, rounds, timeout, launcher=launcher)
    contestants = described.contestants if only is None else choose_contestants(described.contestants, only)
    found = run_comparison(task, contestants, output, conditions, calibrate=calibrate, studies=studies)
    if result is not None:
        result.parent.mkdir(parents=True, exist_ok=True)
        figures = keep_figures(found, times=times)
        if only is not None and result.exists():
            figures = merge_figures(read_figures(result), figures)
        write_result(result, figures)
        typer.echo(f"figures    {result}")


@app.command()
def results(
    folder: Annotated[
        Path, typer.Option("--results", metavar="DIR", help="Where `run --result` keeps figures.")
    ] = Path("benchmarks/results"),
    published: Annotated[
        Path, typer.Option("--published", metavar="FILE", help="Figures of papers and peers, with their sources.")
    ] = Path("benchmarks/published.json"),
    output: Annotated[Path, typer.Option("--output", metavar="FILE", help="The page.")] = Path("docs/RESULTS.md"),
) -> None:
    """Write the page of all results, from the figures that `run` kept and those that are published."""
    from umpteen.comparing.results import write_page
    from umpteen.data.files import write_bytes

    write_bytes(output, [write_page(folder, published).encode()])
    typer.echo(f"page       {output}")
