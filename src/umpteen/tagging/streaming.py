"""A stream of Arrow in, with texts; the same out, with the labels of each: a batch is read when one is asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from umpteen.data.arrow import import_arrow, open_arrow
from umpteen.data.tables.columns import refuse_twins
from umpteen.data.tables.fields import Fields
from umpteen.errors import DataError

#: The column that is added.
SUGGESTIONS = "suggestions"
#: Texts that are labelled at a time.
_ROWS_AT_ONCE = 1 << 12

Suggest = Callable[[list[str]], Sequence[Sequence[tuple[str, float]]]]


def stream_suggestions(source: Any, fields: Fields, suggest: Suggest) -> Any:
    """A RecordBatchReader of the rows of a table or stream, with a column of what `suggest` says of their texts."""
    pyarrow = import_arrow("the source")
    rows = open_arrow(source, "the source")
    if not hasattr(rows, "schema"):
        raise DataError("the source must be a table or a stream of Arrow, but is a column")
    refuse_twins(rows.schema.names, "the source")
    if SUGGESTIONS in rows.schema.names:
        raise DataError(f"the source must not have a column {SUGGESTIONS!r}, which is added, but has one")
    fields = fields.check_columns(rows.schema.names, "the source")
    hit = pyarrow.struct([("label", pyarrow.string()), ("probability", pyarrow.float32())])
    schema = rows.schema.append(pyarrow.field(SUGGESTIONS, pyarrow.list_(hit)))

    def label(batch: Any, first: int) -> Any:
        records = batch.select(fields.names).to_pylist()
        texts = [fields.read_texts(record, f"row {number}") for number, record in enumerate(records, first)]
        found = suggest(texts)
        ends = np.cumsum([0, *map(len, found)])
        hits = [pair for pairs in found for pair in pairs]
        columns = [[label for label, _ in hits], [probability for _, probability in hits]]
        pairs = pyarrow.StructArray.from_arrays(
            [pyarrow.array(column, kind.type) for column, kind in zip(columns, hit, strict=True)], fields=list(hit)
        )
        lists = pyarrow.ListArray.from_arrays(pyarrow.array(ends, pyarrow.int32()), pairs)
        return pyarrow.RecordBatch.from_arrays([*batch.columns, lists], schema=schema)

    def batches() -> Iterator[Any]:
        n_read = 0
        for batch in rows:
            for begin in range(0, batch.num_rows, _ROWS_AT_ONCE):
                yield label(batch.slice(begin, _ROWS_AT_ONCE), n_read + begin)
            n_read += batch.num_rows

    return pyarrow.RecordBatchReader.from_batches(schema, batches())
