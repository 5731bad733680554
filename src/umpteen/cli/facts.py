"""Facts about data that `train` and `inspect` print."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from umpteen.data.dataset import Dataset


def data_facts(data: Dataset) -> dict[str, Any]:
    """Counts that show whether a file was read as intended."""
    import numpy as np

    counts = np.sort(data.label_counts())[::-1]
    used = counts[counts > 0]
    rows = max(data.n_rows, 1)
    n_head = max(1, -(-data.n_labels // 10))
    return {
        "n_rows": data.n_rows,
        "n_features": data.n_features,
        "n_labels": data.n_labels,
        "features_per_row": round(data.X.nnz / rows, 2),
        "labels_per_row": round(data.Y.nnz / rows, 2),
        "rows_without_labels": int((np.diff(data.Y.indptr) == 0).sum()),
        "rows_without_features": int((np.diff(data.X.indptr) == 0).sum()),
        "labels_without_rows": int((counts == 0).sum()),
        "labels_on_every_row": int((counts == data.n_rows).sum()) if data.n_rows else 0,
        "rows_per_label_median": float(np.median(used)) if len(used) else 0.0,
        "rows_per_label_max": int(counts[0]) if len(counts) else 0,
        "share_of_top_tenth_of_labels": round(float(counts[:n_head].sum() / max(counts.sum(), 1)), 4),
        "X_bytes": int(data.X.data.nbytes + data.X.indices.nbytes + data.X.indptr.nbytes),
    }


def describe_data(data: Dataset) -> str:
    """The facts in two or three lines."""
    from umpteen.memory import format_bytes

    facts = data_facts(data)
    lines = [
        f"{facts['n_rows']:,} rows × {facts['n_features']:,} features × {facts['n_labels']:,} labels, "
        f"{format_bytes(facts['X_bytes'])} in memory",
        f"per row {facts['features_per_row']:,} features and {facts['labels_per_row']:,} labels; "
        f"per label {facts['rows_per_label_median']:,.0f} rows in the median, "
        f"{facts['rows_per_label_max']:,} at most; "
        f"the most frequent tenth of labels has {facts['share_of_top_tenth_of_labels']:.0%} of all",
    ]
    odd = [
        f"{facts[key]:,} {text}"
        for key, text in (
            ("rows_without_labels", "rows without labels"),
            ("rows_without_features", "rows without features"),
            ("labels_without_rows", "labels without rows, from which none of them is learned"),
            ("labels_on_every_row", "labels on every row: nothing shows when they are wrong"),
        )
        if facts[key]
    ]
    if odd:
        lines.append("note: " + "; ".join(odd))
    return "\n".join(lines)
