"""umpteen suggest"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from umpteen.cli.label_lists import ExcludeOption, IncludeOption, find_labels
from umpteen.cli.options import (
    DecisionTopKOption,
    LanguageOption,
    MinKnownOption,
    ModelArgument,
    OverwriteOption,
    ThresholdOption,
    parse_number,
    print_text,
    refuse_unwritable,
    write_json,
)
from umpteen.errors import ParamError
from umpteen.printing import printable


def command(
    model: ModelArgument,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="The text to tag; - reads it from standard input.")],
    top_k: DecisionTopKOption = None,
    threshold: ThresholdOption = None,
    min_known: MinKnownOption = 0.0,
    exclude: ExcludeOption = None,
    include: IncludeOption = None,
    language: LanguageOption = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="Also show the words for and against each label.")
    ] = False,
    html: Annotated[
        Path | None,
        typer.Option("--html", metavar="FILE", help="Write the explanations as a page with coloured words."),
    ] = None,
    json: Annotated[
        str | None, typer.Option("--json", metavar="FILE", help="Write everything as JSON; - is standard output.")
    ] = None,
    overwrite: OverwriteOption = False,
) -> None:
    """Tag a text with a model that was trained on texts.

    umpteen suggest cooking.model "How do I season a cast iron pan?" --explain
    """
    from rich.console import Console
    from rich.text import Text

    from umpteen.tagger import Tagger
    from umpteen.tagging.rows import why_none

    if text != "-" and _is_file(text):
        raise ParamError(
            f"TEXT must be a text, but is the name of a file; umpteen predict {model} {text} --output FILE tags its "
            f"rows, umpteen suggest {model} - < {text} all of it as one text"
        )
    refuse_unwritable(html, json, overwrite=overwrite)
    tagger = Tagger.load(model)
    limits = parse_number(top_k), parse_number(threshold)
    tagger.fitted().check_limits(*limits)
    if text == "-":
        text = sys.stdin.read()
    rows = tagger.vectorize([text])
    if rows.words is None:
        raise ParamError(f"{model}: this model takes rows of numbers, not texts; use umpteen predict")
    trained, concepts = tagger.fitted(), tagger.concepts_
    some = [
        find_labels(trained, given, option, concepts)
        for given, option in ((exclude, "--exclude"), (include, "--include"))
    ]
    labels, values = tagger.rank_rows(rows, *limits, *some, min_known=min_known)
    found = tagger.name_labels(labels, values, language)[0]
    ids = [label for label in labels[0].tolist() if label >= 0]
    explanations = [tagger.explain_row(text, rows.X, label) for label in ids] if explain or html is not None else []
    unknown, n_words = int(rows.words.unknown[0]), int(rows.words.total[0])
    if json != "-":
        console = Console(highlight=False)
        names = [printable(name) for name, _ in found]
        width = max(map(len, names), default=0)
        for rank, (name, (_, value)) in enumerate(zip(names, found, strict=True)):
            bar = "█" * round(30 * value)
            known = " ".join(filter(None, (found.notations[rank], found.uris[rank]))) if found.uris else ""
            line = Text.assemble(f"{name:<{width}}  {value:5.2f}  ", (bar, "cyan"))
            console.print(line.append(f"  {printable(known)}", "dim") if known else line, soft_wrap=bool(known))
            if explain:
                console.print(explanations[rank])
        if not found:
            print_text(why_none(float(rows.known_share[0]), min_known))
        if unknown:
            print_text(f"note: {unknown} of {n_words} words are unknown to the model", err=True)
    if html is not None:
        from umpteen.data.files import write_bytes

        write_bytes(html, [_page("\n".join(part.to_html() for part in explanations)).encode("utf-8", "replace")])
    if json is not None:
        facts: dict[str, Any] = {
            "suggestions": [
                {
                    "label": name,
                    **(tagger.concepts_.describe(label) if tagger.concepts_ else {}),
                    "probability": value,
                    **({"support": found.support[i]} if found.support else {}),
                }
                for i, (label, (name, value)) in enumerate(zip(ids, found, strict=True))
            ],
            "unknown_words": unknown,
            "words": n_words,
        }
        if not found:
            facts["note"] = why_none(float(rows.known_share[0]), min_known)
        if explain:
            facts["explanations"] = [part.as_dict() for part in explanations]
        write_json(json, facts)


def _is_file(text: str) -> bool:
    try:
        return Path(text).is_file()
    except (OSError, ValueError):  # too long for a name, or with a NUL in it
        return False


def _page(body: str) -> str:
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8"><meta name="color-scheme" content="light dark">'
        "<title>umpteen: explanations</title><style>body{font:16px/1.5 system-ui,sans-serif;max-width:50rem;"
        "margin:2rem auto;padding:0 1rem}mark{border-radius:3px;padding:0 2px}</style>"
        f"<body>{body}</body></html>\n"
    )
