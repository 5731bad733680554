"""Dense vectors of texts as a part of a union: which encoder makes them, and how they are saved.

    "svd:256"                       from the corpus itself; text/svd.py
    "static:PATH"                   token vectors, averaged; text/static.py
    "sentence-transformers:PATH"    a sentence encoder; text/outside.py
    "NAME:ARGUMENT"                 what an installed package declares as an entry point of `umpteen.encoders`
    a function                      from a list of texts to an array with a row for each

The first two are held by the model. Of the others it keeps a fingerprint, and has to be opened with the encoder
again; but one that a package declares is found by its name, if it has an attribute `opens_by_name` that is True. It
says that nothing bad can come of an argument that a stranger's model names: no path is read, nothing is fetched.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal, Self, overload

import numpy as np

from umpteen.data.arrow import as_list
from umpteen.data.matrix import Csr, make_csr
from umpteen.errors import ModelCorruptError, ModelError, ModelFormatError, NotFittedError, ParamError
from umpteen.extensions import ENCODERS_GROUP, Registry, call_declared, declared, load_declared
from umpteen.params import Parameters, check_count
from umpteen.progress import Progress, listening, shown
from umpteen.storage.store import Part
from umpteen.text.outside import OutsideEncoder
from umpteen.text.static import StaticEncoder
from umpteen.text.svd import SvdEncoder
from umpteen.text.tfidf import Span, WordCounts
from umpteen.text.vectors import to_unit_length

#: Encoders that a model holds.
HELD: dict[str, type[SvdEncoder | StaticEncoder]] = {"svd": SvdEncoder, "static": StaticEncoder}
#: Encoders by name, those that installed packages declare included: called with what follows the colon.
ENCODERS = Registry(
    ENCODERS_GROUP,
    {
        "svd": "umpteen.text.svd:SvdEncoder",
        "static": "umpteen.text.static:StaticEncoder",
        "sentence-transformers": "umpteen.text.outside:SentenceEncoder",
    },
)
VARIABLE = "UMPTEEN_ENCODER"


def is_encoder(given: object) -> bool:
    """Whether something names an encoder, or is one."""
    return callable(given) or (isinstance(given, str) and given.partition(":")[0] in ENCODERS)


def open_encoder(given: Any, cache: str | Path | bool | None = None) -> SvdEncoder | StaticEncoder | OutsideEncoder:
    """The encoder that a name or a function stands for, not fitted."""
    if callable(given):
        return OutsideEncoder(name_of(given), given, cache)
    if not is_encoder(given):
        known = ", ".join(f"{name}:…" for name in ENCODERS)
        raise ParamError(f"encoder must be one of {known}, or a function, but is {given!r:.100}")
    kind, _, argument = given.partition(":")
    if kind in HELD:
        if cache:
            raise ParamError(f"cache is for encoders that a model does not hold, but encoder is {given!r:.100}")
        return HELD[kind](argument)
    if kind in ENCODERS.own:
        return OutsideEncoder(given, ENCODERS.load(kind)(argument), cache)
    return OutsideEncoder(given, call_declared(ENCODERS_GROUP, kind, argument), cache)


def name_of(encoder: Any) -> str:
    """What to call an encoder in messages and in a model."""
    if isinstance(encoder, str):
        return encoder
    kind = encoder if hasattr(encoder, "__qualname__") else type(encoder)
    return f"{kind.__module__}.{kind.__qualname__}"


class Encoding(Parameters):
    """Vectors of texts by an encoder, of unit length: a part of a `TfidfUnion`.

    Parameters
    ----------
    encoder
        "svd:256", "static:PATH", "sentence-transformers:PATH", the name of an encoder that an installed package
        declares, or a function that takes a list of texts and gives an array with a row for each.
    seed
        Seeds "svd".
    cache
        A file to keep vectors in, by the content of their texts, so that they are not computed twice, or True for
        one in the user's cache folder; for encoders that are not held by the model. By default the file that the
        environment variable UMPTEEN_VECTORS names, or none.
    threads
        How many threads to use; by default all cores. The result does not depend on it.

    Examples
    --------
    >>> from umpteen.text.union import TfidfUnion
    >>> X = TfidfUnion(["word", "svd:2"]).fit_transform(["herring quotas", "cod quotas", "herring soup"])
    >>> X.shape
    (3, 6)
    """

    name: ClassVar[str] = "encoding"
    analyzer: ClassVar[str] = "vector"
    hashing: ClassVar[None] = None
    of_characters: ClassVar[bool] = False
    smooth_idf: ClassVar[bool] = True
    norm: ClassVar[str] = "l2"

    def __init__(
        self,
        encoder: str | Callable[[list[str]], Any] = "svd:256",
        *,
        seed: int = 0,
        cache: str | Path | bool | None = None,
        threads: int | None = None,
    ) -> None:
        self.encoder = encoder
        self.seed = seed
        self.cache = cache
        self.threads = threads

    def validate(self) -> None:
        """Raises ParamError for a parameter that breaks its rule."""
        check_count("seed", self.seed, low=0)
        if not is_encoder(self.encoder) or (isinstance(self.encoder, str) and self.encoder.startswith("svd")):
            open_encoder(self.encoder, self.cache)

    # --- fit and transform --------------------------------------------------------------------------------------

    def fit(self, texts: Iterable[str], y: Any = None) -> Self:
        """Learns what the encoder learns from texts, if anything."""
        self.validate()
        texts = list(as_list(texts))
        self.encoder_ = open_encoder(self.encoder, self.cache).fit(texts, self.seed, self.threads)
        self.n_rows_ = len(texts)
        return self

    def fit_transform(self, texts: Iterable[str], y: Any = None) -> Csr:
        texts = list(as_list(texts))
        return self.fit(texts).transform(texts)

    @overload
    def transform(
        self, texts: Iterable[str], *, return_unknown: Literal[False] = False, threads: int | None = None
    ) -> Csr: ...
    @overload
    def transform(
        self, texts: Iterable[str], *, return_unknown: Literal[True], threads: int | None = None
    ) -> tuple[Csr, WordCounts]: ...
    def transform(
        self, texts: Iterable[str], *, return_unknown: bool = False, threads: int | None = None
    ) -> Csr | tuple[Csr, WordCounts]:
        """The vectors as rows in which every column has an entry, also one that is 0."""
        if not hasattr(self, "encoder_"):
            raise NotFittedError("this Encoding has no encoder yet; call fit first")
        texts = texts if isinstance(texts, list) else list(as_list(texts))
        threads = self.threads if threads is None else threads
        found = []
        step = self.encoder_.at_once
        with listening(len(texts) > step and shown(), "encoding texts") as listener:
            for begin in range(0, max(len(texts), 1), step):
                found.append(self.encoder_.encode(texts[begin : begin + step], threads))
                listener(Progress(min(begin + step, len(texts)), len(texts), 0, 0, "encoding texts"))
        vectors = to_unit_length(np.concatenate([vectors for vectors, _ in found]))
        n_rows, width = vectors.shape
        indices = np.tile(np.arange(width, dtype=np.int32), n_rows)
        X = make_csr(vectors.ravel(), indices, np.arange(n_rows + 1, dtype=np.int64) * width, vectors.shape)
        words = WordCounts(*(np.concatenate(counts) for counts in zip(*(words for _, words in found), strict=True)))
        return (X, words) if return_unknown else X

    # --- what a union asks of its parts ---------------------------------------------------------------------------

    @property
    def n_features_(self) -> int:
        return self.encoder_.width

    @property
    def idf_(self) -> Any:
        """That of terms which no text has: texts made up from the shares of terms have no vectors."""
        return np.full(self.n_features_, 1 + np.log(self.n_rows_ + 1))

    @property
    def feature_names_(self) -> Sequence[str]:
        return [f"{name_of(self.encoder)}[{i}]" for i in range(self.n_features_)]

    def as_new(self, seen: Csr, X: Csr) -> Csr:
        """Vectors as they are: a new text has one too."""
        return X

    def spans(self, text: str) -> list[Span]:
        return []

    def unknown_words(self, text: str) -> list[str]:
        return self.encoder_.unknown_words(text)

    def near_words(self, text: str) -> list[str]:
        """Words whose vectors are nearest to a text's, if the encoder knows words."""
        known = self.encoder_.near_words
        return [] if known is None else known.find(text, self.encoder_.encode([text], 1)[0][0])

    def typical_values(self, shares: Any) -> Any:
        return np.zeros(self.n_features_)

    def grown(self, texts: Iterable[str]) -> Self:
        """Itself: an encoder does not learn new words."""
        return self

    # --- saving -------------------------------------------------------------------------------------------------

    def to_part(self) -> Part:
        part = self.encoder_.to_part()
        settings = {"encoder": name_of(self.encoder), "seed": int(self.seed), "n_rows": self.n_rows_}
        return Part(part.arrays, part.scalars | {"encoding": settings})

    @classmethod
    def from_part(cls, part: Part, *, trust_pattern: bool = False, encoder: Any = None) -> Self:
        """What `to_part` has written; `encoder` is the one that the model does not hold."""
        settings = part.scalars.get("encoding")
        if not isinstance(settings, dict) or set(settings) != {"encoder", "seed", "n_rows"}:
            raise ModelCorruptError("an encoding must have an encoder, a seed and a number of rows")
        name, seed, n_rows = settings["encoder"], settings["seed"], settings["n_rows"]
        if not isinstance(name, str) or any(type(number) is not int or number < 0 for number in (seed, n_rows)):
            raise ModelCorruptError("an encoding must have the name of its encoder, and whole numbers")
        kind, _, argument = name.partition(":")
        if kind in HELD:
            try:
                made = cls(name, seed=seed)
                made.encoder_ = HELD[kind].from_part(argument, part)
            except (TypeError, ValueError) as error:
                if isinstance(error, ModelError):
                    raise
                raise ModelCorruptError(f"the encoder {name!r:.100} is invalid ({error})") from error
        else:
            made = cls(_need_encoder(name, encoder), seed=seed)
            outside = open_encoder(made.encoder)  # what is wrong with it is no fault of the model
            if not isinstance(outside, OutsideEncoder):
                raise ModelError(
                    f"the model was trained with encoder {name!r:.200}, but {made.encoder!r:.200} is given"
                )
            made.encoder_ = outside.check(part)
        made.n_rows_ = n_rows
        return made


def outside_encoders(part: Part | None) -> list[str]:
    """The names of encoders that a model needs and does not hold; of its features, which may be damaged."""
    kinds = [] if part is None else part.scalars.get("parts")
    settings = [one.get("encoding") for one in kinds if isinstance(one, dict)] if isinstance(kinds, list) else []
    names = [str(one.get("encoder")) for one in settings if isinstance(one, dict)]
    return [name for name in names if name.partition(":")[0] not in HELD]


def _need_encoder(name: str, given: Any) -> Any:
    given = given if given is not None else os.environ.get(VARIABLE)
    if given is None and _opens_by_name(name):
        return name
    if given is None:
        raise ModelFormatError(
            f"the model needs the encoder it was trained with, {name!r:.200}, and does not hold it; give it with "
            f"umpteen.load(…, encoder=…), or, on the command line, with the environment variable {VARIABLE}"
        )
    return given


def _opens_by_name(name: str) -> bool:
    """Whether an installed package declares the encoder, and says that any argument a model names is safe."""
    kind = name.partition(":")[0]
    try:
        return kind in declared(ENCODERS_GROUP) and (
            getattr(load_declared(ENCODERS_GROUP, kind), "opens_by_name", False) is True
        )
    except ParamError:
        return False
