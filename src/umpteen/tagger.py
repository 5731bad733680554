"""Text in, label names out: features, a method and label names as one estimator and one model directory."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from umpteen.choosing.auto import choose_method
from umpteen.choosing.budget import parse_budget
from umpteen.choosing.choice import AUTO, ENTRY, Choice, read_choice
from umpteen.choosing.features import choose_features
from umpteen.choosing.training import train_choice
from umpteen.data.corrections import Correction
from umpteen.data.dataset import Dataset
from umpteen.data.files import PathLike
from umpteen.data.label_lists import check_label_lists, encode_labels, to_label_matrix
from umpteen.data.matrix import Csr, as_csr
from umpteen.data.propensity import LabelCounts
from umpteen.engines.base import Engine
from umpteen.errors import DataError, ModelCorruptError, NotFittedError, ParamError
from umpteen.evaluation.calibration import Reliability, reliability
from umpteen.evaluation.decisions import evaluate_decisions
from umpteen.evaluation.metrics import Metrics, evaluate, find_hits
from umpteen.explaining import TextExplanation, explain_in_words
from umpteen.growing import add_new_labels, learn_texts
from umpteen.methods import METHODS, method_class, method_of
from umpteen.methods.base import COMPUTE_PARAMS, Method
from umpteen.methods.held_out import check_calibration, draw_held_out, first_fold, train_calibrated
from umpteen.methods.training import check_keep_rows
from umpteen.models.scorer import Ranking
from umpteen.params import check_count, check_flag, check_share
from umpteen.progress import Listener
from umpteen.storage.remote import is_url
from umpteen.storage.store import ModelReader, refuse_finished
from umpteen.tagger_storage import PRECOMPUTED, Untrainable, describe_features, open_features, recipe_of
from umpteen.text.tfidf import Tfidf, WordCounts
from umpteen.trained.loading import load_model
from umpteen.trained.model import TrainedModel

#: Used where no features are given: a word that occurs ten times counts more than one that occurs once, but not ten
#: times more.
DEFAULT_FEATURES: dict[str, Any] = {"sublinear_tf": True}

Suggestions = list[tuple[str, float]]


class TextRows(NamedTuple):
    """Texts as rows of features."""

    X: Any
    words: WordCounts | None  # words and unknown words of each text; None if the input was numbers

    def known_share(self) -> NDArray[np.float32]:
        """The share of each text's words that the model knows; 0 for a text that became an empty row."""
        assert self.words is not None
        total, unknown = self.words.total.astype(np.float64), self.words.unknown
        share = np.where(total > 0, 1 - unknown / np.maximum(total, 1), 0)
        return np.where(np.diff(self.X.indptr) > 0, share, 0).astype(np.float32)


class Tagger:
    """Learns which label names go with which texts.

    Parameters
    ----------
    method
        Any method of this package, or its name. "auto", the default, chooses one from the texts, the memory and the
        budget, most often by comparing methods on held-out texts; `choice_` says which, and why.
    features
        How texts become features: a `Tfidf`, by default with ``sublinear_tf=True``, which suits most texts better;
        or "precomputed", to pass rows of numbers (sparse, dense, embeddings) instead of texts.
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

    Attributes
    ----------
    model_ : TrainedModel
        Ranks labels for the rows made from texts.
    features_ : Tfidf or None
        Makes those rows; None with features="precomputed".
    classes_ : sequence of str
        Label names by id.
    choice_ : Choice
        With "auto": the method chosen, why, and what else was possible.

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
    ) -> None:
        self.method = method
        self.features = features
        self.calibration = calibration
        self.seed = seed
        self.budget = budget
        self.tune = tune
        self.keep_rows = keep_rows

    # --- parameters, as scikit-learn expects them ----------------------------------------------------------------

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        names = list(inspect.signature(type(self).__init__).parameters)[1:]
        params = {name: getattr(self, name) for name in names}
        if deep:
            for name in ("method", "features"):
                if hasattr(params[name], "get_params"):
                    params |= {f"{name}__{key}": value for key, value in params[name].get_params().items()}
        return params

    def set_params(self, **params: Any) -> Self:
        known = self.get_params()
        for name, value in params.items():
            if name not in known:
                raise ParamError(f"Tagger has no parameter {name!r}; its parameters are {', '.join(known)}")
            owner, _, inner = name.partition("__")
            if inner:
                getattr(self, owner).set_params(**{inner: value})
            else:
                setattr(self, name, value)
        return self

    def __repr__(self) -> str:
        changed = {
            name: getattr(self, name)
            for name, parameter in list(inspect.signature(type(self).__init__).parameters.items())[1:]
            if getattr(self, name) is not parameter.default and getattr(self, name) != parameter.default
        }
        return f"Tagger({', '.join(f'{name}={value!r}' for name, value in changed.items())})"

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import ClassifierTags, InputTags, Tags, TargetTags

        return Tags(
            estimator_type="classifier",
            target_tags=TargetTags(required=True, multi_output=True, single_output=False),
            classifier_tags=ClassifierTags(multi_class=False, multi_label=True),
            input_tags=InputTags(string=self.features != PRECOMPUTED, two_d_array=self.features == PRECOMPUTED),
        )

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "model_")

    # --- fit -----------------------------------------------------------------------------------------------------

    def fit(
        self,
        texts: Any,
        labels: Iterable[Iterable[str]],
        model_dir: PathLike | None = None,
        *,
        resume: bool = True,
        progress: bool | Listener = False,
    ) -> Self:
        """Learns from texts and the names of their labels.

        Parameters
        ----------
        texts : iterable of str; or rows of numbers, with features="precomputed"
        labels : iterable of iterables of str
            The label names of each text; a text may have none.
        model_dir, resume, progress
            As for the method's own `fit`: each shard is written as it finishes, and after an interruption the same
            call continues.
        """
        features, data = self.prepare(texts, labels, model_dir)
        return self.train(features, data, model_dir, resume=resume, progress=progress)

    def prepare(
        self, texts: Any, labels: Iterable[Iterable[str]], model_dir: PathLike | None = None
    ) -> tuple[Tfidf | None, Dataset]:
        """The first half of `fit`: learns the vocabulary and turns texts and labels into a data set. An interrupted
        run in `model_dir` is continued with its features."""
        method = self._check()
        features = None if self.features == PRECOMPUTED else Tfidf(**self._features().get_params())
        names, Y = encode_labels(labels)
        if method is None and self.tune and self.features is None:
            known = read_choice(model_dir, first_fold(model_dir))
            if known is None:
                texts = list(texts)
                _check_rows(len(texts), Y)
                features, X = choose_features(texts, Y, parse_budget(self.budget), self.seed)
                return features, Dataset(X, Y, names)
            features = Tfidf(**known.features)
        X = as_csr(texts, "texts") if features is None else features.fit_transform(texts)
        _check_rows(X.shape[0], Y)
        return features, Dataset(X, Y, names)

    def choose(self, data: Dataset, model_dir: PathLike | None = None, *, threads: int | None = None) -> Choice:
        """What method="auto" trains on what `prepare` returned; what an interrupted run in `model_dir` chose."""
        self._check()
        known = read_choice(model_dir, first_fold(model_dir))
        trainings = 1 + len(draw_held_out(data.Y, self.calibration, self.seed))
        return known or choose_method(
            data.X, data.Y, self.budget, threads, seed=self.seed, trainings=trainings, tune=self.tune
        )

    def train(
        self,
        features: Tfidf | None,
        data: Dataset,
        model_dir: PathLike | None = None,
        *,
        resume: bool = True,
        progress: bool | Listener = False,
        choice: Choice | None = None,
    ) -> Self:
        """The second half of `fit`: trains a model from what `prepare` returned; with method="auto" that of `choice`,
        by default what `choose` returns."""
        method = self._check()
        header, parts = describe_features(features, self.calibration, int(self.seed))
        if model_dir is not None and not is_url(model_dir):
            refuse_finished(model_dir)
        chosen = None
        if method is None:
            choice = choice or self.choose(data, model_dir)
            if self.tune and self.features is None:
                choice = choice.with_features(features)
            self.choice_ = choice
            method, chosen = choice.method, {ENTRY: choice.as_header()}
            header |= chosen
            if choice.blend is not None:  # has probabilities of its own
                self.model_ = train_choice(
                    choice, data.X, data.Y, model_dir, label_names=data.label_names, progress=progress,
                    extra_header=header, extra_parts=parts, keep_rows=self.keep_rows,
                )  # fmt: skip
                self.features_ = features
                return self
        check_keep_rows(method, self.keep_rows)
        self.model_ = train_calibrated(
            type(method)(**method.get_params()), data.X, data.Y, model_dir, calibration=self.calibration,
            seed=self.seed, as_new=None if features is None else features.as_new, fold_header=chosen,
            label_names=data.label_names, resume=resume, progress=progress, extra_header=header, extra_parts=parts,
            keep_rows=self.keep_rows,
        )  # fmt: skip
        self.features_ = features
        return self

    def _check(self) -> Method | None:
        """The method, None if it is to be chosen, checked like all parameters."""
        method = self.method
        parse_budget(self.budget)
        check_flag("tune", self.tune)
        self._check_held_out()
        check_count("keep_rows", self.keep_rows, low=0)
        if method is None or method == AUTO:
            return None
        if self.budget is not None or self.tune:
            raise ParamError('budget and tune go with method="auto", but another method is given')
        if isinstance(method, str):
            method = method_class(method)()
        if isinstance(method, Untrainable):
            raise ParamError(f"this tagger was loaded and cannot be trained: {method.reason}; give it a method first")
        if not isinstance(method, Method):
            raise ParamError(f"method must be one of this package's methods, but is {method!r}"[:300])
        check_keep_rows(method, self.keep_rows)
        method.validate()
        return method

    def _check_held_out(self) -> None:
        check_calibration(self.calibration)
        check_count("seed", self.seed, low=0)

    def _features(self) -> Tfidf:
        if self.features is None:
            return Tfidf(**DEFAULT_FEATURES)
        if not isinstance(self.features, Tfidf):
            raise ParamError(f'features must be a Tfidf or "{PRECOMPUTED}", but is {self.features!r}'[:300])
        return self.features

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
        names, Y = encode_labels(
            [name for name in row if name not in model.ids_by_name] for row in check_label_lists(labels)
        )
        if not names:
            raise DataError("labels must include a label the model does not have, but it has all of them")
        options: dict[str, Any] = {"negatives": negatives, "resume": resume, "progress": progress}
        if self.features_ is None:
            method.add_labels(self.vectorize(texts).X, Y, names, model_dir, **options)
        else:
            self.features_ = add_new_labels(method, self.features_, list(texts), Y, names, model_dir, **options)
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
        texts : str, or iterable of str; or rows of numbers, with features="precomputed"
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
        corrections, X = self._read_corrections(texts, labels, accepted, rejected, added)
        return self.learn_from(corrections, X)

    def learn_from(self, corrections: Sequence[Correction], X: Csr | None = None) -> Self:
        """`learn` from corrections as `umpteen.data.corrections.read_corrections` reads them."""
        if not corrections:
            raise DataError("there must be at least one correction, but there are none")
        self.model_, self.features_ = learn_texts(self._method_of_model(), self.features_, corrections, X)
        return self

    def _read_corrections(
        self, texts: Any, labels: Any, accepted: Any, rejected: Any, added: Any
    ) -> tuple[list[Correction], Csr | None]:
        one = isinstance(texts, str)
        given = {"labels": labels, "accepted": accepted, "rejected": rejected, "added": added}
        given = {name: [value] if one else value for name, value in given.items() if value is not None}
        if not given or ("labels" in given and len(given) > 1):
            raise ParamError("learn needs either labels or some of accepted, rejected and added")
        X = as_csr(texts, "texts", self.fitted().n_features) if self.fitted() and self.features_ is None else None
        rows = range(X.shape[0]) if X is not None else [texts] if one else list(texts)
        lists = {name: check_label_lists(value) for name, value in given.items()}
        for name, found in lists.items():
            if len(found) != len(rows):
                raise DataError(f"{name} must have a list for each of the {len(rows)} texts, but has {len(found)}")
        return [
            Correction.make(
                row,
                lists["labels"][i] if "labels" in lists else None,
                *(lists[name][i] if name in lists else [] for name in ("accepted", "rejected", "added")),
                where=f"text {i}",
            )
            for i, row in enumerate(rows)
        ], X

    def _method_of_model(self) -> Any:
        """The method that trained the model, with the model, and computing as this tagger does; None if unknown."""
        model = self.fitted()
        method: Any = type(self.method).from_model(model) if isinstance(self.method, Method) else None
        if method is None and model.method in METHODS:
            method = method_of(model)
        if isinstance(self.method, Method):  # how it computes, which models do not record
            method.set_params(**{name: getattr(self.method, name) for name in COMPUTE_PARAMS})
        return method

    # --- suggest -------------------------------------------------------------------------------------------------

    def suggest(
        self,
        texts: Any,
        top_k: int | str | None = None,
        threshold: float | str | None = None,
        exclude: Any = None,
        include: Any = None,
        threads: int | None = None,
        min_known: float = 0.0,
    ) -> Any:
        """The labels to give a text, best first, with their probabilities.

        Parameters
        ----------
        texts : str or iterable of str
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

        Returns
        -------
        list of (name, probability); for several texts a list of such lists
        """
        one = isinstance(texts, str)
        rows = self.vectorize([texts] if one else texts, threads=threads)
        ranking = self.rank_rows(rows, top_k, threshold, exclude, include, threads, min_known=min_known)
        found = self.name_labels(*ranking)
        return found[0] if one else found

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
        labels, values = self.fitted().rank(rows.X, *how, **more)
        if rows.words is None:
            return labels, values
        answered = is_answerable(rows.known_share(), check_share("min_known", min_known))
        return np.where(answered[:, None], labels, -1).astype(np.int32), np.where(answered[:, None], values, 0)

    def vectorize(self, texts: Any, *, threads: int | None = None) -> TextRows:
        """Turns texts into the rows that `model_` takes."""
        self.fitted()
        if self.features_ is None:
            return TextRows(texts, None)
        if isinstance(texts, str):
            raise ParamError("texts must be a list of texts, but is one text")
        return TextRows(*self.features_.transform(texts, return_unknown=True, threads=threads))

    def name_labels(self, labels: NDArray[np.int32], values: NDArray[np.float32]) -> list[Suggestions]:
        """A ranking with names instead of ids: one list per row."""
        names = self.classes_
        return [
            [(names[label], value) for label, value in zip(row, scores, strict=True) if label >= 0]
            for row, scores in zip(labels.tolist(), values.tolist(), strict=True)
        ]

    def predict(
        self, texts: Any, top_k: int | str | None = None, threshold: float | str | None = None
    ) -> list[list[str]]:
        """The names of the labels to give each text; see `suggest`."""
        found = self.suggest(list(texts) if not hasattr(texts, "shape") else texts, top_k, threshold)
        return [[name for name, _ in row] for row in found]

    def count_unknown(self, texts: Any) -> list[tuple[int, int]]:
        """For each text, how many of its words the model does not know, and how many words it has."""
        words = self.vectorize(texts).words
        if words is None:
            raise ParamError("a tagger with precomputed features has no words")
        return list(zip(words.unknown.tolist(), words.total.tolist(), strict=True))

    # --- explain -------------------------------------------------------------------------------------------------

    def explain(self, text: str, label: str | None = None) -> TextExplanation:
        """The words that count for and against a label; by default the label ranked first."""
        model = self.fitted()
        if self.features_ is None:
            raise ParamError("a tagger with precomputed features has no words; use model_.explain")
        if not isinstance(text, str):
            raise ParamError(f"text must be one string, but is a {type(text).__name__}")
        X = self.vectorize([text]).X
        if label is None:
            best = int(model.predict_topk(X, 1)[0][0, 0])
            if best < 0:
                raise DataError("the model ranks no label for this text")
            label = self.classes_[best]
        return self.explain_row(text, X, label)

    def explain_row(self, text: str, X: Csr, label: str | int) -> TextExplanation:
        """`explain` for a text that is already a row; the label by name or id."""
        model, features = self.fitted(), self.features_
        assert features is not None
        found = model.explain(X, label)
        calibrated = model.calibration is not None
        probability = float(model.to_unit(np.array([found.score]))[0]) if calibrated else None
        return explain_in_words(found, text, features, self.classes_, probability)

    # --- evaluate ------------------------------------------------------------------------------------------------

    def evaluate(self, texts: Any, labels: Iterable[Iterable[str]], **options: Any) -> Metrics:
        """P@k, nDCG@k, PSP@k and more on texts with known labels; `options` go to `umpteen.evaluate`. Also precision,
        recall and F1 of the labels that `predict` gives.

        Labels the model has never seen count too: it cannot suggest them, so they are always missed.
        """
        model = self.fitted()
        Y = self._encode(labels)
        ks = options.get("k", (1, 3, 5))
        rows = self.vectorize(texts)
        ranked, _ = model.predict_topk(rows.X, max(ks) if isinstance(ks, Iterable) else ks)
        counts = np.zeros(Y.shape[1], np.int64)
        counts[: model.n_labels] = model.train_counts.counts
        metrics = evaluate(Y, ranked, LabelCounts(counts, model.train_counts.n_rows), **options)
        given, _ = self.rank_rows(rows)
        metrics.decisions = evaluate_decisions(Y, given, model.threshold, options.get("threads"))
        return metrics

    def reliability(
        self, texts: Any, labels: Iterable[Iterable[str]], top_k: int = 5
    ) -> tuple[Reliability, Reliability]:
        """How reliable the suggestions' probabilities are, before calibration (scores mapped to [0, 1]) and after."""
        model = self.fitted()
        model.need_calibration("reliability")
        ranked, scores = model.predict_topk(self.vectorize(texts).X, min(top_k, model.n_labels))
        hits = find_hits(self._encode(labels), ranked)
        given = ranked >= 0
        before, after = model.scorer.to_unit(scores), model.to_unit(scores)
        return reliability(before[given], hits[given]), reliability(after[given], hits[given])

    def score(self, texts: Any, labels: Iterable[Iterable[str]]) -> float:
        """P@1 as a fraction, for scikit-learn's searches."""
        return self.evaluate(texts, labels, k=1, deciles=False)["P@1"] / 100

    def _encode(self, labels: Iterable[Iterable[str]]) -> Csr:
        """Y by the model's label ids; labels it does not have get columns after them."""
        ids = dict(self.fitted().ids_by_name)
        rows = [[ids.setdefault(name, len(ids)) for name in row] for row in check_label_lists(labels)]
        return to_label_matrix(rows, len(ids))

    def encode(self, texts: Any, labels: Iterable[Iterable[str]]) -> tuple[Csr, Csr]:
        """Texts and label names as the method takes them; names the model does not have are left out."""
        model = self.fitted()
        X, Y = as_csr(self.vectorize(texts).X, "texts", model.n_features), self._encode(labels)
        if X.shape[0] != Y.shape[0]:
            raise DataError(f"each of the {X.shape[0]} texts needs a list of labels, but there are {Y.shape[0]}")
        return X, Y[:, : model.n_labels]

    # --- save and load -------------------------------------------------------------------------------------------

    def save(self, path: PathLike, *, overwrite: bool = False) -> None:
        """Writes the model directory: method, vocabulary, names, calibration. No pickle."""
        self.fitted().save(path, overwrite=overwrite)

    @classmethod
    def load(cls, path: PathLike | ModelReader, *, checksums: bool = False, trust_pattern: bool = False) -> Tagger:
        """Opens a model directory that a tagger wrote; see `umpteen.load`."""
        return cls.from_model(load_model(path, checksums=checksums), path, trust_pattern=trust_pattern)

    @classmethod
    def from_model(cls, model: TrainedModel, path: object = "the model", *, trust_pattern: bool = False) -> Tagger:
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
        features = open_features(model, header, path, trust_pattern)
        tagger = cls(
            recipe_of(model, path),
            PRECOMPUTED if features is None else Tfidf(**features.get_params()),
            **{name: header[name] for name in ("calibration", "seed") if name in header},
        )
        try:
            tagger._check_held_out()
        except ParamError as error:
            raise ModelCorruptError(f"{path}: {error}") from error
        tagger.model_, tagger.features_ = model, features
        return tagger

    @property
    def classes_(self) -> Sequence[str]:
        """Label names by id."""
        names = self.fitted().label_names
        assert names is not None
        return names

    def fitted(self) -> TrainedModel:
        """The trained model; raises NotFittedError before `fit`."""
        model: TrainedModel | None = getattr(self, "model_", None)
        if model is None:
            raise NotFittedError("this Tagger is not fitted; call fit first")
        return model


def is_answerable(known: NDArray[np.float32], min_known: Any) -> NDArray[np.bool_]:
    """Which texts may get labels, given the share of their words that the model knows: none without a known word."""
    answerable: NDArray[np.bool_] = (known > 0) & (known >= min_known)
    return answerable


def why_none(known: float, min_known: float = 0.0) -> str:
    """Why a text got no label, given the share of its words that the model knows."""
    if known == 0:
        return "no label: the model knows no word of this text"
    if known < min_known:
        return f"no label: the model knows {known:.0%} of the words, and at least {min_known:.0%} are asked for"
    return "no label is likely enough"


def load(
    path: PathLike | ModelReader, *, checksums: bool = False, trust_pattern: bool = False
) -> Tagger | TrainedModel:
    """Opens a model directory: a `Tagger` if it was trained on text, else a `TrainedModel`. Arrays are mapped, not
    read. One version of the model is opened, whole, even while it is being replaced; nothing in it is run.

    Parameters
    ----------
    path
        A directory, a URL, or one of these as `umpteen.storage.remote.open_model` opened it.
    checksums
        Also read every byte and compare it with its checksum.
    trust_pattern
        Run the model's token pattern whatever its form; see `Tfidf`. Only for models whose maker you trust: some
        patterns take for ever over a short text.
    """
    model = load_model(path, checksums=checksums)
    return Tagger.from_model(model, path, trust_pattern=trust_pattern) if "text" in model.header else model


def _check_rows(n_texts: int, Y: Csr) -> None:
    if n_texts != Y.shape[0]:
        raise DataError(f"each of the {n_texts} texts needs a list of labels, but there are {Y.shape[0]}")
