"""The command line. One file per command; each turns its options into the call a Python user would write."""

from __future__ import annotations

import re
import sys
from typing import Any

import typer

from umpteen.cli import (
    add_labels,
    blend,
    compare,
    demo,
    evaluate,
    inspect,
    labels,
    learn,
    peers,
    predict,
    prune,
    report,
    serve,
    suggest,
    synthetic,
    train,
    tune,
    vocabulary,
)
from umpteen.cli.options import print_text
from umpteen.errors import ParamError, UmpteenError
from umpteen.progress import showing

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
    report,
    compare,
    inspect,
    labels,
    prune,
    add_labels,
    learn,
    blend,
    tune,
    synthetic,
):
    app.command(name=module.__name__.rsplit(".", 1)[1].replace("_", "-"))(module.command)
app.add_typer(peers.app, name="peers")
app.add_typer(vocabulary.app, name="vocabulary")


@app.callback(invoke_without_command=True)
def _root(
    context: typer.Context, version: bool = typer.Option(False, "--version", help="Print the version and exit.")
) -> None:
    context.with_resource(showing(True))
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
        _fail(in_flags(str(error), type(error), app))
    except BrokenPipeError:
        # Whoever read our output has stopped, as `head` does: exit quietly.
        sys.stderr.close()
        sys.exit(1)
    except OSError as error:
        _fail(f"{error.filename}: {error.strerror}" if error.filename else str(error))
    except MemoryError as error:
        _fail(f"out of memory ({error})" if str(error) else "out of memory")


def in_flags(message: str, kind: type[Exception], app: typer.Typer) -> str:
    """A message with parameters named as the options they come from: top_k is --top-k here.

    A name of several words is replaced wherever it stands; one that is a plain word, such as threads, only where a
    message about a parameter begins with it.
    """
    names = _option_names(app)
    message = re.sub(
        r"(?<![\w'\"./-])[a-z]+(?:_[a-z]+)+(?![\w'\"./=])", lambda word: names.get(word[0], word[0]), message
    )
    message = re.sub(r"; encoding names", "; --encoding names", message)
    if message.endswith("and is never closed)") and "csv_quote" in names:
        message += "; if quotes are characters as any others in it, --csv-quote none says so"
    if issubclass(kind, ParamError):
        message = re.sub(
            r"^([a-z]+)(?= (?:must|needs|is for|holds|goes)\b)", lambda word: names.get(word[0], word[0]), message
        )
    return message


def _option_names(app: typer.Typer) -> dict[str, str]:
    """The options of the command that runs, by the name of the parameter each is for."""
    group: Any = typer.main.get_command(app)
    own = next((group.commands[word] for word in sys.argv[1:] if word in group.commands), None)
    names = {}
    for param in [] if own is None else own.params:
        flags = [flag for flag in param.opts if flag.startswith("--")]
        if flags:
            names[flags[0].removeprefix("--").replace("-", "_")] = flags[0]
    return names


def _fail(message: str) -> None:
    print_text(f"error: {message}", err=True)
    sys.exit(1)
