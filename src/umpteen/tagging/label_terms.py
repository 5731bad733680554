"""The words of labels as rows of a tagger's features, for methods that know labels by their words."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import numpy as np
import scipy.sparse as sp

from umpteen.data.matrix import Csr, as_csr
from umpteen.errors import ParamError
from umpteen.methods.base import Method
from umpteen.tagging.concepts import LabelConcepts
from umpteen.text.features import TextFeatures
from umpteen.text.tfidf import Tfidf
from umpteen.text.union import TfidfUnion
from umpteen.vocabulary.concepts import Vocabulary


def with_label_terms(
    method: Method, vocabulary: Vocabulary | None, features: TextFeatures | None, names: Sequence[str]
) -> Method:
    """A method with the words of these labels, if it asks for them and has none yet; else the method itself."""
    if not method.takes_label_terms or method.get_params()["label_terms"] is not None or features is None:
        return method
    if not is_of_one_text(features):
        raise ParamError(
            f"{method.name} needs features that are words or characters of one text, as labels have only one, but "
            f"features is {features!r:.100}"
        )
    assert isinstance(features, (Tfidf, TfidfUnion))
    terms = describe_labels(vocabulary, features, names)
    return type(method)(**method.get_params() | {"label_terms": terms})


def is_of_one_text(features: TextFeatures) -> bool:
    if isinstance(features, TfidfUnion):
        return features.fields is None and all(isinstance(part, Tfidf) for part in features.parts_)
    return isinstance(features, Tfidf)


def warn_of_strangers(method: Method, vocabulary: Vocabulary | None, names: Sequence[str]) -> None:
    """Warns if the texts have words for few labels, as those in another language would."""
    if not method.takes_label_terms or (terms := method.get_params()["label_terms"]) is None:
        return
    wordless = np.flatnonzero(as_csr(terms, "label_terms").getnnz(axis=1) == 0)
    if 2 * len(wordless) <= len(names):
        return
    language = f", {vocabulary.language!r}," if vocabulary is not None and vocabulary.language else ""
    warnings.warn(
        f"{len(wordless):,} of {len(names):,} labels, such as {names[wordless[0]]!r:.100}, have no word that is in "
        f"the texts; are these in the language of the labels{language} or do names need another form?",
        stacklevel=4,
    )


def describe_labels(vocabulary: Vocabulary | None, features: Tfidf | TfidfUnion, names: Sequence[str]) -> Csr:
    """n_labels x n_features: of each label the words of its name or, if it is a concept, of all its terms in the
    vocabulary's language; a word of several terms counts as in the one where it counts most."""
    owners, texts = [], []
    numbers = None if vocabulary is None else LabelConcepts.make(vocabulary, names).numbers.tolist()
    for label, name in enumerate(names):
        own = (
            [name]
            if vocabulary is None or numbers is None or numbers[label] < 0
            else _terms_of(vocabulary, numbers[label])
        )
        owners += [label] * len(own)
        texts += own
    rows = as_csr(features.transform(texts), "terms").tocoo()
    keys = np.asarray(owners, np.int64)[rows.row] * rows.shape[1] + rows.col
    order = np.lexsort((rows.data, keys))
    last = np.append(np.diff(keys[order]) > 0, True) if len(keys) else np.zeros(0, bool)  # of equal ones the largest
    kept = order[last]
    shape = (len(names), rows.shape[1])
    label, column = np.divmod(keys[kept], rows.shape[1])
    return as_csr(sp.csr_matrix((rows.data[kept], (label, column)), shape=shape), "terms")


def _terms_of(vocabulary: Vocabulary, concept: int) -> list[str]:
    found = [term.text for term in vocabulary.terms(concept) if vocabulary.speaks(term.language)]
    return found or [vocabulary.name(concept)]
