"""JSON in and out. Names are those of Annif's REST API where they mean the same."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from umpteen.serving.problems import Problem
from umpteen.serving.wording import explain

T = TypeVar("T")

Features = dict[Annotated[int, Meta(ge=0, lt=2**31)], float] | list[float]
TopK = Annotated[int, Meta(ge=1)] | float | Literal["auto"]  # in JSON Schema 5.0 is an integer too
Threshold = Annotated[float, Meta(ge=0, le=1)] | Literal["micro", "macro"]
TextField = Annotated[str, Meta(description="The text, for models trained on texts.")] | UnsetType
FeaturesField = (
    Annotated[
        Features,
        Meta(
            description="The row, for models trained on numbers: values by id, or one for each feature.",
            examples=[{"17": 0.5, "204": 1.2}],
        ),
    ]
    | UnsetType
)
RecordField = (
    Annotated[
        dict[str, str | None],
        Meta(
            description="The fields of a record instead of a text, for models that remember the columns they were "
            "trained on; /v1/models names them. Other fields are ignored."
        ),
    ]
    | UnsetType
)
ModelField = Annotated[str, Meta(description="Id of the model; by default the server's first.")] | None


WordsField = Annotated[int, Meta(description="Words in the text.")] | UnsetType
UnknownField = Annotated[int, Meta(description="Words in the text that the model does not know.")] | UnsetType
NoteField = Annotated[str, Meta(description="Why a text got no label.")] | UnsetType


class Document(Struct, forbid_unknown_fields=True, kw_only=True):
    """A text, a record, or a row of numbers for a model trained on numbers."""

    text: TextField = UNSET
    record: RecordField = UNSET
    features: FeaturesField = UNSET
    document_id: Annotated[str, Meta(description="Returned with the results.")] | None = None


class SuggestOptions(Struct, forbid_unknown_fields=True, kw_only=True):
    """Options that requests for suggestions share."""

    model: ModelField = None
    top_k: (
        Annotated[
            TopK,
            Meta(
                description='As many labels, however unlikely; or "auto", as many for each text as maximise the '
                "expected F1. By default the labels that are likely enough."
            ),
        ]
        | None
    ) = None
    threshold: (
        Annotated[
            Threshold,
            Meta(
                description="Leave out labels with a lower score; or below the thresholds learned for the best micro "
                "or macro F1. Without top_k the default is micro; without calibration 0.5, or as many labels as "
                "training rows had if scores only rank."
            ),
        ]
        | None
    ) = None
    exclude: Annotated[list[str], Meta(description="Labels to leave out; the others move up.")] = []
    include: Annotated[list[str], Meta(description="Give only these labels.")] | None = None
    language: (
        Annotated[
            str,
            Meta(
                min_length=1,
                max_length=35,
                description="The language of names, such as fi, for models with a vocabulary.",
            ),
        ]
        | None
    ) = None
    min_known: Annotated[
        float,
        Meta(ge=0, le=1, description="Give no label to a text with a smaller share of words the model knows."),
    ] = 0.0

    def __post_init__(self) -> None:
        if isinstance(self.top_k, float):
            if not self.top_k.is_integer() or self.top_k < 1:
                raise ValueError("Expected `int` >= 1 - at `$.top_k`")  # in msgspec's words, as for other numbers
            self.top_k = int(self.top_k)


class SuggestRequest(SuggestOptions, forbid_unknown_fields=True, kw_only=True):
    text: TextField = UNSET
    record: RecordField = UNSET
    features: FeaturesField = UNSET


class BatchRequest(SuggestOptions, forbid_unknown_fields=True, kw_only=True):
    documents: list[Document]


class ExplainRequest(Struct, forbid_unknown_fields=True, kw_only=True):
    model: ModelField = None
    text: TextField = UNSET
    record: RecordField = UNSET
    features: FeaturesField = UNSET
    label: Annotated[str, Meta(description="By default the label ranked first.")] | None = None


#: Most labels that one correction may name in a list, and most characters of a label's name.
MOST_NAMES, LONGEST_NAME = 200, 500
LabelName = Annotated[str, Meta(min_length=1, max_length=LONGEST_NAME)]


class Correction(Struct, forbid_unknown_fields=True, kw_only=True):
    """A text or a record, and either all its labels or what was found of some."""

    text: TextField = UNSET
    record: RecordField = UNSET
    labels: Annotated[list[LabelName], Meta(description="All labels that are right.")] | UnsetType = UNSET
    accepted: Annotated[list[LabelName], Meta(description="Labels that are right.")] | UnsetType = UNSET
    rejected: Annotated[list[LabelName], Meta(description="Labels that are wrong.")] | UnsetType = UNSET
    added: Annotated[list[LabelName], Meta(description="Labels that were missing.")] | UnsetType = UNSET


class LearnRequest(Struct, forbid_unknown_fields=True, kw_only=True):
    model: ModelField = None
    corrections: list[Correction]


class LearnResponse(Struct):
    corrections: Annotated[int, Meta(description="How many there were.")]
    without_words: Annotated[int, Meta(description="How many of them nothing was learnt from.")]
    new_labels: Annotated[list[str], Meta(description="Labels that have joined the model, the first 100.")]
    unknown_rejected: Annotated[list[str], Meta(description="Rejected labels that the model does not have.")]
    version: Annotated[str, Meta(description="The new model, which the server uses some seconds later.")]


SupportField = (
    Annotated[
        int,
        Meta(
            ge=0,
            description="On how many held-out predictions the probability rests: those with about the same score. Of "
            "calibrated models.",
        ),
    ]
    | UnsetType
)
UriField = Annotated[str, Meta(description="Of models with a vocabulary, where the concept has one.")] | UnsetType
NotationField = Annotated[str, Meta(description="As uri.")] | UnsetType


class Suggestion(Struct, omit_defaults=True):
    label: str
    label_id: int
    score: Annotated[float, Meta(ge=0, le=1, description="A probability if the model is calibrated.")]
    support: SupportField = UNSET
    uri: UriField = UNSET
    notation: NotationField = UNSET


class SuggestResponse(Struct, omit_defaults=True):
    results: list[Suggestion]
    words: WordsField = UNSET
    unknown_words: UnknownField = UNSET
    note: NoteField = UNSET


class BatchResult(Struct, omit_defaults=True):
    document_id: str | None
    results: list[Suggestion]
    words: WordsField = UNSET
    unknown_words: UnknownField = UNSET
    note: NoteField = UNSET


class Word(Struct):
    word: str
    contribution: float


class Span(Struct):
    start: Annotated[int, Meta(description="In characters (Unicode code points).")]
    end: int
    contribution: float


class AccountLine(Struct):
    text: str
    value: float
    kind: Annotated[str, Meta(description='"word", "rest" (all other words), "base" or "sum".')]


class ExplainResponse(Struct, omit_defaults=True):
    label: str
    label_id: int
    score: Annotated[float, Meta(description="In [0, 1], as in suggestions.")]
    family: Annotated[str, Meta(description="The model's family.")]
    meaning: Annotated[str, Meta(description="What the contributions mean, in a sentence.")]
    raw_score: float | None
    base: Annotated[float, Meta(description="The part of the score that does not come from words.")]
    account: Annotated[
        list[AccountLine],
        Meta(description="The largest contributions, the others together, the base, and their sum."),
    ]
    words: list[Word]
    spans: list[Span]
    unknown: Annotated[list[str], Meta(description="Words that the model does not know.")]
    votes: Annotated[list[dict[str, Any]], Meta(description="Trees or neighbours that voted, strongest first.")]
    note: Annotated[str, Meta(description="The votes in a few words; empty if nothing votes.")]
    support: SupportField = UNSET
    terms: Annotated[
        list[dict[str, Any]],
        Meta(
            description="Of models that look for terms of a vocabulary, the term of the label that the text has: its "
            "text, language, kind and places, [start, end] of each word."
        ),
    ] = []
    text: (
        Annotated[str, Meta(description="What the places of spans refer to: the fields of the record, joined.")]
        | UnsetType
    ) = UNSET


class TableCursor(Struct):
    """Where a table continues: parameters of the next request."""

    header_bytes: Annotated[int, Meta(description="So many bytes of the table begin the next body too.")]
    encoding: str
    delimiter: str
    line: int


class TableResponse(Struct, omit_defaults=True):
    table: Annotated[str, Meta(description="The rows with their labels, as CSV; the first piece has the header.")]
    consumed: Annotated[
        int, Meta(description="Bytes of the rows in it; the next body continues after them. 0: send a longer piece.")
    ]
    rows: int
    labels: Annotated[int, Meta(description="How many labels they got.")]
    without: Annotated[int, Meta(description="How many of the rows got none.")]
    next: TableCursor | UnsetType = UNSET


class LabelHit(Struct, omit_defaults=True):
    label: str
    label_id: int
    count: Annotated[int, Meta(description="Number of training rows with this label.")]
    uri: UriField = UNSET
    notation: NotationField = UNSET
    term: (
        Annotated[str, Meta(description="Another name of the label, in any language, that was found.")] | UnsetType
    ) = UNSET


class LabelsResponse(Struct):
    results: list[LabelHit]


class ModelSummary(Struct):
    model_id: str
    method: str
    family: str
    input: Literal["text", "features"]
    n_labels: int
    n_features: int
    n_train_rows: int
    calibrated: bool
    modification_time: str
    version: Annotated[str, Meta(description="A hash of the model; every answer has it as X-Model-Version.")]
    directory: Annotated[str, Meta(description="Name of the directory it was opened from.")]
    learns: Annotated[bool, Meta(description="Whether corrections can improve it; see /v1/learn.")]
    fields: (
        Annotated[
            list[str], Meta(description="Fields of a record, as far as the model knows them; title^2 counts twice.")
        ]
        | None
    )


class Limits(Struct):
    max_body_bytes: int
    max_characters: int
    max_documents: int
    max_top_k: int


class ModelsResponse(Struct):
    models: list[ModelSummary]
    limits: Limits
    learn: Annotated[bool, Meta(description="Whether the server takes corrections, at /v1/learn.")]


class ModelFacts(ModelSummary):
    bytes: int
    parameters: dict[str, Any]
    features: Annotated[
        dict[str, Any], Meta(description="How texts become numbers; empty for models trained on numbers.")
    ]
    metrics: Annotated[dict[str, Any], Meta(description="As kept by `umpteen evaluate --keep`.")] | None
    most_frequent: list[LabelHit]
    labels_without_rows: int
    umpteen_version: str


class FailedReload(Struct):
    model_id: str
    reason: Annotated[str, Meta(description="As in umpteen_reload_failing.")]
    message: str


class Status(Struct, omit_defaults=True):
    status: str
    failed_reloads: Annotated[
        list[FailedReload], Meta(description="Models whose newest version cannot be used; the previous one answers.")
    ] = []
    watcher_stuck: Annotated[
        bool, Meta(description="Whether the check for changed models and tokens hangs, so that none is seen.")
    ] = False


class ErrorDetail(Struct, omit_defaults=True):
    type: str
    message: str
    field: Annotated[str, Meta(description="The field that is wrong, such as documents[0].text.")] | UnsetType = UNSET


class ErrorResponse(Struct):
    error: ErrorDetail


def decode(body: bytes, decoder: msgspec.json.Decoder[T]) -> T:
    """A request's body, or a problem that names what is wrong with it."""
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        inner = Correction if decoder.type is LearnRequest else Document
        fault = explain(str(error), decoder.type.__struct_fields__, inner.__struct_fields__)  # type: ignore[attr-defined]
        raise Problem(422, "invalid_request", fault.message, field=fault.field) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Problem(400, "invalid_json", f"the body must be JSON, but is not: {error}"[:300]) from None
