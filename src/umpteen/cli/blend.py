"""umpteen blend"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from umpteen.cli.corpora import (
    CsvDelimiterOption,
    CsvQuoteOption,
    EncodingOption,
    LabelDelimiterOption,
    LabelFieldOption,
    TableOptions,
    TextFieldOption,
    read_texts,
)
from umpteen.cli.defaults import default_of
from umpteen.cli.options import (
    FORMAT,
    FormatOption,
    LabelsOption,
    OneBasedOption,
    OverwriteOption,
    ThreadsOption,
    print_text,
    read_for_model,
    refuse_missing,
)
from umpteen.cli.training import replacing


def command(
    models: Annotated[list[Path], typer.Argument(metavar="DIR...", help="Model directories, two or more.")],
    target: Annotated[Path, typer.Option("--model", metavar="DIR", help="Where the blend goes.")],
    overwrite: OverwriteOption = False,
    heldout: Annotated[
        Path | None, typer.Option("--heldout", help="Data that none of the models was trained on, to find the rule.")
    ] = None,
    like: Annotated[
        Path | None,
        typer.Option("--like", metavar="DIR", help="Use the rule of this blend of the same methods instead."),
    ] = None,
    n_candidates: Annotated[
        int, typer.Option("--n-candidates", help="Labels that each model proposes per row.", min=1)
    ] = default_of("umpteen.methods.blend:Blend", "n_candidates"),
    threads: ThreadsOption = None,
    labels: LabelsOption = None,
    format: FormatOption = FORMAT,
    one_based: OneBasedOption = None,
    text_field: TextFieldOption = None,
    label_field: LabelFieldOption = None,
    label_delimiter: LabelDelimiterOption = None,
    encoding: EncodingOption = None,
    csv_delimiter: CsvDelimiterOption = None,
    csv_quote: CsvQuoteOption = None,
) -> None:
    """Combine several models into one that ranks better than each of them.

    The models must have the same features and labels. Their scores become probabilities, and the rule that combines
    these is found on held-out rows: on training rows the model that overfits most would win. The influence of each
    model on the scores is printed before its name. The blend is a model like any other: it is calibrated, and holds
    copies of its members.

    For the best accuracy, train on four fifths, blend on the last fifth, train again on all rows, and blend those
    models with the rule found.

    umpteen blend dismec.part rxml.part --heldout last.txt.xz --model part.blend

    umpteen blend dismec.all rxml.all --like part.blend --model all.blend
    """
    from umpteen.errors import ParamError
    from umpteen.memory import format_bytes
    from umpteen.methods.blend import Blend
    from umpteen.storage.store import ModelReader
    from umpteen.tagger import Tagger, load
    from umpteen.trained.loading import load_model

    if (heldout is None) == (like is None):
        raise ParamError("give either --heldout, data to find the rule on, or --like, a blend that has one")
    refuse_missing(heldout, like)
    tables = TableOptions(format, text_field, label_field, label_delimiter, None, encoding, csv_delimiter, csv_quote)
    tables.fields()  # checks them
    with replacing(target, overwrite) as place:
        loaded = [load(path) for path in models]
        if like is not None:
            blend = Blend.from_model(load_model(like)).over(loaded)
            blend.save(place)
        else:
            assert heldout is not None
            blend = Blend(loaded, n_candidates, threads)
            first = loaded[0]
            if isinstance(first, Tagger):
                corpus = read_texts(heldout, tables, first.fields_)
                X, Y = first.encode(corpus.texts, corpus.labels)
            else:
                tables.refuse_for_numbers()
                data = read_for_model(
                    first, heldout, format=format, labels=labels, one_based=one_based, threads=threads
                )
                X, Y = data.X, data.Y
            blend.fit(X, Y, place)
            print_text(f"heldout    {heldout} ({X.shape[0]:,} rows)")
    for path, member, weight in zip(models, blend.members_, blend.weights_, strict=True):
        print_text(f"{weight:<10.3f} {path} ({member.method})")
    print_text(f"model      {target} ({format_bytes(ModelReader(target).n_bytes())})")
