"""New words for a vocabulary: their columns come after the old ones, which stay as they are.

    idf(new term) = 1 + ln((n + m + 1) / (rows with the term + 1))

with n the rows the vocabulary was counted on, none of which has the term as far as it knows, and m the new rows.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from umpteen.text.counting import Counting, row_limit
from umpteen.text.tfidf import Tfidf

#: A vocabulary at most doubles at a time; a small one may grow by so many terms.
LEAST_ROOM = 10_000


def grow_vocabulary(tfidf: Tfidf, texts: Iterable[str]) -> Tfidf:
    """A vocabulary with the terms of texts that it lacks; the same object if there are none.

    Single words all enter, and of longer terms and runs of characters those with `min_df` rows among the texts, or,
    where it is a share, of all rows. `max_df` is that of the texts: a vocabulary that left out "the" would else take
    it for a very rare word.
    With `max_features` or `hashing` there is no room, and nothing changes.

    Examples
    --------
    >>> tfidf = Tfidf().fit(["feed a cat", "feed a dog"])
    >>> list(grow_vocabulary(tfidf, ["feed a goldfish"]).feature_names_)
    ['cat', 'dog', 'feed', 'goldfish']
    """
    tfidf._check_fitted()
    if tfidf.hashing is not None or tfidf.max_features is not None:
        return tfidf
    counting = Counting(tfidf, keep_rows=False)
    counting.add(texts)
    n_old, n_new = tfidf.n_rows_, counting.n_rows
    data, ends, slots, rows_with = counting.finish_terms(1, row_limit(tfidf.max_df, n_new))
    if not len(ends):
        return tfidf
    begins = np.concatenate([[0], ends[:-1]])
    raw = data.tobytes()
    terms = [raw[begin:end] for begin, end in zip(begins.tolist(), ends.tolist(), strict=True)]
    wanted = rows_with >= row_limit(tfidf.min_df, n_old + n_new)
    if tfidf.analyzer == "word":
        wanted |= np.array([b" " not in term for term in terms])
    new = np.flatnonzero(wanted & (tfidf._vectorizer.find(terms) < 0))
    room = max(tfidf.n_features_, LEAST_ROOM)
    new = np.sort(new[np.argsort(-rows_with[new], kind="stable")[:room]])
    if not len(new):
        return tfidf
    grown = Tfidf(**tfidf.get_params())
    grown._set_arrays(
        _append_terms(tfidf, [terms[i] for i in new], _hashes(slots, len(ends))[new], rows_with[new], n_new), n_old
    )
    return grown


def _append_terms(
    tfidf: Tfidf, terms: list[bytes], hashes: NDArray[np.uint32], rows_with: NDArray[Any], n_new: int
) -> dict[str, NDArray[Any]]:
    """The arrays of a vocabulary and these terms."""
    old = tfidf._arrays
    ends = np.cumsum([len(term) for term in terms], dtype=np.int64) + len(old["data"])
    arrays = {
        "data": np.concatenate([old["data"], np.frombuffer(b"".join(terms), np.uint8)]),
        "ends": np.concatenate([old["ends"], ends]),
        "slots": _make_slots(np.concatenate([_hashes(old["slots"], len(old["ends"])), hashes])),
    }
    if tfidf.use_idf:
        one = float(tfidf.smooth_idf)
        idf = np.log((tfidf.n_rows_ + n_new + one) / (rows_with + one)) + 1
        arrays["idf"] = np.concatenate([old["idf"], idf])
    return arrays


def _hashes(slots: NDArray[np.uint32], n_terms: int) -> NDArray[np.uint32]:
    """The hash of each term, from the table that finds it."""
    hashes = np.zeros(n_terms, np.uint32)
    taken = slots[(slots[:, 1] > 0) & (slots[:, 1] <= n_terms)]
    hashes[taken[:, 1].astype(np.int64) - 1] = taken[:, 0]
    return hashes


def _make_slots(hashes: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """The open hash table of terms: each in the first free slot from its hash on; see tfidf.hpp."""
    n_slots = 1 << max(10, int(2 * len(hashes) - 1).bit_length())
    home = (hashes & np.uint32(n_slots - 1)).astype(np.int64)
    order = np.argsort(home, kind="stable")
    count = np.arange(len(order))
    place = np.maximum.accumulate(home[order] - count) + count
    slots = np.zeros((n_slots, 2), np.uint32)
    fits = place < n_slots
    slots[place[fits], 0] = hashes[order[fits]]
    slots[place[fits], 1] = order[fits] + 1
    at = 0
    for term in order[~fits].tolist():  # the run at the end goes on at the beginning
        while slots[at, 1]:
            at += 1
        slots[at] = hashes[term], term + 1
    return slots
