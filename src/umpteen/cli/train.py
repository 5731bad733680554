"""umpteen train"""

from __future__ import annotations

import time
import warnings
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from umpteen.cli.completion import complete_method
from umpteen.cli.corpora import (
    CsvDelimiterOption,
    CsvQuoteOption,
    EncodingOption,
    IdFieldOption,
    LabelDelimiterOption,
    LabelFieldOption,
    TableOptions,
    TextFieldOption,
    describe_corpus,
    is_corpus,
    read_judged,
    read_texts,
    refuse_for_texts,
)
from umpteen.cli.defaults import default_of
from umpteen.cli.options import (
    ENGINE,
    FEATURES,
    FORMAT,
    METHOD,
    AddressOption,
    CpusOption,
    EngineOption,
    FormatOption,
    KeepGoingOption,
    LabelNamesOption,
    LabelsOption,
    ModelOption,
    OneBasedOption,
    OverwriteOption,
    ResumeOption,
    ThreadsOption,
    WriteOption,
    choose_engine,
    make_text_features,
    parse_number,
    parse_settings,
    print_text,
    read_alike,
    read_data,
    refuse_missing,
)
from umpteen.cli.training import describe_data_read, describe_next, describe_time, describe_work, replacing, writing
from umpteen.errors import ParamError
from umpteen.params import check_choice

if TYPE_CHECKING:
    from umpteen.evaluation.metrics import Metrics


def command(
    train: Annotated[Path, typer.Argument(metavar="TRAIN", help="Training data.")],
    method: Annotated[
        str, typer.Option("--method", help="Which method to train; auto chooses one.", autocompletion=complete_method)
    ] = METHOD,
    model: ModelOption = Path("umpteen.model"),
    preset: Annotated[
        str,
        typer.Option(
            "--preset", help="The settings that --set changes: default, or paper for those of the method's paper."
        ),
    ] = default_of("umpteen.methods.base:Method.make", "preset"),
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="A parameter of the method; repeatable."),
    ] = None,
    valid: Annotated[
        Path | None, typer.Option("--valid", metavar="FILE", help="Data to evaluate the finished model on.")
    ] = None,
    valid_labels: Annotated[
        Path | None, typer.Option("--valid-labels", metavar="FILE", help="Its labels, if separate.")
    ] = None,
    threads: ThreadsOption = None,
    budget: Annotated[
        str | None,
        typer.Option("--budget", help="For auto: how long choosing and training may take, such as 90s, 10m or 1h."),
    ] = None,
    tune: Annotated[
        bool, typer.Option("--tune", help="For auto: compare more methods, settings and features; blend if better.")
    ] = False,
    seed: Annotated[int | None, typer.Option("--seed", help="Seed of the method's random numbers.", min=0)] = None,
    engine: EngineOption = ENGINE,
    address: AddressOption = None,
    cpus_per_worker: CpusOption = None,
    write: WriteOption = None,
    keep_going: KeepGoingOption = False,
    resume: ResumeOption = False,
    overwrite: OverwriteOption = False,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run",
            help="Show data, method, memory and time needed, and train nothing; auto still chooses.",
        ),
    ] = False,
    keep_rows: Annotated[
        int,
        typer.Option(
            "--keep-rows",
            metavar="N",
            help="Keep at most N training rows in the model, to add labels against; who has it can read them.",
            min=0,
        ),
    ] = default_of("umpteen.tagger:Tagger", "keep_rows"),
    label_names: LabelNamesOption = None,
    labels: LabelsOption = None,
    format: FormatOption = FORMAT,
    one_based: OneBasedOption = None,
    text_field: TextFieldOption = None,
    label_field: LabelFieldOption = None,
    label_delimiter: LabelDelimiterOption = None,
    id_field: IdFieldOption = None,
    encoding: EncodingOption = None,
    csv_delimiter: CsvDelimiterOption = None,
    csv_quote: CsvQuoteOption = None,
    features: Annotated[
        list[str] | None,
        typer.Option(
            "--features",
            metavar="KIND|NAME=VALUE",
            help="A kind of terms (word, pairs, char, char_wb), an encoder of dense vectors (svd:256, static:PATH), "
            "or a setting such as min_df=2 or char_wb.ngram_range=[3,5]; repeatable.",
            rich_help_panel="Corpus of texts",
        ),
    ] = FEATURES,
    separate_fields: Annotated[
        bool,
        typer.Option(
            "--separate-fields",
            help="Each --text-field has words of its own, and title^3 counts three times as much as the others.",
            rich_help_panel="Corpus of texts",
        ),
    ] = False,
    vocabulary: Annotated[
        Path | None,
        typer.Option(
            "--vocabulary",
            metavar="FILE",
            help="The vocabulary that labels are concepts of: SKOS (.ttl, .rdf, .jsonld, .nt), Annif's .tsv or .csv, "
            "or a list of names (.txt). Labels may then be URIs, notations or names.",
            rich_help_panel="Corpus of texts",
        ),
    ] = None,
    language: Annotated[
        str | None,
        typer.Option(
            "--language",
            metavar="CODE",
            help="The vocabulary's language that the model names labels in, such as en.",
            rich_help_panel="Corpus of texts",
        ),
    ] = None,
    channels: Annotated[
        str | None,
        typer.Option(
            "--channels",
            metavar="NAMES",
            help="With --vocabulary: what labels are ranked by, of rows (the method), terms (terms that stand in the "
            "text) and label-text (the words of labels), with commas between. By default all three if the method is "
            "auto, else the method alone.",
            rich_help_panel="Corpus of texts",
        ),
    ] = None,
    calibration: Annotated[
        str | None,
        typer.Option(
            "--calibration",
            help="How to learn probabilities: from a share of the rows held out, such as 0.1; by so many folds, such "
            "as 5; auto; or 0 for none. By default auto for texts and 0 for numbers.",
        ),
    ] = None,
) -> None:
    """Train a model and write it to a directory.

    Shards of the model appear there as they finish; after an interruption --resume continues with the rest. A model
    trained on texts (.jsonl, .csv, .tsv, .parquet) takes texts and gives label names. Without --method one is chosen:
    what, why, and what else was possible is printed, and kept in the model.

    umpteen train corpus.jsonl --model tags.model --budget 5m

    umpteen train train.txt.xz --method dismec --model eurlex.model --valid test.txt.xz
    """
    from umpteen.choosing.budget import parse_budget
    from umpteen.choosing.choice import AUTO
    from umpteen.methods.held_out import check_calibration
    from umpteen.methods.training import check_keep_rows
    from umpteen.tagging.channels import LEXICAL

    where = choose_engine(
        engine, threads, keep_going=keep_going, address=address, cpus_per_worker=cpus_per_worker, write=write
    )
    parse_budget(budget)
    estimator = None
    if method == LEXICAL:
        _check_lexical(settings, preset, budget, tune)
    elif method != AUTO:
        estimator = _make_method(method, preset, settings or [], seed).set_params(threads=threads, engine=where)
        estimator.validate()
        if budget is not None or tune:
            raise ParamError(f"--budget and --tune go with --method {AUTO}, but the method is {method}")
    elif preset != "default":
        raise ParamError(f"--preset {preset} goes with a method that --method names, but the method is {AUTO}")
    elif settings:
        raise ParamError(f"--set {settings[0]} goes with a method that --method names, but the method is {AUTO}")
    texts = is_corpus(train, format)
    if not texts and method == LEXICAL:
        raise ParamError(f"--method {LEXICAL} is for texts, not for files of numbers")
    if channels is not None and vocabulary is None:
        raise ParamError(f"--channels {channels} goes with --vocabulary, but there is none")
    how = ("auto" if texts else 0) if calibration is None else parse_number(calibration)
    check_calibration(how)
    tables = TableOptions(
        format, text_field, label_field, label_delimiter, id_field, encoding, csv_delimiter, csv_quote
    )
    if texts:
        refuse_for_texts(label_names=label_names, labels=labels, one_based=one_based, valid_labels=valid_labels)
        tables.fields()  # checks them
    else:
        tables.refuse_for_numbers()
    refuse_missing(train, labels, label_names, valid, valid_labels, vocabulary)
    if language is not None and vocabulary is None:
        raise ParamError(f"--language {language} goes with --vocabulary, but there is none")
    with nullcontext(model) if dry_run else replacing(model, overwrite) as place:
        if texts:
            tagger = _make_tagger(estimator, threads, features or [], how, seed, budget, tune)
            if method == LEXICAL:
                tagger.set_params(method=LEXICAL)
            names = None if channels is None else [name.strip() for name in channels.split(",")]
            tagger.set_params(keep_rows=keep_rows, channels=names, vocabulary=vocabulary).check()
            tagger.set_params(vocabulary=_read_vocabulary(vocabulary, language))
            if separate_fields:
                tagger.features = _separate(tagger.features, tables, threads)
            metrics = _train_on_texts(train, tagger, place, valid, tables, resume, threads, where, dry_run)
        else:
            if vocabulary is not None:
                raise ParamError("--vocabulary is for texts, not for files of numbers")
            if estimator is not None:
                check_keep_rows(estimator, keep_rows)
            options: dict[str, Any] = {"format": format, "one_based": one_based, "threads": threads}
            files = _Files(train, labels, label_names, valid, valid_labels, options)
            settings_of_auto = {"budget": budget, "seed": seed or 0, "tune": tune}
            training = {"resume": resume, "keep_rows": keep_rows, "calibration": how, "progress": True}
            metrics = _train_on_numbers(files, estimator, place, settings_of_auto, training, where, dry_run)
    if dry_run:
        print_text("dry run    nothing was trained")
        return
    if metrics is not None:
        _report_metrics(valid, metrics, model)
    describe_next(model, train, valid, texts=texts)


_CHANNELS_COST = (
    "each is trained twice, first without texts that show when to trust which; --method NAME trains that one alone"
)


class _Files(NamedTuple):
    """Files of numbers, and how they are read."""

    train: Path
    labels: Path | None
    label_names: Path | None
    valid: Path | None
    valid_labels: Path | None
    options: dict[str, Any]


def _train_on_numbers(
    files: _Files,
    estimator: Any,
    model: Path,
    auto: dict[str, Any],
    training: dict[str, Any],
    where: Any,
    dry_run: bool,
) -> Metrics | None:
    """Trains a model, and judges it if there are data for that."""
    from umpteen.cli.evaluate import evaluate_model
    from umpteen.data.files import read_names
    from umpteen.methods.held_out import draw_held_out, first_fold

    threads, calibration = files.options["threads"], training["calibration"]
    started = time.perf_counter()
    data = read_data(files.train, labels=files.labels, **files.options)
    names = read_names(files.label_names) if files.label_names is not None else data.label_names
    if estimator is not None:
        describe_work(files.train, data, time.perf_counter() - started, estimator)
    held_out = None
    if files.valid is not None:  # before the long work, not after it
        held_out = read_alike(files.valid, data.n_features, data.n_labels, labels=files.valid_labels, **files.options)
    if estimator is not None:
        if dry_run:
            describe_time(estimator, data, 1 + len(draw_held_out(data.Y, calibration, 0)))
            return None
        with writing(model):
            estimator.fit(data.X, data.Y, model, label_names=names, **training)
            trained = estimator.fitted()
    else:
        from umpteen.choosing.auto import choose_method
        from umpteen.choosing.choice import read_choice
        from umpteen.choosing.training import train_choice

        describe_data_read(files.train, data, time.perf_counter() - started)
        choice = read_choice(model, first_fold(model))
        if choice is None:
            trainings = 1 + len(draw_held_out(data.Y, calibration, 0))
            choice = choose_method(data.X, data.Y, threads=threads, trainings=trainings, **auto)
        choice = choice.computing(threads=threads, engine=where)
        print_text(str(choice))
        if dry_run:
            return None
        with writing(model):
            trained = train_choice(choice, data.X, data.Y, model, label_names=names, **training)
    return None if held_out is None else evaluate_model(trained, held_out, threads=threads)


def _check_lexical(settings: list[str] | None, preset: str, budget: str | None, tune: bool) -> None:
    """Refuses options of methods that learn from rows."""
    given = {"--set": settings, "--preset": preset != "default", "--budget": budget, "--tune": tune}
    for option, value in given.items():
        if value:
            raise ParamError(f"{option} goes with methods that learn from rows, but the method is lexical")


def _make_method(name: str, preset: str, settings: list[str], seed: int | None) -> Any:
    from umpteen.methods import method_class
    from umpteen.methods.base import PRESETS

    cls = method_class(name)
    params = parse_settings(settings)
    if seed is not None:
        params["seed"] = seed
    check_choice("--preset", preset, PRESETS)
    cls.check_param_names(params)
    for compute in ("threads", "engine"):
        if compute in params:
            raise ParamError(f"--set {compute}=… is not possible; use --{compute}")
    return cls.make(preset, **params)


def _make_tagger(
    estimator: Any,
    threads: int | None,
    features: list[str],
    calibration: float | str,
    seed: int | None,
    budget: str | None,
    tune: bool,
) -> Any:
    from umpteen.choosing.choice import AUTO
    from umpteen.tagger import Tagger

    settings = make_text_features(features, threads)
    if estimator is not None:
        return Tagger(estimator, settings, calibration)
    free = tune and not features  # then they are tuned too
    return Tagger(AUTO, None if free else settings, calibration, seed or 0, budget, tune)


def _separate(features: Any, tables: TableOptions, threads: int | None) -> Any:
    """The same features for each column with text."""
    from umpteen.text.features import make_features
    from umpteen.text.union import TfidfUnion

    columns = tables.fields().text_names()
    if len(columns) < 2:
        raise ParamError("--separate-fields needs several --text-field, but there is one")
    if features is None:
        raise ParamError("--separate-fields goes with --features if features are tuned")
    parts = features.parts if isinstance(features, TfidfUnion) else [features]
    return make_features({column: list(parts) for column in columns}, threads)


def _read_vocabulary(path: Path | None, language: str | None) -> Any:
    from umpteen.vocabulary.reading import read_vocabulary

    if path is None:
        return None
    vocabulary = read_vocabulary(path, language)
    languages = ", ".join(name for name in vocabulary.languages if name) or "no language"
    print_text(f"vocabulary {path}: {len(vocabulary):,} concepts, {vocabulary.n_terms:,} terms, {languages}")
    if cycles := vocabulary.cycles():
        shown = vocabulary.name(cycles[0])
        print_text(f"note       {len(cycles):,} concepts stand above themselves, such as {shown!r}")
    return vocabulary


def _train_on_texts(
    train: Path,
    tagger: Any,
    model: Path,
    valid: Path | None,
    tables: TableOptions,
    resume: bool,
    threads: int | None,
    where: Any,
    dry_run: bool,
) -> Metrics | None:
    """Trains a model of texts, and judges it if there are texts for that."""
    from umpteen.choosing.choice import AUTO
    from umpteen.methods.held_out import draw_held_out
    from umpteen.tagging.channels import LEXICAL, describe_channels

    started = time.perf_counter()
    corpus = read_texts(train, tables)
    describe_corpus(train, corpus, time.perf_counter() - started)
    held_out = read_judged(valid, tables) if valid is not None else None
    started = time.perf_counter()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        vectorizer, data = tagger.prepare(corpus.texts, corpus.labels, model)
    for warning in caught:
        print_text(f"note       {warning.message}")
    seconds = time.perf_counter() - started
    choice = None
    if by_channels := tagger.find_channels():
        print_text(f"channels   {', '.join(by_channels)}: {_CHANNELS_COST if len(by_channels) > 1 else 'alone'}")
    if tagger.method == LEXICAL or (by_channels and "rows" not in by_channels):
        describe_data_read(Path("rows of words and terms"), data, seconds)
    elif tagger.method == AUTO:
        describe_data_read(Path("tf-idf rows"), data, seconds)
        choice = tagger.choose(data, model, threads=threads, features=vectorizer).computing(
            threads=threads, engine=where
        )
        print_text(str(choice))
    else:
        estimator = tagger.equipped(vectorizer, data)
        describe_work(Path("tf-idf rows"), data, seconds, estimator)
        if dry_run:
            describe_time(estimator, data, 1 + len(draw_held_out(data.Y, tagger.calibration, tagger.seed)))
    if dry_run:
        return None
    with writing(model):
        tagger.train(vectorizer, data, model, resume=resume, progress=True, choice=choice, fields=corpus.fields)
    if len(tagger.channels_) > 1:
        print_text(describe_channels(tagger.channels_))
    if tagger.calibration != 0 and tagger.fitted().calibration is None:
        print_text("note       too few texts with labels to learn probabilities: labels get scores between 0 and 1")
    return None if held_out is None else tagger.evaluate(held_out.texts, held_out.labels)


def _report_metrics(valid: Path | None, metrics: Metrics, model: Path) -> None:
    """Prints how good a model is, and keeps it with the model."""
    from umpteen.storage.store import keep_metrics

    print_text(f"valid      {valid}")
    print_text(str(metrics))
    keep_metrics(model, metrics.as_dict())
