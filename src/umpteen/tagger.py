"""Text in, label names out: features, a method and label names as one estimator and one model directory."""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Self, overload

import numpy as np
from numpy.typing import NDArray

from umpteen.choosing.choice import AUTO, Choice
from umpteen.data.corrections import Correction
from umpteen.data.dataset import Dataset
from umpteen.data.files import PathLike
from umpteen.data.matrix import Csr, as_csr
from umpteen.data.tables.fields import Fields
from umpteen.engines.base import Engine
from umpteen.errors import DataError, ModelCorruptError, ParamError, not_fitted
from umpteen.evaluation.calibration import Reliability
from umpteen.evaluation.metrics import Metrics
from umpteen.evaluation.report import paragraph, table
from umpteen.methods.base import Method
from umpteen.models.scorer import Ranking
from umpteen.params import check_count, check_share
from umpteen.progress import Listener, showing
from umpteen.storage.store import ModelReader
from umpteen.tagging import growing, judging, training
from umpteen.tagging.classifying import Classifying
from umpteen.tagging.concepts import LabelConcepts, check_concepts, open_vocabulary
from umpteen.tagging.explaining import TextExplanation, explain_in_words
from umpteen.tagging.label_terms import with_label_terms
from umpteen.tagging.records import FieldNames, find_fields, read_records
from umpteen.tagging.rows import TextRows, rank_rows
from umpteen.tagging.storage import (
    PRECOMPUTED,
    Untrainable,
    check_stored,
    features_of,
    open_features,
    open_fields,
    recipe_of,
)
from umpteen.tagging.streaming import stream_suggestions
from umpteen.tagging.targets import check_rows, read_labels
from umpteen.tagging.updating import VocabularyUpdate, update_model
from umpteen.tagging.weights import weigh_texts
from umpteen.text.features import TextFeatures, unfitted
from umpteen.trained.loading import load_model
from umpteen.trained.model import TrainedModel
from umpteen.vocabulary.concepts import Vocabulary
from umpteen.vocabulary.reading import read_vocabulary


class Suggestions(list[tuple[str, float]]):
    """Labels and their probabilities, best first; a table in a notebook.

    Attributes
    ----------
    uris, notations : list of str
        Those of the labels, if the model has a vocabulary; empty where a label has none.
    support : list of int
        On how many held-out predictions each probability rests: those with about the same score. Empty if the model
        is not calibrated, and for concepts above labels.
    """

    def __init__(
        self,
        found: Iterable[tuple[str, float]] = (),
        uris: Sequence[str] = (),
        notations: Sequence[str] = (),
        support: Sequence[int] = (),
    ) -> None:
        super().__init__(found)
        self.uris, self.notations, self.support = list(uris), list(notations), list(support)

    def _repr_html_(self) -> str:
        if not self.uris:
            return table(["label", "probability"], [[name, f"{value:.2f}"] for name, value in self])
        rows = [[name, f"{value:.2f}", uri] for (name, value), uri in zip(self, self.uris, strict=True)]
        return table(["label", "probability", "URI"], rows)


class Tagger(Classifying):
    """Learns which label names go with which texts.

    Parameters
    ----------
    method
        Any method of this package, or its name; or, to compare with, a classifier of scikit-learn, which takes up to
        2,000 labels and cannot be saved. "auto", the default, chooses one from the texts, the memory and the
        budget, most often by comparing methods on held-out texts; `choice_` says which, and why.
    features
        How texts become features: a `Tfidf`; a name, "word" (the default), "pairs", "char" or "char_wb"; an encoder
        that makes dense vectors, such as "svd:256"; several of these in a list, or a `TfidfUnion`; a dictionary of
        these by field, ``{"title^3": "word", "abstract": "word"}``, if texts are records; a transformer by
        scikit-learn's rules, such as a `TfidfVectorizer` or a `ColumnTransformer`; or "precomputed", to pass rows of
        numbers (sparse, dense, embeddings) instead of texts.
    calibration : float, int or "auto"
        How to learn which scores mean which probabilities: from rows the model has not seen. A share below 1 holds
        these out of a first model, which is then thrown away; a number of folds from 2 on trains so many models, each
        without its part of the rows. The model that is kept is trained on all rows. "auto" takes five folds of fewer
        than 5,000 texts, else a share of 0.1. 0 skips this: training takes half the time or less, but values in
        [0, 1] are not probabilities, and labels are given from 0.5 on.
    seed
        Seeds the choice of the rows held out.
    budget
        For "auto": how long choosing and training may take, in seconds or as text such as "90s", "10m" or "1h"; by
        default ten minutes. See `choose_method`.
    tune
        For "auto": compare more methods, settings and, if none are given, features, and blend the best if that is
        better.
    keep_rows
        Keep at most so many texts, as rows of features, in the model, for `add_labels` and `learn` to train against.
        Whoever has the model has the words of these texts.
    vocabulary
        A `Vocabulary`, or the file of one, whose concepts the labels are. Labels may then be given as URIs, notations
        or names; `classes_` are names in the vocabulary's language, `suggest(…, language=…)` gives them in others,
        and the model keeps the vocabulary. Labels that are not in it are left out, with a warning.
    threads
        How many threads to use, where the method and the features do not say; by default all cores. The model does
        not depend on it.
    channels
        With a vocabulary: what labels are ranked by, of "rows", the method; "terms", terms of the vocabulary that
        stand in the text; and "label-text", the words of labels. Several are blended, and all concepts in use are
        labels, with texts or without. By default all three if the method is "auto", and the method alone if one is
        named, or with `tune`, `keep_rows` or calibration=0. Channels are trained twice, first without a tenth of the
        texts (a fifth of fewer than 5,000; or what `calibration` says) that show when to trust which; one that does
        not help is left out. The method "lexical" is the terms alone.

    Attributes
    ----------
    model_ : TrainedModel
        Ranks labels for the rows made from texts.
    features_ : Tfidf, TfidfUnion or None
        Makes those rows; None with features="precomputed".
    classes_ : sequence of str
        Label names by id; an array of the classes, if each text has one.
    choice_ : Choice
        With "auto": the method chosen, why, and what else was possible.
    channels_ : list of Channel
        With several channels: the weight of each, its processor time and its bytes.

    Examples
    --------
    >>> import umpteen
    >>> texts = ["herring quotas", "cod quotas in the sea", "a tax on wine", "wine and beer tax"] * 10
    >>> labels = [["fish"], ["fish", "sea"], ["tax", "wine"], ["tax", "wine"]] * 10
    >>> tagger = umpteen.Tagger(umpteen.DiSMEC()).fit(texts, labels)
    >>> [name for name, _ in tagger.suggest("the herring in the sea", top_k=2)]
    ['fish', 'sea']
    """

    def __init__(
        self,
        method: Method | str | Untrainable | None = AUTO,
        features: Any = None,
        calibration: float | str = "auto",
        seed: int = 0,
        budget: float | str | None = None,
        tune: bool = False,
        keep_rows: int = 0,
        vocabulary: Vocabulary | PathLike | None = None,
        threads: int | None = None,
        channels: Sequence[str] | str | None = None,
    ) -> None:
        self.method = method
        self.features = features
        self.calibration = calibration
        self.seed = seed
        self.budget = budget
        self.tune = tune
        self.keep_rows = keep_rows
        self.vocabulary = vocabulary
        self.threads = threads
        self.channels = channels

    #: A model and what it says of its vocabulary.
    _concepts: tuple[TrainedModel, LabelConcepts | None] | None = None

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "model_")

    # --- fit -----------------------------------------------------------------------------------------------------

    def fit(
        self,
        texts: Any,
        labels: Any,
        model_dir: PathLike | None = None,
        *,
        resume: bool = True,
        progress: bool | Listener = False,
        fields: Fields | FieldNames | None = None,
        sample_weight: Any = None,
    ) -> Self:
        """Learns from texts and the names of their labels.

        Parameters
        ----------
        texts : iterable of str, or of dictionaries with `fields`, or a table; or rows of numbers, with
            features="precomputed"
        labels : iterable of iterables of str
            The label names of each text; a text may have none. Or a matrix, sparse or dense, or a table with a column
            for each label; or a list, array or series with one class for each text. `predict` gives the same form.
        model_dir, resume, progress
            As for the method's own `fit`: each shard is written as it finishes, and after an interruption the same
            call continues.
        fields
            Which columns of a table, or entries of dictionaries, are the texts, such as ``["title^3", "abstract"]``,
            which are joined, and the words of the title count three times; or `Corpus.fields`. By default those of
            `features`. The model keeps this: it then takes such dictionaries for texts, and commands that read tables
            for it take these columns.
        sample_weight : array, n_texts
            How many times each text counts in the sum that training minimises; see `Method.fit`. "auto" then chooses
            among the methods that take it, by texts that count once each.
        """
        form, labels = read_labels(labels)
        recipe = self.make_features()
        fields = find_fields(fields, recipe)
        if sample_weight is not None and (method := self.check()) is not None:
            method.check_weighs_rows()
        texts, labels, row_costs = weigh_texts(read_records(texts, lambda: fields, recipe), labels, sample_weight)
        with showing(progress):
            features, data = self.prepare(texts, labels, model_dir)
        self.train(features, data, model_dir, resume=resume, progress=progress, fields=fields, row_costs=row_costs)
        self._form = form
        return self

    def prepare(
        self, texts: Any, labels: Iterable[Iterable[str]], model_dir: PathLike | None = None
    ) -> tuple[TextFeatures | None, Dataset]:
        """The first half of `fit`: learns the vocabulary and turns texts and labels into a data set. An interrupted
        run in `model_dir` is continued with its features."""
        return training.prepare(self, texts, labels, model_dir)

    def choose(
        self,
        data: Dataset,
        model_dir: PathLike | None = None,
        *,
        threads: int | None = None,
        features: TextFeatures | None = None,
    ) -> Choice:
        """What method="auto" trains on what `prepare` returned, `features` too if there are channels; what an
        interrupted run in `model_dir` chose."""
        return training.choose(self, data, model_dir, threads, features=features)

    def equipped(self, features: TextFeatures | None, data: Dataset) -> Method | None:
        """The method that `train` trains: with the words of labels, if it knows labels by these."""
        method = self.check()
        names = data.label_names or ()
        return None if method is None else with_label_terms(method, open_vocabulary(self.vocabulary), features, names)

    def train(
        self,
        features: TextFeatures | None,
        data: Dataset,
        model_dir: PathLike | None = None,
        *,
        resume: bool = True,
        progress: bool | Listener = False,
        choice: Choice | None = None,
        fields: Fields | None = None,
        row_costs: NDArray[np.float32] | None = None,
    ) -> Self:
        """The second half of `fit`: trains a model from what `prepare` returned; with method="auto" that of `choice`,
        by default what `choose` returns."""
        self.model_, chosen, self.channels_ = training.train(
            self, features, data, model_dir, choice,
            fields=fields, resume=resume, progress=progress, row_costs=row_costs,
        )  # fmt: skip
        if chosen is not None:
            self.choice_ = chosen
        self.features_ = features_of(self.model_, features)
        return self

    # --- grow ----------------------------------------------------------------------------------------------------

    def add_labels(
        self,
        texts: Any,
        labels: Iterable[Iterable[str]],
        model_dir: PathLike | None = None,
        *,
        negatives: str = "auto",
        resume: bool = True,
        progress: bool | Listener = False,
    ) -> Self:
        """Learns labels the model does not have; those it has keep their ids and weights. One-vs-rest methods only.

        Texts are examples of the new labels they have and counter-examples of the others; labels the model already
        has are not trained again. Words that are new to the model get columns after the old ones.

        Parameters
        ----------
        texts, labels, model_dir, resume, progress
            As for `fit`. Each new label needs a text.
        negatives
            What else to train the new labels against, so that they are not suggested for everything: "kept", the
            texts that the model keeps (`keep_rows`); "weights", rows made from what it knows of its words and labels;
            "rows", nothing but the texts given; "auto", the first two, until there are as many as it was trained on.
        """
        model, method = self.fitted(), self._method_of_model()
        if not hasattr(method, "add_labels"):
            raise ParamError(
                f"only one-vs-rest methods can learn new labels alone, but this model's method is {model.method}"
            )
        if self.concepts_ is not None:
            labels = self.concepts_.translate(model, labels)
        names, Y = growing.encode_new_labels(model, labels)
        options: dict[str, Any] = {"negatives": negatives, "resume": resume, "progress": progress}
        if self.features_ is None:
            method.add_labels(self.vectorize(texts).X, Y, names, model_dir, **options)
        else:
            self.features_ = growing.add_new_labels(
                method, self.features_, list(self._read(texts)), Y, names, model_dir, **options
            )
        self.model_ = method.fitted()
        return self

    def learn(
        self,
        texts: Any,
        labels: Any = None,
        *,
        accepted: Any = None,
        rejected: Any = None,
        added: Any = None,
    ) -> Self:
        """Learns from corrections: improves the labels concerned, without training the rest.

        Of many at a time each takes some milliseconds; a call alone takes longer, as changed blocks of labels are
        packed again.

        The model keeps the latest 5,000 corrections, as rows of features, so that later ones do not undo them; a
        later one of the same text replaces the earlier. Words and labels that are new join the model. One-vs-rest
        methods with a margin only: DiSMEC and PPDSparse.

        Parameters
        ----------
        texts : str or dictionary, or iterable of these; or rows of numbers, with features="precomputed"
        labels : iterable of str; for several texts one for each
            All labels that are right: every other one is wrong.
        accepted, rejected, added : the same
            Instead of `labels`: those that were suggested and are right, those that are wrong, those that were
            missing. Nothing is learnt about others.

        Examples
        --------
        >>> import umpteen
        >>> texts = ["herring quotas", "cod quotas in the sea", "a tax on wine", "wine and beer tax"] * 10
        >>> labels = [["fish"], ["fish", "sea"], ["tax", "wine"], ["tax", "wine"]] * 10
        >>> tagger = umpteen.Tagger(umpteen.DiSMEC()).fit(texts, labels)
        >>> tagger = tagger.learn("a tax on bread", labels=["tax", "bread"])
        >>> [name for name, _ in tagger.suggest("bread tax", top_k=2)]
        ['tax', 'bread']
        """
        n_features = self.fitted().n_features
        X = as_csr(texts, "texts", n_features) if self.features_ is None else None
        rows: Any = self._read_one(texts) if X is None else range(X.shape[0])
        return self.learn_from(growing.make_corrections(rows, labels, accepted, rejected, added), X)

    def learn_from(self, corrections: Sequence[Correction], X: Csr | None = None) -> Self:
        """`learn` from corrections as `umpteen.data.corrections.read_corrections` reads them."""
        if not corrections:
            raise DataError("there must be at least one correction, but there are none")
        if (concepts := self.concepts_) is not None:
            corrections = [concepts.correct(self.fitted(), said) for said in corrections]
        self.model_, self.features_ = growing.learn_texts(
            self.fitted(), self._method_of_model(), self.features_, corrections, X
        )
        return self

    def update_vocabulary(self, vocabulary: Vocabulary | PathLike) -> VocabularyUpdate:
        """Takes a new edition of the vocabulary: labels keep their ids and follow their concepts to new names.

        Labels whose concept is deprecated without another in its place, is gone, or has been merged into that of
        another label are suggested no more; what the answer says. Nothing is trained.

        Examples
        --------
        >>> import umpteen
        >>> from umpteen.vocabulary.concepts import Concept, Term
        >>> def edition(*names):
        ...     terms = (Concept(f"u:{i}", [Term(name, "en", "preferred")]) for i, name in enumerate(names))
        ...     return umpteen.Vocabulary.build(terms, language="en")
        >>> texts = ["herring quotas", "cod quotas", "a tax on wine", "wine and beer tax"] * 10
        >>> labels = [["fish"], ["fish"], ["tax"], ["tax"]] * 10
        >>> tagger = umpteen.Tagger("dismec", vocabulary=edition("fish", "tax")).fit(texts, labels)
        >>> tagger.update_vocabulary(edition("fishes", "tax")).renamed
        [('fish', 'fishes')]
        >>> [name for name, _ in tagger.suggest("herring", top_k=1)]
        ['fishes']
        """
        concepts = self.concepts_
        if concepts is None:
            raise ParamError("the model must have been trained with a vocabulary to update it, but was not")
        if not isinstance(vocabulary, Vocabulary):
            vocabulary = read_vocabulary(vocabulary, concepts.vocabulary.language or None)
        self.model_, change = update_model(self.fitted(), concepts, vocabulary)
        found = self.concepts_
        self.vocabulary = None if found is None else found.vocabulary
        return change

    def _method_of_model(self) -> Any:
        return growing.method_with(self.fitted(), self.method)

    # --- suggest -------------------------------------------------------------------------------------------------

    @overload
    def suggest(
        self,
        texts: str | Mapping[str, Any],
        top_k: int | str | None = None,
        threshold: float | str | None = None,
        exclude: Any = None,
        include: Any = None,
        threads: int | None = None,
        min_known: float = 0.0,
        language: str | None = None,
    ) -> Suggestions: ...

    @overload
    def suggest(
        self,
        texts: Iterable[Any],
        top_k: int | str | None = None,
        threshold: float | str | None = None,
        exclude: Any = None,
        include: Any = None,
        threads: int | None = None,
        min_known: float = 0.0,
        language: str | None = None,
    ) -> list[Suggestions]: ...

    def suggest(
        self,
        texts: Any,
        top_k: int | str | None = None,
        threshold: float | str | None = None,
        exclude: Any = None,
        include: Any = None,
        threads: int | None = None,
        min_known: float = 0.0,
        language: str | None = None,
    ) -> Suggestions | list[Suggestions]:
        """The labels to give a text, best first, with their probabilities.

        Parameters
        ----------
        texts : str, a dictionary with the fields of a record, or an iterable of these
        top_k : int, "auto" or None
            By default the labels that are likely enough; a number gives so many, however unlikely, unless a threshold
            is given too; "auto" takes as many for each text as maximise the expected F1.
        threshold : float, "micro", "macro" or None
            Leave out labels below this probability, or below the thresholds learned for the best micro F1 (one for
            all labels; the default) or macro F1 (one for each label).
        exclude, include : label names, optional
            Labels never to suggest, or the only ones to suggest; applied before `top_k`.
        min_known
            Give no label to a text with a smaller share of words the model knows. A text without a known word never
            gets one.
        language
            The language of names, such as "fi", if the model has a vocabulary; by default that of training.

        Returns
        -------
        list of (name, probability); for several texts a list of such lists
        """
        one = isinstance(texts, (str, Mapping))
        rows = self.vectorize([texts] if one else texts, threads=threads)
        ranking = self.rank_rows(rows, top_k, threshold, exclude, include, threads, min_known=min_known)
        found = self.name_labels(*ranking, language)
        return found[0] if one else found

    def suggest_stream(self, source: Any, *, fields: Fields | FieldNames | None = None, **how: Any) -> Any:
        """The rows of a table or stream of Arrow with a column more, `suggestions`: for each text a list of labels
        and their probabilities. A batch is read, and labelled, when the next one is asked for.

        Parameters
        ----------
        source
            Whatever has Arrow's protocol: a table of pyarrow, pandas or polars, a relation of DuckDB, a reader.
        fields
            The columns with the texts, as for `fit`; by default those that the model was trained on, else "text".
        how
            As for `suggest`.

        Returns
        -------
        pyarrow.RecordBatchReader
        """
        known = find_fields(fields, self.features_) or self.fields_ or Fields.make("text", None)
        if self.features_ is None:
            raise ParamError("a tagger with precomputed features takes no texts; use suggest")
        return stream_suggestions(source, known.unlabelled(), lambda texts: self.suggest(texts, **how))

    @overload
    def suggest_broader(
        self, texts: str | Mapping[str, Any], steps: int = 1, language: str | None = None, **how: Any
    ) -> Suggestions: ...

    @overload
    def suggest_broader(
        self, texts: Iterable[Any], steps: int = 1, language: str | None = None, **how: Any
    ) -> list[Suggestions]: ...

    def suggest_broader(
        self, texts: Any, steps: int = 1, language: str | None = None, **how: Any
    ) -> Suggestions | list[Suggestions]:
        """`suggest`, with the concepts that stand some steps above the labels instead of them: each with the largest
        probability of the labels below it. Top concepts stay; labels that are no concepts are left out.

        Parameters
        ----------
        texts, language, how
            As for `suggest`.
        steps
            How far up.
        """
        if self.concepts_ is None:
            raise ParamError("the model must have a vocabulary with broader concepts, but has none")
        one = isinstance(texts, (str, Mapping))
        steps = check_count("steps", steps)
        labels, values = self.rank([texts] if one else texts, **how)
        rows = zip(labels.tolist(), values.tolist(), strict=True)
        found = [self._roll_up(ids, scores, steps, language) for ids, scores in rows]
        return found[0] if one else found

    def _roll_up(self, labels: list[int], values: list[float], steps: int, language: str | None) -> Suggestions:
        concepts = self.concepts_
        assert concepts is not None
        best: dict[int, float] = {}
        for label, value in zip(labels, values, strict=True):
            for concept in concepts.roll_up(label, steps) if label >= 0 else ():
                best[concept] = max(best.get(concept, 0.0), value)
        known = concepts.vocabulary if language is None else concepts.vocabulary.in_language(language)
        order = sorted(best, key=lambda i: (-best[i], i))
        return Suggestions(
            ((known.name(i), best[i]) for i in order),
            [known.uris[i] for i in order],
            [known.notations[i] for i in order],
        )

    def _repr_html_(self) -> str:
        """What it is and, once it is fitted, what it knows, for notebooks."""
        shown = f"<code>{html.escape(repr(self))}</code>"
        if not hasattr(self, "model_"):
            return f"{shown}{paragraph('not fitted')}"
        model = self.fitted()
        facts = [
            ["method", model.method],
            ["labels", f"{model.n_labels:,}"],
            ["features", f"{model.n_features:,}"],
            ["trained on", f"{model.train_counts.n_rows:,} rows"],
            ["calibrated", "yes" if model.calibration is not None else "no"],
            ["columns", "not known" if self.fields_ is None else str(self.fields_)],
        ]
        return shown + table(["", ""], facts)

    def rank(
        self,
        texts: Any,
        top_k: int | str | None = None,
        threshold: float | str | None = None,
        exclude: Any = None,
        include: Any = None,
        threads: int | None = None,
        engine: str | Engine = "local",
        min_known: float = 0.0,
    ) -> Ranking:
        """`suggest` for several texts, as arrays: label ids, padded with -1, and probabilities."""
        rows = self.vectorize(texts, threads=threads)
        return self.rank_rows(rows, top_k, threshold, exclude, include, threads, engine, min_known=min_known)

    def rank_rows(self, rows: TextRows, *how: Any, min_known: float = 0.0, **more: Any) -> Ranking:
        """`rank` for texts that are already rows; the rest as for `TrainedModel.rank`."""
        if self.concepts_ is not None:  # exclude and include are the third and the fourth argument
            how = tuple(self.resolve(value) if i in (2, 3) else value for i, value in enumerate(how))
            more |= {key: self.resolve(more[key]) for key in ("exclude", "include") if key in more}
        return rank_rows(self.fitted(), rows, *how, min_known=check_share("min_known", min_known), **more)

    def vectorize(self, texts: Any, *, threads: int | None = None) -> TextRows:
        """Turns texts into the rows that `model_` takes."""
        self.fitted()
        if self.features_ is None:
            return TextRows(texts, None)
        if isinstance(texts, str):
            raise ParamError("texts must be a list of texts, but is one text")
        threads = self.threads if threads is None else threads
        return TextRows(*self.features_.transform(self._read(texts), return_unknown=True, threads=threads))

    def _read(self, texts: Any) -> Any:
        """Texts, of which records have become texts."""
        return read_records(texts, lambda: self.fields_, self.features_)

    def _read_one(self, texts: Any) -> Any:
        """The same of one text or several."""
        return next(iter(self._read([texts]))) if isinstance(texts, Mapping) else self._read(texts)

    def name_labels(
        self, labels: NDArray[np.int32], values: NDArray[np.float32], language: str | None = None
    ) -> list[Suggestions]:
        """A ranking with names instead of ids: one list per row."""
        names, concepts = self.names_in(language), self.concepts_
        counts = self.fitted().count_support(values)
        found = []
        for i, (row, scores) in enumerate(zip(labels.tolist(), values.tolist(), strict=True)):
            ids = [label for label in row if label >= 0]  # -1 only stands after the labels of a row
            pairs = ((names[label], value) for label, value in zip(ids, scores[: len(ids)], strict=True))
            uris = [] if concepts is None else [concepts.uri(label) for label in ids]
            notations = [] if concepts is None else [concepts.notation(label) for label in ids]
            support = [] if counts is None else counts[i, : len(ids)].tolist()
            found.append(Suggestions(pairs, uris, notations, support))
        return found

    def names_in(self, language: str | None) -> Sequence[str]:
        """Label names by id in a language of the vocabulary; by default `classes_`."""
        if language is None:
            return self._names
        if self.concepts_ is None:
            raise ParamError(
                f"language must be left out, since the model has no vocabulary, but is {language!r:.100}"
            )
        return self.concepts_.names(language)

    def resolve(self, labels: Any) -> Any:
        """Labels as `model_` takes them, of which some may be URIs, notations or other names of concepts."""
        return labels if self.concepts_ is None else self.concepts_.resolve(self.fitted(), labels)

    @property
    def concepts_(self) -> LabelConcepts | None:
        """The concepts that the labels are, if the tagger was trained with a vocabulary."""
        model = self.fitted()
        if self._concepts is None or self._concepts[0] is not model:
            self._concepts = (model, LabelConcepts.open(model))
        return self._concepts[1]

    def count_unknown(self, texts: Any) -> list[tuple[int, int]]:
        """For each text, how many of its words the model does not know, and how many words it has."""
        words = self.vectorize(texts).words
        if words is None:
            raise ParamError("a tagger with precomputed features has no words")
        return list(zip(words.unknown.tolist(), words.total.tolist(), strict=True))

    # --- explain -------------------------------------------------------------------------------------------------

    def explain(self, text: str | Mapping[str, Any], label: str | None = None) -> TextExplanation:
        """The words of a text, or of a record's fields, that count for and against a label; by default the label
        ranked first."""
        model = self.fitted()
        if self.features_ is None:
            raise ParamError("a tagger with precomputed features has no words; use model_.explain")
        text = self._read_one(text)
        if not isinstance(text, str):
            raise ParamError(f"text must be one string, but is a {type(text).__name__}")
        X = self.vectorize([text]).X
        if label is None:
            best = int(model.predict_topk(X, 1)[0][0, 0])
            if best < 0:
                raise DataError("the model ranks no label for this text")
            label = self._names[best]
        return self.explain_row(text, X, label)

    def explain_row(self, text: str, X: Csr, label: str | int) -> TextExplanation:
        """`explain` for a text that is already a row; the label by name or id."""
        model, features = self.fitted(), self.features_
        assert features is not None
        found = model.explain(X, label)
        calibrated = model.calibration is not None
        probability = float(model.to_unit(np.array([found.score]))[0]) if calibrated else None
        return explain_in_words(found, text, features, self._names, probability)

    # --- evaluate ------------------------------------------------------------------------------------------------

    def evaluate(self, texts: Any, labels: Iterable[Iterable[str]], **options: Any) -> Metrics:
        """P@k, nDCG@k, PSP@k and more on texts with known labels; `options` go to `umpteen.evaluate`. Also precision,
        recall and F1 of the labels that `predict` gives.

        Labels the model has never seen count too: it cannot suggest them, so they are always missed.
        """
        return judging.judge(self.fitted(), self.vectorize(texts), self._encode(labels), options)

    def reliability(
        self, texts: Any, labels: Iterable[Iterable[str]], top_k: int = 5
    ) -> tuple[Reliability, Reliability]:
        """How reliable the suggestions' probabilities are, before calibration (scores mapped to [0, 1]) and after."""
        return judging.judge_probabilities(self.fitted(), self.vectorize(texts).X, self._encode(labels), top_k)

    def encode(self, texts: Any, labels: Iterable[Iterable[str]]) -> tuple[Csr, Csr]:
        """Texts and label names as the method takes them; names the model does not have are left out."""
        model = self.fitted()
        X, Y = as_csr(self.vectorize(texts).X, "texts", model.n_features), self._encode(labels)
        check_rows(X.shape[0], Y.shape[0])
        return X, Y[:, : model.n_labels]

    # --- save and load -------------------------------------------------------------------------------------------

    def save(self, path: PathLike, *, overwrite: bool = False) -> None:
        """Writes the model directory: method, vocabulary, names, calibration. No pickle: features of scikit-learn are
        written by skops, and refused if a type in them is not one that is opened again."""
        model = self.fitted()
        check_stored(model, self.features_)
        model.save(path, overwrite=overwrite)

    @classmethod
    def load(
        cls,
        path: PathLike | ModelReader,
        *,
        checksums: bool = False,
        trust_pattern: bool = False,
        encoder: Any = None,
    ) -> Tagger:
        """Opens a model directory that a tagger wrote; see `umpteen.load`."""
        model = load_model(path, checksums=checksums)
        return cls.from_model(model, path, trust_pattern=trust_pattern, encoder=encoder)

    @classmethod
    def from_model(
        cls,
        model: TrainedModel,
        path: object = "the model",
        *,
        trust_pattern: bool = False,
        encoder: Any = None,
    ) -> Tagger:
        """A tagger around a model that was trained on text; error messages name it by `path`.

        Its parameters are those the model was trained with. If this umpteen does not know them, because a newer one
        trained the model, the tagger still suggests, and warns that it cannot be trained further here.
        """
        if "text" not in model.header:
            raise ParamError(f"{path}: this model was not trained on text; open it with umpteen.load")
        header = model.header["text"]
        if not isinstance(header, dict) or model.label_names is None:
            raise ModelCorruptError(
                f"{path}: a model of texts needs label names and an object 'text' in its manifest"
            )
        features = open_features(model, header, path, trust_pattern, encoder)
        open_fields(header, path)
        concepts = check_concepts(model, path)
        tagger = cls(
            recipe_of(model, path),
            PRECOMPUTED if features is None else unfitted(features),
            **{name: header[name] for name in ("calibration", "seed") if name in header},
            vocabulary=None if concepts is None else concepts.vocabulary,
        )
        try:
            tagger.check_held_out()
        except ParamError as error:
            raise ModelCorruptError(f"{path}: {error}") from error
        tagger.model_, tagger.features_, tagger._concepts = model, features, (model, concepts)
        return tagger

    @property
    def fields_(self) -> Fields | None:
        """The columns of tables that its texts and labels came from, if the model knows."""
        return open_fields(self.fitted().header["text"], "the model")

    def fitted(self) -> TrainedModel:
        """The trained model; raises NotFittedError before `fit`."""
        model: TrainedModel | None = getattr(self, "model_", None)
        if model is None:
            raise not_fitted("this Tagger is not fitted; call fit first")
        if self.threads is not None and model.threads != self.threads:
            self.model_ = model = model.with_threads(self.threads)
        return model


def load(
    path: PathLike | ModelReader, *, checksums: bool = False, trust_pattern: bool = False, encoder: Any = None
) -> Tagger | TrainedModel:
    """Opens a model directory: a `Tagger` if it was trained on text, else a `TrainedModel`. Arrays are mapped, not
    read. One version of the model is opened, whole, even while it is being replaced; nothing in it is run.

    Where a type checker has to know which of the two it is, `Tagger.load` and `TrainedModel.load` do the same.

    Parameters
    ----------
    path
        A directory, a URL, or one of these as `umpteen.storage.remote.open_model` opened it.
    checksums
        Also read every byte and compare it with its checksum.
    trust_pattern
        Run the model's token pattern whatever its form; see `Tfidf`. Only for models whose maker you trust: some
        patterns take for ever over a short text.
    encoder
        The encoder that the model was trained with, if it does not hold it: a function, or a name; see `Encoding`.
        Another one is refused.
    """
    model = load_model(path, checksums=checksums)
    if "text" not in model.header:
        return model
    return Tagger.from_model(model, path, trust_pattern=trust_pattern, encoder=encoder)
