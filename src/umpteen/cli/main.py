"""The command line. One file per command; each turns its options into the call a Python user would write."""

from __future__ import annotations

import sys

import typer

from umpteen.cli import (
    add_labels,
    blend,
    compare,
    demo,
    evaluate,
    inspect,
    learn,
    peers,
    predict,
    prune,
    serve,
    suggest,
    synthetic,
    train,
    tune,
)
from umpteen.cli.options import print_text
from umpteen.errors import UmpteenError

app = typer.Typer(
    name="umpteen",
    help="Tag anything with umpteen labels: extreme multi-label classification.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for module in (
    demo,
    train,
    suggest,
    serve,
    predict,
    evaluate,
    compare,
    inspect,
    prune,
    add_labels,
    learn,
    blend,
    tune,
    synthetic,
):
    app.command(name=module.__name__.rsplit(".", 1)[1].replace("_", "-"))(module.command)
app.add_typer(peers.app, name="peers")


@app.callback(invoke_without_command=True)
def _root(version: bool = typer.Option(False, "--version", help="Print the version and exit.")) -> None:
    if version:
        from umpteen import __version__

        typer.echo(f"umpteen {__version__}")
        raise typer.Exit


def main() -> None:
    """Entry point."""
    run_app(app)


def run_app(app: typer.Typer) -> None:
    """Runs commands. An expected error is one line on standard error and exit code 1."""
    try:
        app()
    except UmpteenError as error:
        _fail(str(error))
    except BrokenPipeError:
        # Whoever read our output has stopped, as `head` does: exit quietly.
        sys.stderr.close()
        sys.exit(1)
    except OSError as error:
        _fail(f"{error.filename}: {error.strerror}" if error.filename else str(error))
    except MemoryError as error:
        _fail(f"out of memory ({error})" if str(error) else "out of memory")


def _fail(message: str) -> None:
    print_text(f"error: {message}", err=True)
    sys.exit(1)
