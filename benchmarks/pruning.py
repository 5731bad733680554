"""What pruning costs and saves on EURLex-4K: Δ against P@k and model size (the paper's Fig 5), and how large the
weights are to begin with (its Fig 2).

    python benchmarks/pruning.py

Each model is trained once, keeping every weight, and then pruned by a ladder of Δ.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
from common import at_k, plotting, read, run_parts, save_drawing, table
from common import measure as score

import umpteen

MODELS = {
    "L2": umpteen.DiSMEC(prune=0),
    "L1": umpteen.DiSMEC(prune=0, penalty="l1"),
}
LADDER = [0, 0.001, 0.002, 0.005, 0.01, 0.02, 0.03, 0.05, 0.07, 0.1, 0.15, 0.2, 0.3, 0.5]
DEFAULT = umpteen.DiSMEC.param_defaults()["prune"]
KS = (1, 3, 5)
BINS = np.logspace(-8, 1, 91)


def study() -> str:
    train, test = read("EURLex-4K")
    curves, shares, texts = {}, {}, []
    with tempfile.TemporaryDirectory() as temporary:
        for name, method in MODELS.items():
            model = method.fit(train.X, train.Y, Path(temporary) / name)
            curves[name] = prune_by_ladder(model, train, test, Path(temporary))
            shares[name] = weigh(model)
            texts.append(describe(name, model, curves[name]))
        trained = umpteen.DiSMEC().fit(train.X, train.Y, Path(temporary) / "trained")
        texts.append(
            f"Trained with prune={DEFAULT} instead: {in_words(measure(trained, train, test))}. "
            "Weights within 2^-11 of Δ may fall on its other side where they are pruned after 16-bit rounding."
        )
    draw(curves, shares)
    return "\n\n".join([*texts, "![Δ against P@k and model size, and a histogram of the weights](pruning.svg)"])


def prune_by_ladder(model, train, test, place: Path) -> list[dict[str, float]]:
    curve = []
    for delta in LADDER:
        with tempfile.TemporaryDirectory(dir=place) as temporary:
            pruned = model.pruned(delta, Path(temporary) / "pruned")
            curve.append({"delta": delta} | measure(pruned, train, test))
    return curve


def measure(model, train, test) -> dict[str, float]:
    sizes = {
        "weights": model.model_.scorer.nnz,
        "bytes": sum(part.n_bytes for part in model.model_.scorer.to_parts()),
    }
    return {**score(model, test, train), **sizes}


def weigh(model) -> np.ndarray:
    """How many weights fall into each bin, by size."""
    counts = np.zeros(len(BINS) - 1)
    for shard in model.model_.scorer.shards:
        counts += np.histogram(np.abs(shard.to_weights()[0].data), BINS)[0]
    return counts


def describe(name: str, model, curve: list[dict[str, float]]) -> str:
    n_cells = model.n_labels_ * model.n_features_in_
    rows = [
        [f"{at['delta']:g}", f"{at['weights']:,}", f"{at['weights'] / curve[0]['weights']:.1%}",
         f"{at['weights'] / model.n_labels_:,.0f}", f"{at['bytes'] / 1e6:.2f} MB",
         at_k(at), at_k(at, "PSP", (1, 5))]
        for at in curve
    ]  # fmt: skip
    header = ["Δ", "weights", "of all", "per label", "model", "P@1 / 3 / 5", "PSP@1 / 5"]
    filled = curve[0]["weights"] / n_cells
    return (
        f"{name} ({model!r}), {model.n_labels_:,} labels × {model.n_features_in_:,} features, of which {filled:.0%} "
        f"have a weight before pruning; 16-bit weights.\n\n{table(header, rows)}"
    )


def in_words(at: dict[str, float]) -> str:
    return f"{at['weights']:,} weights, {at['bytes'] / 1e6:.2f} MB, P@1 / 3 / 5 {at_k(at)}"


def draw(curves: dict[str, list[dict[str, float]]], shares: dict[str, np.ndarray]) -> None:
    figure, (accuracy, size, histogram) = plotting().subplots(1, 3, figsize=(11, 3.3), layout="constrained")
    for (name, curve), style in zip(curves.items(), ("-", "--", ":"), strict=False):
        deltas = [at["delta"] for at in curve[1:]]
        for k, colour in zip(KS, ("tab:blue", "tab:orange", "tab:green"), strict=True):
            values = [at[f"P@{k}"] for at in curve[1:]]
            accuracy.plot(deltas, values, style, color=colour, marker=".", label=f"{name}, P@{k}")
        size.plot(deltas, [at["bytes"] / 1e6 for at in curve[1:]], style, color="tab:purple", marker=".",
                  label=f"{name}, size and weights")  # fmt: skip
        share = shares[name] / shares[name].sum() * 100
        histogram.stairs(share, BINS, color="tab:purple", fill=style == "-", alpha=0.6, linestyle=style)
    accuracy.set(title="Accuracy", xlabel="Δ", ylabel="%", xscale="log")
    size.set(title="Model size", xlabel="Δ", ylabel="MB", xscale="log", yscale="log")
    size.yaxis.set_major_formatter("{x:g}")
    histogram.set(title="Weights before pruning", xlabel="|w|", ylabel="% of weights in a bin", xscale="log")
    for axes in (accuracy, size, histogram):
        axes.axvline(DEFAULT, color="grey", linewidth=1, linestyle=(0, (2, 2)))
    size.plot([], [], color="grey", linewidth=1, linestyle=(0, (2, 2)), label=f"Δ = {DEFAULT}, the default")
    figure.legend(loc="outside lower center", ncols=5, frameon=False)
    save_drawing(figure, "pruning.svg")


PARTS = {"eurlex": ("DiSMEC on EURLex-4K", study)}

if __name__ == "__main__":
    run_parts("pruning", "Pruning", PARTS)
