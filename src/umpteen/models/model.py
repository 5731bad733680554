"""What a method needs of the family of models it trains."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from umpteen.data.matrix import Csr
from umpteen.models.store import Part


class Model(Protocol):
    """Trained shards that can score rows."""

    family: str

    @classmethod
    def from_parts(cls, parts: Sequence[Part], n_features: int, n_labels: int) -> Self:
        """A model over shards as they lie in their files; raises ModelCorruptError for what cannot be used."""
        ...

    def to_parts(self) -> list[Part]:
        """The shards again, in order."""
        ...

    def describe(self) -> dict[str, Any]:
        """Facts for `umpteen inspect`."""
        ...

    def predict_topk(
        self,
        X: Csr,
        top_k: int = 5,
        *,
        exclude: ArrayLike | None = None,
        include: ArrayLike | None = None,
        threads: int | None = None,
    ) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """The best labels of each row of a preprocessed X, best first, and their scores; -1 and -inf pad."""
        ...
