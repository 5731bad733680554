"""How a tagger is trained: texts and labels become a data set, a method is chosen, and a model is trained."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from umpteen.choosing.auto import choose_method
from umpteen.choosing.budget import parse_budget
from umpteen.choosing.choice import ENTRY, Choice, read_choice
from umpteen.choosing.dense_weight import weigh_dense
from umpteen.choosing.features import choose_features
from umpteen.choosing.training import train_choice
from umpteen.data.dataset import Dataset
from umpteen.data.files import PathLike
from umpteen.data.matrix import Csr, as_csr
from umpteen.data.tables.fields import Fields
from umpteen.errors import ModelError, ParamError
from umpteen.methods.held_out import draw_held_out, first_fold, train_calibrated
from umpteen.methods.training import check_keep_rows
from umpteen.progress import Listener
from umpteen.storage.remote import is_url
from umpteen.storage.store import refuse_finished
from umpteen.tagging.channels import (
    ROWS,
    TERMS,
    Channel,
    add_terms,
    held_out_share,
    leave_out,
    train_channels,
)
from umpteen.tagging.concepts import CONCEPTS, LabelConcepts, name_concepts, open_vocabulary
from umpteen.tagging.label_terms import warn_of_strangers, with_label_terms
from umpteen.tagging.parameters import TaggerParameters
from umpteen.tagging.storage import describe_features
from umpteen.tagging.targets import check_rows, encode
from umpteen.text.features import TextFeatures, restore
from umpteen.text.with_terms import WithTerms
from umpteen.trained.model import TrainedModel


def prepare(
    tagger: TaggerParameters, texts: Any, labels: Iterable[Iterable[str]], model_dir: PathLike | None
) -> tuple[TextFeatures | None, Dataset]:
    """See `Tagger.prepare`."""
    method = tagger.check()
    features = tagger.make_features()
    vocabulary = open_vocabulary(tagger.vocabulary)
    concepts: list[str] = []
    if vocabulary is not None:
        labels = name_concepts(vocabulary, labels)
        if tagger.find_channels() or (method is not None and method.takes_label_terms):
            concepts = vocabulary.names_in_use()  # concepts without texts are labels too
    names, Y = encode(labels, concepts)
    if method is None and tagger.tune and tagger.features is None:
        known = read_choice(model_dir, first_fold(model_dir))
        if known is None:
            texts = list(texts)
            check_rows(len(texts), Y.shape[0])
            features, X = choose_features(texts, Y, parse_budget(tagger.budget), tagger.seed)
            return features, Dataset(X, Y, names)
        features = restore(known.features)
    if tagger.find_channels():
        texts = list(texts)  # read by several
    X = as_csr(texts, "texts") if features is None else features.fit_transform(texts)
    check_rows(X.shape[0], Y.shape[0])
    channels = _channels(tagger, features, Y)
    if channels:
        if model_dir is not None and is_url(model_dir):
            raise ModelError(f"{model_dir}: a blend of channels must be saved to a directory, but this is a URL")
        assert features is not None
        assert vocabulary is not None
        X = weigh_dense(features, X, Y, tagger.seed)
        if TERMS in channels:
            listed = [[names[i] for i in Y.indices[a:b]] for a, b in pairwise(Y.indptr.tolist())]
            features, X = add_terms(features, X, texts, listed, vocabulary, tagger.threads)
        return features, Dataset(X, Y, names)
    if method is not None:
        warn_of_strangers(with_label_terms(method, vocabulary, features, names), vocabulary, names)
    return features, Dataset(weigh_dense(features, X, Y, tagger.seed), Y, names)


def _channels(tagger: TaggerParameters, base: TextFeatures | None, Y: Csr) -> tuple[str, ...]:
    """The channels of a tagger that these texts can have."""
    channels = tagger.find_channels()
    if not channels:
        return ()
    n_labelled = int((np.diff(Y.indptr) > 0).sum())
    share = held_out_share(tagger.calibration, Y.shape[0])
    found = leave_out(channels, tagger.channels is not None, base, n_labelled, share)
    return () if found == (ROWS,) else found


def choose(
    tagger: TaggerParameters,
    data: Dataset,
    model_dir: PathLike | None,
    threads: int | None = None,
    *,
    weighs_rows: bool = False,
    features: TextFeatures | None = None,
) -> Choice:
    """See `Tagger.choose`."""
    tagger.check()
    X = as_csr(data.X[:, : features.n_words], "X") if isinstance(features, WithTerms) else data.X  # rows alone
    known = read_choice(model_dir, first_fold(model_dir))
    trainings = 2 if tagger.find_channels() else 1 + len(draw_held_out(data.Y, tagger.calibration, tagger.seed))
    return known or choose_method(
        X, data.Y, tagger.budget, tagger.threads if threads is None else threads, seed=tagger.seed,
        trainings=trainings, tune=tagger.tune, weighs_rows=weighs_rows,
    )  # fmt: skip


def train(
    tagger: TaggerParameters,
    features: TextFeatures | None,
    data: Dataset,
    model_dir: PathLike | None,
    choice: Choice | None,
    *,
    fields: Fields | None,
    resume: bool,
    progress: bool | Listener,
    row_costs: NDArray[np.float32] | None = None,
) -> tuple[TrainedModel, Choice | None, list[Channel]]:
    """See `Tagger.train`. Returns the model and, with method="auto", what was chosen; and what became of channels."""
    method = tagger.check()
    header, parts = describe_features(
        features, tagger.calibration, int(tagger.seed), fields, in_memory=model_dir is None
    )
    vocabulary = open_vocabulary(tagger.vocabulary)
    if vocabulary is not None:
        parts = parts | {CONCEPTS: LabelConcepts.make(vocabulary, data.label_names or ()).to_part()}
    if model_dir is not None and not is_url(model_dir):
        refuse_finished(model_dir)
    chosen = None
    channels: tuple[str, ...] = ()
    if vocabulary is not None and features is not None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # `prepare` has said it
            base = features.base if isinstance(features, WithTerms) else features
            channels = _channels(tagger, base, data.Y)
    if channels and row_costs is not None:
        raise ParamError(
            'sample_weight goes with one method, but these are channels; name a method, or channels="rows"'
        )
    if method is None and (not channels or ROWS in channels):
        choice = choice or choose(
            tagger, data, model_dir, weighs_rows=row_costs is not None, features=features
        )  # fmt: skip
        if tagger.tune and tagger.features is None:
            choice = choice.with_features(features)
        method, chosen = choice.method, {ENTRY: choice.as_header()}
        header |= chosen
        if choice.blend is not None:  # has probabilities of its own
            return train_choice(
                choice, data.X, data.Y, model_dir, label_names=data.label_names, progress=progress,
                extra_header=header, extra_parts=parts, keep_rows=tagger.keep_rows, row_costs=row_costs,
            ), choice, []  # fmt: skip
    else:
        choice = None
    if channels:
        assert features is not None
        assert vocabulary is not None
        share = held_out_share(tagger.calibration, data.Y.shape[0])
        model, found = train_channels(
            channels, method, features, data, vocabulary, model_dir, share=share, seed=int(tagger.seed),
            header=header, parts=parts, progress=progress,
        )  # fmt: skip
        return model, choice, found
    assert method is not None
    method = with_label_terms(method, vocabulary, features, data.label_names or ())
    check_keep_rows(method, tagger.keep_rows)
    return train_calibrated(
        type(method)(**method.get_params()), data.X, data.Y, model_dir, calibration=tagger.calibration,
        seed=tagger.seed, as_new=None if features is None else features.as_new, fold_header=chosen,
        row_costs=row_costs, label_names=data.label_names, resume=resume, progress=progress, extra_header=header,
        extra_parts=parts, keep_rows=tagger.keep_rows,
    ), choice, []  # fmt: skip
