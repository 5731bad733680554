"""Why models are not exported to ONNX: which of its operators take a sparse tensor, and what dense ones would hold.

pip install onnx
python benchmarks/onnx_operators.py
"""

from __future__ import annotations

from typing import Any

from common import run_parts, table

#: Labels and features of data sets with one weight for each pair, in 32 bits.
SETS = {"EURLex-4K": (3_993, 5_000), "Amazon-670K": (670_091, 135_909)}


def types_of(operator: Any) -> set[str]:
    """The types that an operator's inputs may have."""
    return {kind for given in operator.inputs for kind in given.types}


def study() -> str:
    import onnx
    import onnx.defs

    operators = onnx.defs.get_all_schemas()
    sparse = [operator.name for operator in operators if any("sparse" in kind for kind in types_of(operator))]
    sizes = [[name, f"{rows:,}", f"{columns:,}", size(rows, columns)] for name, (rows, columns) in SETS.items()]
    return (
        f"onnx {onnx.__version__} has {len(operators)} operators. Those with an input that may be sparse: "
        f"{', '.join(sparse) or 'none'}.\n\n"
    ) + table(["data set", "labels", "features", "dense weights"], sizes)


def size(rows: int, columns: int) -> str:
    n_bytes = 4 * rows * columns
    return f"{n_bytes / 1e9:,.0f} GB" if n_bytes >= 1e9 else f"{n_bytes / 1e6:,.0f} MB"


PARTS = {"operators": ("Operators that take sparse tensors", study)}

if __name__ == "__main__":
    run_parts("onnx_operators", "ONNX and sparse weights", PARTS)
