"""What transformers return: sparse rows, or a table, as scikit-learn's `set_output` has it."""

from __future__ import annotations

import importlib
from typing import Any, Self

from umpteen.data.matrix import Csr
from umpteen.errors import ParamError


class SetsOutput:
    """Rows as a CSR matrix or, if asked for, as a table."""

    def get_feature_names_out(self, input_features: Any = None) -> Any:
        raise NotImplementedError

    def set_output(self, *, transform: str | None = None) -> Self:
        """What `transform` and `fit_transform` return: "default", a CSR matrix, or "pandas", a table with a sparse
        column for each term."""
        if transform not in (None, "default", "pandas"):
            raise ParamError(
                f"transform must be one of default, pandas, since others lack sparse columns, but is {transform!r}"
            )
        if transform is not None:
            self._sklearn_output_config = {"transform": transform}
        return self

    def _as_output(self, X: Csr) -> Any:
        if getattr(self, "_sklearn_output_config", {}).get("transform") != "pandas":
            return X
        pandas: Any = importlib.import_module("pandas")
        return pandas.DataFrame.sparse.from_spmatrix(X, columns=self.get_feature_names_out())
