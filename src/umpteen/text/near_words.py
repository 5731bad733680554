"""The words whose vectors are nearest to a text's: what a dense vector means, as far as words can tell."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from umpteen.text.vectors import to_unit_length

#: Words that may be named: frequent ones, which a reader knows and which are quickly compared.
MOST_NAMED = 5000
_SHOWN = 3


class NearWords:
    """Some words and their vectors."""

    def __init__(self, words: Sequence[str], vectors: NDArray[np.float16]) -> None:
        self._words = list(words)
        self._vectors = to_unit_length(np.asarray(vectors, np.float32))

    def find(self, text: str, vector: NDArray[np.float32]) -> list[str]:
        """The words nearest to a text's vector that the text does not have."""
        if not vector.any():
            return []
        likeness = self._vectors @ vector
        own = text.lower()
        ranked = (self._words[i] for i in np.argsort(-likeness, kind="stable").tolist() if likeness[i] > 0)
        found = []
        for word in ranked:
            if word not in own and word not in found:
                found.append(word)
                if len(found) == _SHOWN:
                    break
        return found
