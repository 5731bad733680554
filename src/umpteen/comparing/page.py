"""A comparison as a page: one HTML file that opens offline, drawn from the result alone."""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import Any

import numpy as np

from umpteen.evaluation import report
from umpteen.evaluation.calibration import Reliability
from umpteen.evaluation.significance import ALPHA, N_FLIPS, N_RESAMPLES
from umpteen.memory import format_bytes

#: The metrics shown.
QUALITY = ("P@1", "P@3", "P@5", "nDCG@3", "nDCG@5", "PSP@1", "PSP@3", "PSP@5", "coverage@5")
#: Those whose intervals and tests are.
_SURE = ("P@1", "P@3", "P@5", "nDCG@5", "PSP@5")
Colours = dict[str, tuple[str, bool]]
_THIRD = (345, 270)  # three fit side by side


def render(result: dict[str, Any]) -> str:
    """The page."""
    done = [run for run in result["runs"] if run["status"] == "done"]
    colours = report.pick_colours([run["name"] for run in done])
    parts = [_introduction(result), _quality(result, done), _certainty(result, done)]
    if done:
        parts += [_cost(result, done), _failures(result), _bubbles(done, colours), _tail(result, done, colours)]
        parts += [_linear(done, colours), _forests(done, colours), _calibration(done), _mistakes(result)]
    else:
        parts.append(_failures(result))
    return report.page(f"{result['data']['name']}: methods compared", [part for part in parts if part])


def describe_machine(machine: dict[str, Any]) -> str:
    memory = f", {format_bytes(machine['memory_bytes'])}" if machine["memory_bytes"] else ""
    return f"{machine['cpu']}, {machine['cores']} cores{memory}, SIMD {machine['simd']}, {machine['system']}, " + (
        f"Python {machine['python']}"
    )


def describe_time(taken: str) -> str:
    return f"{taken[:10]} {taken[11:16]} UTC"


def find_best_runs(tests: dict[str, Any], metric: str) -> set[str]:
    """The best run and those that test rows cannot tell from it; none if that is all of them, or without tests."""
    if metric not in tests:
        return set()
    p = tests[metric]["p"]
    tied = {name for name, value in p.items() if value >= ALPHA}
    return {tests[metric]["best"], *tied} if len(tied) < len(p) else set()


def format_metric(run: dict[str, Any], metric: str) -> str:
    """A metric; of several runs, its mean and deviation."""
    if "over_runs" not in run:
        return f"{run['metrics'][metric]:.2f}"
    over = run["over_runs"]
    return f"{over['mean'][metric]:.2f} ± {over['deviation'][metric]:.2f}"


Cells = tuple[list[str], list[list[str]]]


def training_cells(done: Sequence[dict[str, Any]], baseline: str | None) -> Cells:
    """Header and rows of the table about training."""
    header = ["train s", *([f"/ {baseline}"] if baseline else []), "CPU s", "memory MB", "model MB"]
    rows = []
    for run in done:
        relative = run.get("relative", {}).get("train_seconds")
        rows.append(
            [
                _seconds(run["train_seconds"]),
                *([f"{relative:.2f}" if relative is not None else "–"] if baseline else []),
                _seconds(run["train_cpu_seconds"]),
                _megabytes(run["train_peak_bytes"]),
                f"{run['model_bytes'] / 1e6:,.2f}",
            ]
        )
    return header, rows


def prediction_cells(done: Sequence[dict[str, Any]]) -> Cells:
    """Header and rows of the table about prediction."""
    rows = [
        [
            f"{run['predict_ms_per_row']:.3f}",
            f"{run['predict_cpu_ms_per_row']:.3f}",
            _megabytes(run["predict_peak_bytes"]),
            f"{run['single_ms']['p50']:.2f}",
            f"{run['single_ms']['p95']:.2f}",
        ]
        for run in done
    ]
    return ["ms/row", "CPU ms/row", "memory MB", "p50 ms", "p95 ms"], rows


def _seconds(value: float) -> str:
    return f"{value:.2f}" if value < 10 else f"{value:,.1f}"


def _megabytes(value: int | None) -> str:
    return "–" if value is None else f"{value / 1e6:,.0f}"


def _introduction(result: dict[str, Any]) -> str:
    data = result["data"]
    only = data["labels_only_in_test"]
    texts = ""
    if data["features"]:
        settings = ", ".join(f"{key}={value}" for key, value in data["features"].items() if key != "seconds")
        texts = (
            f" Texts became tf-idf rows once, for all programs ({settings}; {data['features']['seconds']:.1f} s, not "
            "counted below)."
        )
    return report.paragraph(
        f"{data['train_rows']:,} training rows, {data['test_rows']:,} test rows; "
        f"{data['n_features']:,} features, {data['n_labels']:,} labels, {data['labels_per_row']:.1f} per row."
        + (f" {only:,} labels occur only in test rows, so no program can predict them." if only else "")
        + texts
    ) + report.paragraph(
        f"{describe_machine(result['machine'])}; {result['threads']} threads; umpteen "
        f"{result['umpteen_version']}; {describe_time(result['taken'])}."
    )


def _quality(result: dict[str, Any], done: Sequence[dict[str, Any]]) -> str:
    if not done:
        return ""
    rows = [[_title(run), *(format_metric(run, key) for key in QUALITY)] for run in done]
    constants = done[0]["metrics"]["propensity"]
    several = (
        f" Mean ± standard deviation of {len(done[0]['over_runs']['seeds'])} trainings."
        if "over_runs" in done[0]
        else ""
    )
    note = (
        f"In percent, on the test rows.{several} In bold: the best, and what the test rows cannot tell from it. P@k: "
        "the share of the first k labels that is right. nDCG@k: the same, with more weight on early ones. PSP@k: the "
        "same, with more weight on rare labels "
        f"(A={constants['A']:g}, B={constants['B']:g}). coverage@5: the share of labels that is ever found."
    )
    best = [find_best_runs(result.get("tests", {}), key) for key in QUALITY]
    marks = {
        column: {i for i, run in enumerate(done) if run["name"] in names} for column, names in enumerate(best, 1)
    }
    table = report.table(["", *QUALITY], rows, marks)
    return report.section("Accuracy", table, report.paragraph(note))


def _certainty(result: dict[str, Any], done: Sequence[dict[str, Any]]) -> str:
    """Intervals, and how likely a run differs from the best by chance alone."""
    tests = result.get("tests", {})
    if not done or "intervals" not in done[0]:
        return ""
    rows = []
    for run in done:
        cells = [_title(run)]
        for key in _SURE:
            low, high = run["intervals"][key]
            cells.append(f"{low:.1f} to {high:.1f}")
            p = tests.get(key, {"best": run["name"]})
            cells.append("best" if p["best"] == run["name"] else format_p(p["p"][run["name"]]))
        rows.append(cells)
    header = [name for key in _SURE for name in (key, "p")]
    note = (
        f"The interval that holds 95 % of what a metric is when as many test rows are drawn again ({N_RESAMPLES:,} "
        "times); and p, how often chance alone makes a difference from the best program as large as the one seen: "
        f"the signs of the rows' differences are flipped at random ({N_FLIPS:,} times), and p is corrected for the "
        f"number of programs (Holm). Below {ALPHA:g} a difference is significant."
        + (" Of the first training of each program." if "over_runs" in done[0] else "")
    )
    command = f"<p>Taken by <code>{html.escape(result['command'])}</code></p>" if result.get("command") else ""
    return report.section("How sure", report.table(["", *header], rows), report.paragraph(note), command)


def format_p(p: float) -> str:
    return "< 0.01" if p < 0.01 else f"{p:.2f}"


def _cost(result: dict[str, Any], done: Sequence[dict[str, Any]]) -> str:
    rounds = max(result["rounds"], result.get("seeds", 1))
    training = (
        "Each program ran in a process of its own"
        + (f", {rounds} times in turns; medians" if rounds > 1 else "")
        + ". Training starts with the rows in memory (omikuji: in a text file, which it reads itself) and ends with "
        "the model on disk. Memory is the growth. Compare ratios within this table only."
    )
    prediction = (
        "Each program predicted the five best labels: of all rows in one call, in wall time and in CPU time; memory "
        f"includes loading the model; p50 and p95 are of {done[0]['single_rows']} rows one by one. Peers got rows of "
        "unit length."
    )
    parts = []
    for (header, rows), note in (
        (training_cells(done, result["baseline"]), training),
        (prediction_cells(done), prediction),
    ):
        named = [[_title(run), *cells] for run, cells in zip(done, rows, strict=True)]
        marks = dict.fromkeys(range(1, len(header) + 1), "lowest")
        parts += [report.table(["", *header], named, marks), report.paragraph(note)]
    return report.section("Time and memory", *parts)


def _title(run: dict[str, Any]) -> str:
    return f"{run['name']} ({run['version']})" if run["peer"] else f"umpteen {run['name']}"


def _failures(result: dict[str, Any]) -> str:
    failed = [run for run in result["runs"] if run["status"] == "failed"]
    if not failed:
        return ""
    rows = [[run["name"], run["error"]] for run in failed]
    return report.section("Failed", f'<div class="words">{report.table(["", "last line"], rows)}</div>')


def _bubbles(done: Sequence[dict[str, Any]], colours: Colours) -> str:
    values = np.array([run["metrics"]["P@1"] for run in done])
    # A method far below all others would squeeze them together: it is drawn at the lower edge, with its figure.
    lowest = float(np.median(values) - 3 * max(values.max() - np.median(values), 1.0))
    bubbles, shown = {}, dict(colours)
    for run, value in zip(done, values.tolist(), strict=True):
        name = run["name"] if value >= lowest else f"{run['name']} ↓ {value:.1f}"
        shown[name] = colours[run["name"]]
        bubbles[name] = (run["train_seconds"], max(value, lowest), run["model_bytes"])
    chart = report.bubble_chart(
        bubbles, x_label="seconds of training", y_label="P@1", format_size=format_bytes, colours=shown
    )
    return report.section(
        "Time, accuracy, size",
        report.figure(chart, "Up is better, left is faster, and the area is the model's size."),
    )


def _tail(result: dict[str, Any], done: Sequence[dict[str, Any]], colours: Colours) -> str:
    def by_decile(key: str) -> dict[str, tuple[list[float], list[float]]]:
        return {
            run["name"]: (
                [d["decile"] for d in run["metrics"]["by_decile"]],
                _column(run["metrics"]["by_decile"], key),
            )
            for run in done
        }

    tenth = "tenth of the labels, frequent first"
    figures = [
        report.figure(
            report.line_chart(by_decile("P@5"), x_label=tenth, y_label="P@5", colours=colours, size=_THIRD),
            "What each tenth of the labels contributes to P@5.",
        ),
        report.figure(
            report.line_chart(by_decile("recall@5"), x_label=tenth, y_label="recall@5", colours=colours, size=_THIRD),
            "The share of each tenth's pairs of row and label that is among the five best. Methods differ at the "
            "right end.",
        ),
    ]
    if law := result.get("label_frequencies"):
        figures.insert(0, _power_law(law))
    return report.section("Head and tail", '<div class="row">', *figures, "</div>")


def _power_law(law: dict[str, Any]) -> str:
    lines: dict[str, tuple[list[float], list[float]]] = {"labels": (law["ranks"], law["counts"])}
    caption = "Training rows per label."
    if law["beta"] is not None:
        ranks = np.array(law["ranks"], float)
        fitted = law["first"] * ranks ** -law["beta"]
        seen = fitted >= 0.5
        lines[f"fit, β = {law['beta']:.2f}"] = (ranks[seen].tolist(), fitted[seen].tolist())
        caption += f" The line is a fitted power law, rows = {law['first']:,.0f} · rank^-{law['beta']:.2f}."
    chart = report.line_chart(
        lines, x_label="labels, most frequent first", y_label="rows of the label", log=True, dots_only=("labels",),
        dots=False, size=_THIRD,
    )  # fmt: skip
    return report.figure(chart, caption)


def _column(rows: Sequence[dict[str, Any]], key: str) -> list[float]:
    return [row[key] for row in rows]


def _with(done: Sequence[dict[str, Any]], study: str) -> dict[str, Any]:
    """What a study found, by run."""
    return {run["name"]: run["studies"][study] for run in done if run.get("studies", {}).get(study)}


def _linear(done: Sequence[dict[str, Any]], colours: Colours) -> str:
    weights = {name: found for name, found in _with(done, "weights").items() if found["counts"]}
    pruned = _with(done, "pruning")
    if not weights or not pruned:
        return ""

    def histogram(found: dict[str, Any]) -> tuple[list[float], list[float]]:
        edges, counts = np.array(found["edges"]), np.array(found["counts"], float)
        return np.sqrt(edges[1:] * edges[:-1]).tolist(), (100 * counts / counts.sum()).tolist()

    size_curves = {
        metric: report.line_chart(
            {name: ([at["bytes"] / 1e6 for at in curve], _column(curve, metric)) for name, curve in pruned.items()},
            x_label="model, MB",
            y_label=metric,
            log="x",
            from_zero=False,
            colours=colours,
            size=_THIRD,
        )
        for metric in ("P@1", "P@5")
    }
    return report.section(
        "Weights and pruning",
        '<div class="row">',
        report.figure(
            report.line_chart(
                {name: histogram(found) for name, found in weights.items()},
                x_label="absolute value of the weight",
                y_label="percent of weights",
                log="x",
                dots=False,
                colours=colours,
                size=_THIRD,
            ),
            "The sizes of the weights, ten bins per power of ten.",
        ),
        *(
            report.figure(
                chart, f"{metric} as the smallest weights are dropped, from all of them to one in a hundred."
            )
            for metric, chart in size_curves.items()
        ),
        "</div>",
    )


def _forests(done: Sequence[dict[str, Any]], colours: Colours) -> str:
    forests = _with(done, "trees")
    if not forests:
        return ""
    figures = [
        report.figure(
            report.line_chart(
                {name: (_column(curve, "trees"), _column(curve, metric)) for name, curve in forests.items()},
                x_label="trees",
                y_label=metric,
                from_zero=False,
                colours=colours,
            ),
            f"{metric} with only the first trees.",
        )
        for metric in ("P@1", "P@5")
    ]
    return report.section("How many trees", '<div class="row">', *figures, "</div>")


def _calibration(done: Sequence[dict[str, Any]]) -> str:
    found = _with(done, "calibration")
    if not found:
        return ""

    def draw(values: dict[str, Any], caption: str) -> str:
        predicted = values.get("predicted", values.get("said"))  # older results call it `said`
        kept = Reliability(*(np.array(each) for each in (predicted, values["true"], values["count"])))
        return report.figure(kept.to_svg(260), f"{caption}, error {values['error']:.3f}")

    pairs = [
        '<div class="row">'
        + draw(each["before"], f"{name}: raw scores")
        + draw(each["after"], f"{name}: calibrated probabilities")
        + "</div>"
        for name, each in found.items()
    ]
    note = (
        "For the five best labels of each test row: the predicted probability, and how often it was right. Dots on "
        "the diagonal can be trusted. Probabilities were calibrated on a tenth of the training rows."
    )
    return report.section(
        "Can the probabilities be trusted?", report.paragraph(note), '<div class="row">', *pairs, "</div>"
    )


def _mistakes(result: dict[str, Any]) -> str:
    found = result.get("mistakes")
    if not found:
        return ""
    worst = [
        [each["label"], f"{each['train_rows']:,}", f"{each['test_rows']:,}", f"{each['found']:,}",
         f"{each['wrongly_given']:,}", ", ".join(each["given_instead"]) or "–"]
        for each in found["worst"]
    ]  # fmt: skip
    header = ["label", "training rows", "test rows", "found", "wrongly given", "often given instead"]
    name = html.escape(found["run"])
    parts = [f"<p>By the most accurate program, {name}, five labels per row.</p>"]
    if worst:
        parts += ["<h3>Labels it misses most</h3>", f'<div class="words">{report.table(header, worst)}</div>']
    if found["confusions"]:
        parts += [
            "<h3>Labels it confuses</h3>",
            *(_confusion(each, each is found["confusions"][0]) for each in found["confusions"]),
        ]
    return report.section("Mistakes", *parts)


def _confusion(found: dict[str, Any], shown: bool) -> str:
    row = found["example"]
    given = ", ".join(
        f"<b>{html.escape(each['label'])}</b>" if each["right"] else html.escape(each["label"])
        for each in row["given"]
    )
    text = f"<p>{html.escape(row['text'])}</p>" if "text" in row else ""
    times = "once" if found["rows"] == 1 else f"{found['rows']:,} times"
    return (
        f"<details{' open' if shown else ''}><summary>for <b>{html.escape(found['missed'])}</b> it gives "
        f"<b>{html.escape(found['given'])}</b>, {times}</summary><blockquote>{text}<p><small>row {row['row'] + 1:,}"
        f"<br>right: {html.escape(', '.join(row['true']))}<br>given: {given}</small></p></blockquote></details>"
    )
