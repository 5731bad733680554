"""umpteen vocabulary"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from umpteen.cli.options import ModelArgument, OverwriteOption, print_text, refuse_unwritable
from umpteen.cli.training import refuse_model
from umpteen.errors import ParamError
from umpteen.printing import printable

if TYPE_CHECKING:
    from umpteen.vocabulary.concepts import Vocabulary

app = typer.Typer(no_args_is_help=True)
#: Names that are shown of each kind of change.
_SHOWN = 10

PlaceArgument = Annotated[
    Path, typer.Argument(metavar="MODEL|FILE", help="A model with a vocabulary, or the file of one.")
]
LanguageOption = Annotated[
    str | None, typer.Option("--language", metavar="CODE", help="The language of names, such as en.")
]


@app.callback()
def vocabulary() -> None:
    """Search, write and update the vocabulary of a model."""


@app.command()
def update(
    model: ModelArgument,
    new: Annotated[Path, typer.Argument(metavar="NEW", help="The new edition: SKOS, Annif's TSV or CSV, or a list.")],
    target: Annotated[
        Path | None,
        typer.Option("--model", metavar="DIR2", help="Where the new model goes; without it, in place of MODEL."),
    ] = None,
    overwrite: OverwriteOption = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would change, and change nothing.")] = False,
    show_all: Annotated[bool, typer.Option("--all", help="Show every name, not the first ten of each kind.")] = False,
) -> None:
    """Give a model a new edition of its vocabulary, without training it again.

    Labels keep their ids and follow their concepts to new names. Those whose concept is deprecated, gone, or merged
    into that of another label are suggested no more. The new model appears when it is complete; until then, and if
    anything fails, the old one stays.

    umpteen vocabulary update yso.model yso-new.ttl
    """
    from umpteen.learning import update_vocabulary
    from umpteen.tagger import Tagger

    refuse_model(target, overwrite, ", or leave out --model")
    change = (
        Tagger.load(model).update_vocabulary(new) if dry_run else update_vocabulary(model, new, target, overwrite)
    )
    most = None if show_all else _SHOWN
    print_text(f"concepts   {change.n_after:,} in use, before {change.n_before:,}")
    for name in ("added", "removed", "deprecated"):
        _print_names(name, getattr(change, name), most)
    _print_names("renamed", [f"{old} → {now}" for old, now in change.renamed], most)
    _print_names("merged", [f"{old} → {now}" for old, now in change.merged], most)
    _print_names("restored", change.restored, most)
    n = len(change.retired)
    print_text(f"{n:,} labels are suggested no more{':' if n else ''}")
    _print_names("", change.retired, most)
    print_text("nothing was changed" if dry_run else f"model      {model if target is None else target}")


@app.command()
def search(
    place: PlaceArgument,
    query: Annotated[str, typer.Argument(metavar="QUERY", help="What to look for; case does not count.")],
    language: LanguageOption = None,
    limit: Annotated[int, typer.Option("--limit", help="Concepts to print.", min=1, max=1_000_000)] = 20,
) -> None:
    """Find concepts by their names, alternative and hidden terms, in every language.

    umpteen vocabulary search yso.model silakka
    """
    found = _open(place, language)
    for concept, term in found.search(query, limit):
        name = found.name(concept)
        notes = [found.notations[concept], found.uris[concept]]
        if term.text != name:
            notes.insert(0, f"{term.text}{f' ({term.language})' if term.language else ''}")
        if found.deprecated[concept]:
            heir = found.current(concept)
            notes.append("deprecated" if heir == concept else f"deprecated; use {found.name(heir)}")
        print_text(f"{printable(name)}  {printable('  '.join(filter(None, notes)))}".rstrip())


@app.command()
def export(
    place: PlaceArgument,
    output: Annotated[Path, typer.Argument(metavar="OUTPUT", help="A .ttl, .nt, .csv, .tsv or .txt file.")],
    overwrite: OverwriteOption = False,
    language: LanguageOption = None,
) -> None:
    """Write the vocabulary of a model as a file: SKOS (.ttl, .nt), Annif's .csv or .tsv, or a list (.txt).

    umpteen vocabulary export yso.model yso.ttl
    """
    from umpteen.vocabulary.writing import write_vocabulary

    refuse_unwritable(output, inputs=[place], overwrite=overwrite)
    found = _open(place, language)
    write_vocabulary(found, output)
    print_text(f"vocabulary {output}: {len(found):,} concepts, {found.n_terms:,} terms")


def _open(place: Path, language: str | None) -> Vocabulary:
    from umpteen.tagger import Tagger
    from umpteen.vocabulary.reading import read_vocabulary

    if not place.is_dir():
        return read_vocabulary(place, language)
    concepts = Tagger.load(place).concepts_
    if concepts is None:
        raise ParamError(f"{place}: must be a model with a vocabulary, but has none; train it with --vocabulary")
    return concepts.vocabulary if language is None else concepts.vocabulary.in_language(language)


def _print_names(what: str, names: list[Any], most: int | None) -> None:
    if not names:
        return
    if what:
        print_text(f"{what:10} {len(names):,}")
    for name in names[:most]:
        print_text(f"           {printable(name)}")
    if most is not None and len(names) > most:
        print_text(f"           … and {len(names) - most:,} more; --all shows them")
