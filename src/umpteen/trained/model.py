"""A trained model: its header, the preprocessing of rows, its labels, and a scorer.

It does not depend on the method that trained it: the method's name and parameters are plain data here. A `Method`
trains one and predicts with it; `umpteen.load` opens one; a member of a blend or a candidate tree is one inside
another (nesting.py).
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from umpteen.data.files import PathLike
from umpteen.data.label_lists import ids_to_matrix
from umpteen.data.matrix import Csr, as_csr
from umpteen.data.propensity import LabelCounts
from umpteen.engines import make_engine
from umpteen.engines.base import Engine
from umpteen.errors import DataError, ModelCorruptError, ModelError, NotFittedError, ParamError
from umpteen.evaluation.decisions import Decisions, evaluate_decisions
from umpteen.evaluation.metrics import find_hits
from umpteen.models.calibration import Calibration
from umpteen.models.explanation import Explanation
from umpteen.models.families import scorer_class
from umpteen.models.linear import LinearModel
from umpteen.models.scorer import Ranking, Scorer, check_label_ids
from umpteen.nearest import did_you_mean
from umpteen.params import check_count, check_number
from umpteen.storage.names import Names
from umpteen.storage.saving import save_parts
from umpteen.storage.store import ModelReader, Part
from umpteen.trained.decisions import HAS_BOUNDARY, Decider
from umpteen.trained.dense import probabilities_of_all, score_all
from umpteen.trained.grown import open_grown, rank_known
from umpteen.trained.header import (
    check_header,
    explain_newer,
    is_newer,
    open_label_counts,
    open_preprocessing,
    open_retired,
)
from umpteen.trained.importing import pack_weights
from umpteen.trained.liblinear import write_liblinear
from umpteen.trained.nesting import CANDIDATE_TREE, open_candidate_tree
from umpteen.trained.omikuji import pack_omikuji
from umpteen.trained.pecos import pack_pecos


class TrainedModel:
    """Ranks labels for rows of features.

    Attributes
    ----------
    method : str
        The name of the method that trained it.
    params : dict
        The parameters of that method.
    n_features, n_labels : int
    label_names : sequence of str or None
        By label id.
    train_counts : LabelCounts
        How many training rows each label had.
    calibration : Calibration or None
        Turns scores into probabilities; None if the model is not calibrated.
    preprocessing : Preprocessing
        Applied to rows before they are scored.
    scorer : Scorer
        The trained shards.
    retired : array of int32
        Labels that are no longer to be given, such as concepts that a newer vocabulary lacks; they are never ranked.
    candidate_tree : TrainedModel or None
        A label tree that proposes the labels to rank.
    threads : int or None
        How many threads to use; None means all cores.

    Examples
    --------
    >>> import tempfile, umpteen
    >>> data = umpteen.make_synthetic(500, 300, 20, seed=1)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     umpteen.DiSMEC().fit(data.X, data.Y).save(f"{folder}/a.model")
    ...     model = umpteen.load(f"{folder}/a.model")
    >>> model.method, model.n_labels
    ('dismec', 20)
    >>> labels, scores = model.predict_topk(data.X, top_k=3)
    >>> labels.shape
    (500, 3)
    """

    def __init__(
        self, header: Mapping[str, Any], parts: Mapping[str, Part], scorer: Scorer, threads: int | None = None
    ) -> None:
        self.header = copy.deepcopy(dict(header))
        #: The parts of the whole model, by name: label counts, names, calibration and the like.
        self.parts = dict(parts)
        self.scorer = scorer
        self.threads = threads
        self.preprocessing = open_preprocessing(header, parts)
        self.train_counts = LabelCounts(open_label_counts(header, parts), header["n_train_rows"])
        self.label_names = Names.from_part(parts["names"]) if "names" in parts else None
        if self.label_names is not None and len(self.label_names) != header["n_labels"]:
            raise ModelCorruptError(
                f"there must be {header['n_labels']} label names, but there are {len(self.label_names)}"
            )
        self.calibration = Calibration.from_part(parts["calibration"]) if "calibration" in parts else None
        self.retired = open_retired(header, parts)
        self._grown = open_grown(header)
        nested = open_candidate_tree(header, parts)
        self.candidate_tree = TrainedModel.open(*nested) if nested is not None else None
        if self.candidate_tree is not None:
            check_count("n_candidates", header["params"].get("n_candidates"))
            if not isinstance(scorer, LinearModel):
                raise ModelCorruptError(f"only linear models can have a candidate tree, but this is {scorer.family}")

    @classmethod
    def load(cls, path: PathLike | ModelReader, *, checksums: bool = False) -> TrainedModel:
        """Opens a model directory, as `umpteen.load` does, and always gives a `TrainedModel`: of a tagger the one
        that ranks its rows. Type checkers know what it is.

        Parameters
        ----------
        path, checksums
            As for `umpteen.load`.
        """
        from umpteen.trained.loading import load_model

        return load_model(path, checksums=checksums)

    @classmethod
    def open(
        cls,
        header: Mapping[str, Any],
        parts: Mapping[str, Part],
        shards: Sequence[Part],
        threads: int | None = None,
    ) -> TrainedModel:
        """Opens the contents of a model directory, which are not trusted.

        Raises
        ------
        ModelFormatError
            If a newer version of umpteen wrote something this one does not know.
        ModelCorruptError
            If anything else cannot be used.
        """
        try:
            check_header(header)
            # Before the scorer, which allocates memory by the number of labels: the counts must confirm it.
            open_label_counts(header, parts)
            open_preprocessing(header, parts)
            scorer = scorer_class(header.get("family")).open(header, parts, shards)
            return cls(header, parts, scorer, threads)
        except (ModelError, ParamError, KeyError, TypeError) as error:
            if is_newer(header):
                raise explain_newer(header, error) from error
            raise

    @classmethod
    def from_weights(
        cls,
        coef: Any,
        intercept: ArrayLike | None = None,
        label_names: Sequence[str] | None = None,
        *,
        label_counts: ArrayLike | None = None,
        normalize: bool = False,
        weight_type: str = "float16",
    ) -> TrainedModel:
        """A model with weights that another program trained, such as scikit-learn or LIBLINEAR: to prune, save, serve
        and explain them. It predicts and explains like any other, but has no method to train it further.

        Parameters
        ----------
        coef : sparse or array, n_labels x n_features
        intercept : n_labels, or one number for all
            Added to each label's score; -inf for a label never to be ranked. None means 0.
        label_names
            One per label.
        label_counts
            How many training rows each label had, for propensities; without it each counts as one.
        normalize
            Whether rows are scaled to unit length first, as they were when the weights were trained.
        weight_type
            How weights are stored: "float16", which rounds them to three digits and halves the model, or "float32".

        Examples
        --------
        >>> import numpy as np, umpteen
        >>> model = umpteen.TrainedModel.from_weights(np.array([[1.0, 0.0], [0.0, 2.0]]), [0.5, 0.0], ["a", "b"])
        >>> labels, scores = model.predict_topk([[1.0, 1.0]], 2)
        >>> [(model.label_names[label], float(score)) for label, score in zip(labels[0], scores[0])]
        [('b', 2.0), ('a', 1.5)]
        """
        packed = pack_weights(coef, intercept, label_names, label_counts, normalize, weight_type)
        return cls.open(*packed)

    @classmethod
    def from_omikuji(cls, path: PathLike, label_names: Sequence[str] | None = None) -> TrainedModel:
        """A model of the trees that omikuji trained and saved: to serve, pack and explain them. It predicts and
        explains like any other, but has no method to train it further.

        Parameters
        ----------
        path
            The directory that omikuji saved.
        label_names
            One per label, by omikuji's numbers.
        """
        return cls.open(*pack_omikuji(path, label_names))

    @classmethod
    def from_pecos(cls, path: PathLike, label_names: Sequence[str] | None = None) -> TrainedModel:
        """A model of XR-Linear that PECOS trained and saved: to serve, pack and explain it. It predicts and explains
        like any other, but has no method to train it further.

        Parameters
        ----------
        path
            The directory that `XLinearModel.save` wrote.
        label_names
            One per label, by PECOS's numbers.
        """
        return cls.open(*pack_pecos(path, label_names))

    @property
    def method(self) -> str:
        return str(self.header["method"])

    @property
    def family(self) -> str:
        return self.scorer.family

    @property
    def params(self) -> dict[str, Any]:
        return dict(self.header["params"])

    @property
    def n_features(self) -> int:
        return int(self.header["n_features"])

    @property
    def n_labels(self) -> int:
        return int(self.header["n_labels"])

    def __repr__(self) -> str:
        return f"<trained {self.method} model: {self.n_features} features, {self.n_labels} labels>"

    # --- changed copies -------------------------------------------------------------------------------------------

    def configured(self, **settings: Any) -> TrainedModel:
        """The same model with other prediction settings: the `beam` of a label tree, the `index` of embeddings, the
        `n_candidates` of a blend or of a model with a candidate tree. Shares all arrays.

        Examples
        --------
        >>> import umpteen
        >>> data = umpteen.make_synthetic(500, 300, 20, seed=1)
        >>> model = umpteen.LabelTree().fit(data.X, data.Y).model_
        >>> model.configured(beam=20).params["beam"]
        20
        """
        known = self.settings()
        for name in settings:
            if name not in known:
                raise ParamError(
                    f"a {self.method} model has no prediction setting {name!r}; "
                    f"it has {', '.join(sorted(known)) or 'none'}"
                )
        other = self._copy()
        other.scorer = self.scorer.configured(settings)
        params = other.header["params"]
        params |= {name: value for name, value in other.scorer.settings().items() if name in settings}
        if self.candidate_tree is not None:
            if "n_candidates" in settings:
                params["n_candidates"] = check_count("n_candidates", settings["n_candidates"])
            if "beam" in settings:
                other.candidate_tree = self.candidate_tree.configured(beam=settings["beam"])
                other.header[CANDIDATE_TREE]["header"] = other.candidate_tree.header
        return other

    def settings(self) -> dict[str, Any]:
        """The prediction settings that `configured` can change, and their values."""
        if self.candidate_tree is None:
            return self.scorer.settings()
        return {**self.candidate_tree.settings(), "n_candidates": self.params["n_candidates"]}

    def _copy(self) -> TrainedModel:
        """A copy that shares all arrays but not the header."""
        other = copy.copy(self)
        other.header = copy.deepcopy(self.header)
        return other

    def with_threads(self, threads: int | None) -> TrainedModel:
        """The same model with another default number of threads."""
        other = self._copy()
        other.threads = threads
        return other

    def with_part(self, name: str, part: Part) -> TrainedModel:
        """The same model with one part replaced or added."""
        return TrainedModel(self.header, self.parts | {name: part}, self.scorer, self.threads)

    def pruned(self, delta: float, model_dir: PathLike | None = None) -> TrainedModel:
        """A copy of the model without weights smaller than `delta`; nothing is trained again.

        The result is that of training with ``prune=delta``, except for weights within 2^-11 of `delta`, which 16-bit
        rounding may have moved across it. A model trained with a larger `prune` loses nothing. If the method has a
        parameter `prune`, the copy's is the larger of the two.

        Parameters
        ----------
        delta
            Weights with a smaller absolute value are dropped. Biases stay.
        model_dir
            Where to write the copy, shard by shard; it appears when it is complete. Without it the copy stays in
            memory until `save`.
        """
        delta = check_number("delta", delta, 0)
        params = self.params
        if "prune" in params:
            params["prune"] = max(check_number("prune", params["prune"], 0), delta)
        header = self.header | {"params": params}
        shards = self.scorer.pruned_parts(delta)
        if model_dir is None:
            return TrainedModel.open(header, self.parts, list(shards), self.threads)
        from umpteen.trained.loading import load_model

        save_parts(model_dir, header, shards, len(self.scorer.to_parts()), self.parts)
        return load_model(model_dir)

    def save(self, path: PathLike, *, overwrite: bool = False) -> None:
        """Writes the model directory. It appears when it is complete; `overwrite` replaces an existing one."""
        shards = self.scorer.to_parts()
        save_parts(path, self.header, shards, len(shards), self.parts, overwrite=overwrite)

    def to_weights(self) -> tuple[Csr, NDArray[np.float32]]:
        """The weights of a linear model: W as CSR, n_labels x n_features, and what is added to each label's score.

        Scores are ``X @ W.T + bias`` for rows after `preprocessing`. A label without training rows has -inf there.
        """
        if not isinstance(self.scorer, LinearModel):
            raise ParamError(f"only linear models have weights to export, but this model's family is {self.family}")
        return self.scorer.to_weights()

    def to_liblinear(self, path: PathLike) -> None:
        """Writes the weights of a linear model as a model file of LIBLINEAR, which gives rows the same scores.

        LIBLINEAR's classes are label ids, without those that are never ranked. Rows must be scaled as the model's
        `preprocessing` does before LIBLINEAR sees them. The file has a number for each feature and label, zeros too.
        Of two labels LIBLINEAR's predict gives the first one's score alone, though the file has both.

        Examples
        --------
        >>> import pathlib, tempfile, numpy as np, umpteen
        >>> model = umpteen.TrainedModel.from_weights(np.array([[1.0, 0.0], [0.0, 2.0]]), [0.5, 0.0])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     model.to_liblinear(f"{folder}/a.model")
        ...     lines = pathlib.Path(folder, "a.model").read_text().splitlines()
        >>> lines[-3:]
        ['1 0 ', '0 2 ', '0.5 0 ']
        """
        W, bias = self.to_weights()
        labels = np.setdiff1d(np.flatnonzero(np.isfinite(bias)), self.retired)
        write_liblinear(path, W, bias, labels)

    # --- predict ------------------------------------------------------------------------------------------------

    def predict_topk(
        self,
        X: Any,
        top_k: int = 5,
        *,
        exclude: ArrayLike | None = None,
        include: ArrayLike | None = None,
        threads: int | None = None,
        engine: str | Engine = "local",
    ) -> Ranking:
        """The best labels of each row, best first; ties go to the lower label id.

        Parameters
        ----------
        X : sparse or array, n_rows x n_features
            As for `fit`: the model's preprocessing is applied here.
        exclude, include : label ids or names, optional
            Labels never to rank, or the only ones to rank; applied before `top_k`.
        engine
            Where to score rows; by default on this machine, which is faster for few rows than sending them.

        Returns
        -------
        labels : int32, n_rows x top_k
            Padded with -1 where fewer labels can be ranked.
        scores : float32, n_rows x top_k
            Padded with -inf.
        """
        top_k = check_count("top_k", top_k)
        X = as_csr(X, "X", self.n_features)
        threads = self.threads if threads is None else threads
        options: dict[str, Any] = {
            "exclude": self._left_out(exclude),
            "include": self.label_ids(include, "include"),
            "threads": threads,
        }
        if not len(self._grown):
            return self._rank_all(X, top_k, engine, options)

        def rank(rows: Csr, left_out: Any) -> Ranking:
            return self._rank_all(rows, top_k, engine, options | {"exclude": left_out})

        return rank_known(rank, X, top_k, options["exclude"], self._grown, self.scorer)

    def _rank_all(self, X: Csr, top_k: int, engine: str | Engine, options: dict[str, Any]) -> Ranking:
        """Ranks rows as they are given."""
        if self.candidate_tree is not None:
            return self._rank_candidates(self.candidate_tree, X, top_k, engine, options)
        X = self._preprocess(X, options["threads"])
        if engine == "local":  # making an engine takes longer than scoring one row
            return self.scorer.predict_topk(X, top_k, **options)
        return make_engine(engine, options["threads"]).predict_topk(self.scorer, X, top_k, **options)

    def _left_out(self, exclude: Any) -> NDArray[np.int64] | None:
        ids = self.label_ids(exclude, "exclude")
        if not len(self.retired):
            return ids
        return self.retired.astype(np.int64) if ids is None else np.union1d(ids, self.retired)

    def _preprocess(self, X: Csr, threads: int | None) -> Csr:
        return self.preprocessing.transform(X, threads=1 if X.shape[0] == 1 else threads)

    def _rank_candidates(
        self, tree: TrainedModel, X: Csr, top_k: int, engine: str | Engine, options: dict[str, Any]
    ) -> Ranking:
        """Ranks only the tree's best labels."""
        if engine != "local":
            raise ParamError(f"engine must be 'local' for a model with a candidate tree, but is {engine!r}")
        n_candidates = int(self.params["n_candidates"])
        proposed, _ = tree.predict_topk(X, min(max(top_k, n_candidates), self.n_labels), **options)
        threads = options["threads"]
        scorer: Any = self.scorer  # only linear models have a candidate tree
        ranking: Ranking = scorer.rank_candidates(self._preprocess(X, threads), proposed, top_k, threads=threads)
        return ranking

    def predict_topk_proba(self, X: Any, top_k: int = 5, **options: Any) -> Ranking:
        """`predict_topk` with probabilities instead of scores, padded with 0. The model must be calibrated."""
        labels, scores = self.predict_topk(X, top_k, **options)
        if self.calibration is None:
            raise NotFittedError(f"this {self.method} model is not calibrated; call calibrate with held-out rows")
        return labels, self.calibration.to_probabilities(scores)

    def to_unit(self, scores: NDArray[np.float32]) -> NDArray[np.float32]:
        """Scores as probabilities if the model is calibrated; else mapped to [0, 1] in the same order."""
        return self._decider.to_unit(scores)

    def count_support(self, probabilities: ArrayLike) -> NDArray[np.int64] | None:
        """On how many held-out predictions each of these probabilities rests (see `Calibration.count_support`); None
        if the model is not calibrated, or by a version that did not count them."""
        known = self.calibration is not None and len(self.calibration.support)
        return self.calibration.count_support(probabilities) if known and self.calibration is not None else None

    def rank(
        self,
        X: Any,
        top_k: int | str | None = None,
        threshold: float | str | None = None,
        exclude: Any = None,
        include: Any = None,
        threads: int | None = None,
        engine: str | Engine = "local",
        *,
        raw: bool = False,
    ) -> Ranking:
        """The labels to give each row: ids, best first, padded with -1, and probabilities (see `to_unit`).

        This is where all of umpteen decides which labels a row gets: by default those whose probability is at least
        the threshold learned for the best micro F1; without calibration those with at least 0.5, which for most
        linear models is a score of at least 0. Scores of Centroid, PD-Sparse, PfastreXML, RXML and SLEEC have no such
        value: without calibration, rows get as many labels as training rows had on average.

        Parameters
        ----------
        top_k : int, "auto" or None
            A number gives as many labels as there are, however unlikely, unless a threshold is given too; "auto" as
            many for each row as maximise the expected F1.
        threshold : float, "micro", "macro" or None
            Leave out labels below this probability, or below the thresholds learned for the best micro F1 (one for
            all labels) or macro F1 (one for each label).
        exclude, include, threads, engine
            As for `predict_topk`.
        raw
            Scores instead of probabilities, padded with -inf.
        """
        options: dict[str, Any] = {"exclude": exclude, "include": include, "threads": threads, "engine": engine}
        return self._decider.decide(lambda width: self.predict_topk(X, width, **options), top_k, threshold, raw=raw)

    def check_limits(self, top_k: int | str | None, threshold: float | str | None) -> None:
        """Raises ParamError for what `rank` would refuse, before there are rows."""
        self._decider.check(top_k, threshold)

    @property
    def _decider(self) -> Decider:
        return Decider(self.scorer, self.calibration, self.n_labels, self.usual_labels)

    @property
    def usual_labels(self) -> int | None:
        """How many labels a row gets where scores do not say it: as many as training rows had on average; else
        None."""
        if self.header.get(HAS_BOUNDARY, True):
            return None
        per_row = float(self.train_counts.counts.sum()) / self.train_counts.n_rows
        return min(max(1, round(per_row)), self.n_labels)

    @property
    def threshold(self) -> float | None:
        """The least value of a label that is given, unless another is asked for; None if that is not what decides.
        See `rank`."""
        return self._decider.threshold

    def decision_function(self, X: Any) -> NDArray[np.float32]:
        """The scores of all labels, n_rows x n_labels, where they take at most half a gigabyte; less the score from
        which labels are given without a calibration, where there is one: for linear models 0. A label that the model
        does not rank for a row has one less than 0 and than all others."""
        return score_all(self, X)

    def predict_proba(self, X: Any) -> NDArray[np.float32]:
        """The probabilities of all labels, n_rows x n_labels, where they take at most half a gigabyte; 0 for a label
        that the model does not rank for a row. The model must be calibrated."""
        return probabilities_of_all(self, X)

    def need_calibration(self, what: str) -> None:
        """Raises ParamError, which names `what` was asked for, if the model is not calibrated."""
        self._decider.need_calibration(what)

    def predict(self, X: Any, top_k: int | str | None = None, threshold: float | str | None = None) -> Csr:
        """The labels to give each row, as a CSR matrix of ones, n_rows x n_labels; see `rank`."""
        labels, _ = self.rank(X, top_k, threshold)
        return ids_to_matrix(labels, self.n_labels)

    # --- evaluate and explain -----------------------------------------------------------------------------------

    def calibrate(self, X: Any, Y: Any, *, top_k: int = 50) -> TrainedModel:
        """A copy of the model with probabilities and thresholds learned from held-out rows.

        Parameters
        ----------
        X, Y
            Rows the model was not trained on, and their labels.
        top_k
            How far down each row's ranking to look.
        """
        labels, scores = self.predict_topk(X, min(check_count("top_k", top_k), self.n_labels))
        Y = self.check_targets(Y, len(labels))
        hits = find_hits(Y, labels, self.threads)
        found = Calibration.fit(labels, scores, hits, np.bincount(Y.indices, minlength=self.n_labels))
        return self.with_part("calibration", found.to_part())

    def judge_decisions(self, X: Any, Y: Any, *, threads: int | None = None) -> Decisions:
        """Precision, recall and F1 of the labels that `predict` gives rows."""
        labels, _ = self.rank(X, threads=threads)
        targets = self.check_targets(Y, len(labels))
        return evaluate_decisions(targets, labels, self.threshold, threads, self.train_counts)

    def score(self, X: Any, Y: Any, sample_weight: Any = None) -> float:
        """P@1 as a fraction, for scikit-learn's searches: the share of rows, or of their summed weights, whose best
        label is one they have."""
        labels, _ = self.predict_topk(X, 1)
        hits = find_hits(self.check_targets(Y, len(labels)), labels, self.threads)
        return float(np.average(hits[:, 0], weights=sample_weight))

    def check_targets(self, Y: Any, n_rows: int) -> Csr:
        targets = as_csr(Y, "Y", self.n_labels, values=False)
        if targets.shape[0] != n_rows:
            raise DataError(f"X and Y must have the same number of rows, but have {n_rows} and {targets.shape[0]}")
        return targets

    def explain(self, X: Any, label: Any) -> Explanation:
        """What counts for and against a label.

        Parameters
        ----------
        X : sparse or array, 1 x n_features
            One row, as for `fit`.
        label
            The label's id or name.
        """
        ids = self.label_ids(label, "label")
        X = as_csr(X, "X", self.n_features)
        if X.shape[0] != 1 or ids is None or len(ids) != 1:
            n_labels = 0 if ids is None else len(ids)
            raise ParamError(
                f"explain takes one row and one label, but there are {X.shape[0]} rows and {n_labels} labels"
            )
        return self.scorer.explain(self.preprocessing.transform(X, threads=1), int(ids[0]))

    # --- labels -------------------------------------------------------------------------------------------------

    def label_ids(self, labels: Any, name: str) -> NDArray[np.int64] | None:
        """The ids of labels given by id or name; error messages call the argument `name`."""
        if labels is None:
            return None
        if isinstance(labels, (str, int, np.integer)):
            labels = [labels]
        labels = list(labels)
        if any(isinstance(label, str) for label in labels):
            if self.label_names is None:
                raise ParamError(f"{name} holds label names, but the model has none; give label ids")
            unknown = [label for label in labels if isinstance(label, str) and label not in self.ids_by_name]
            if unknown:
                raise ParamError(
                    f"{name} holds the unknown label {unknown[0]!r:.200}{did_you_mean(unknown[0], self.ids_by_name)}"
                )
            labels = [self.ids_by_name[label] if isinstance(label, str) else label for label in labels]
        return check_label_ids(labels, self.n_labels, name)

    @cached_property
    def ids_by_name(self) -> dict[str, int]:
        """Label ids by name; empty if labels have no names."""
        return {name: i for i, name in enumerate(self.label_names or ())}
