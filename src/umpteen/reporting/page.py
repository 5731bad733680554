"""A report as one page that opens offline: tables that sort, drawings, examples."""

from __future__ import annotations

import base64
import csv
import html
import io
from collections.abc import Sequence
from typing import Any

import numpy as np

from umpteen.evaluation.calibration import reliability
from umpteen.evaluation.metrics import find_hits
from umpteen.evaluation.per_label import find_confusions, sweep_thresholds
from umpteen.evaluation.report import figure, line_chart, page, paragraph, section, table
from umpteen.reporting.findings import Findings, label_rows

_MOST_LABELS = 1000
_SHOWN = 12
_LONGEST_TEXT = 300
_EXAMPLES = 3
_FEW = 10
_SORT = """<script>
for (const head of document.querySelectorAll("table.sortable th")) {
  head.tabIndex = 0;
  const sort = () => {
    const table = head.closest("table"), at = [...head.parentNode.children].indexOf(head);
    const down = head.getAttribute("aria-sort") !== "descending";
    for (const other of head.parentNode.children) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    const value = (row) => row.children[at].dataset.value ?? row.children[at].textContent;
    const order = (a, b) => {
      const x = value(a), y = value(b), n = x - y;
      return (Number.isNaN(n) ? x.localeCompare(y) : n) * (down ? -1 : 1);
    };
    table.tBodies[0].append(...[...table.tBodies[0].rows].sort(order));
  };
  head.addEventListener("click", sort);
  head.addEventListener("keydown", (event) => { if (event.key === "Enter") sort(); });
}
</script>"""
_STYLE = """<style>
table.sortable th{cursor:pointer}table.sortable th[aria-sort=descending]::after{content:" ↓"}
table.sortable th[aria-sort=ascending]::after{content:" ↑"}
.tall{max-height:32rem;overflow:auto}.tall thead th{position:sticky;top:0;background:Canvas;z-index:2}
.tall thead th:first-child{z-index:3}
.groups th[colspan]{text-align:center}.groups tr+tr th:first-child{position:static;text-align:right}
.uri{text-align:left;max-width:16rem;overflow:hidden;text-overflow:ellipsis}
.example{margin:.4rem 0 .8rem;padding-left:.8rem;border-left:3px solid var(--line);overflow-wrap:anywhere}
</style>"""


def render(found: Findings, title: str, facts: Sequence[str]) -> str:
    """The whole page. `facts` are lines about the model and the data."""
    parts = [
        _STYLE,
        "".join(paragraph(fact) for fact in facts),
        _ranking(found),
        _decisions(found),
        _deciles(found),
        _labels(found),
        _most(found, "Most missed labels", found.labels.fn, missed=True),
        _most(found, "Most over-suggested labels", found.labels.fp, missed=False),
        _confusions(found),
        _rows(found),
        _SORT,
    ]
    return page(title, parts)


def labels_csv(found: Findings) -> str:
    """The table of labels as CSV."""
    rows = label_rows(found)
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, list(rows[0]) if rows else ["label"])
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def _ranking(found: Findings) -> str:
    metrics = found.metrics
    names = list(dict.fromkeys(key.split("@")[0] for key in metrics))
    cuts = list(dict.fromkeys(key.split("@")[1] for key in metrics))
    rows = [[name, *(_with_interval(found, f"{name}@{cut}") for cut in cuts)] for name in names]
    without = f"{metrics.n_rows_without_labels:,} of them without labels"
    return section(
        "Ranking",
        paragraph(
            f"{metrics.n_rows:,} rows, {without}. In percent; in brackets 95 % intervals of the bootstrap over rows."
        ),
        table(["", *(f"@{cut}" for cut in cuts)], rows),
    )


def _with_interval(found: Findings, name: str) -> str:
    return _add_interval(found, name, found.metrics[name])


def _add_interval(found: Findings, name: str, measured: float) -> str:
    value = f"{measured:.2f}"
    if name not in found.intervals:
        return value
    low, high = found.intervals[name]
    return f"{value} [{low:.1f}, {high:.1f}]"


def _decisions(found: Findings) -> str:
    decided = found.metrics.decisions
    kinds = ("precision", "recall", "F1")
    rows = [
        [
            name,
            *(_add_interval(found, f"{name} {kind}", getattr(each, kind)) for kind in kinds),
        ]
        for name, each in decided.measures()
    ]
    if decided.known_only is not None:
        rows += [
            [f"{name}, without unseen labels", *(f"{getattr(each, kind):.2f}" for kind in kinds)]
            for name, each in decided.known_only.measures()
        ]
    rule = "" if decided.threshold is None else f" Labels are given from {decided.threshold:.2f} on."
    sweep = sweep_thresholds(found.Y, found.ranked, found.probabilities)
    used = sweep["labels_per_row"] > 0
    at = {name: values[used].tolist() for name, values in sweep.items()}
    drawings = []
    if at["threshold"]:
        by_threshold = line_chart(
            {name: (at["threshold"], [100 * v for v in at[name]]) for name in ("precision", "recall", "F1")},
            x_label="threshold", y_label="%", dots=False,
        )  # fmt: skip
        against = line_chart(
            {"precision": ([100 * v for v in at["recall"]], [100 * v for v in at["precision"]])},
            x_label="recall, %", y_label="precision, %", dots=False,
        )  # fmt: skip
        number = line_chart(
            {"labels": (at["threshold"], at["labels_per_row"])},
            x_label="threshold",
            y_label="labels per row",
            dots=False,
        )
        drawings = [
            figure(by_threshold, "Precision, recall and F1 of all pairs of row and label, at other thresholds."),
            figure(against, "Precision against recall."),
            figure(number, "How many labels a row gets, at other thresholds."),
        ]
    seen = found.ranked >= 0
    hits = find_hits(found.Y, np.ascontiguousarray(found.ranked))
    if found.model.calibration is not None and seen.any():
        curve = reliability(found.probabilities[seen], hits[seen])
        caption = f"Probabilities and how often they are right; expected calibration error {curve.error:.3f}."
        drawings.append(figure(curve.to_svg(), caption))
    return section(
        "Decisions",
        paragraph(
            f"{decided.labels_given:.2f} labels are given a row, where {decided.labels_true:.2f} are right.{rule} In "
            "percent."
        ),
        table(["", *kinds], rows),
        f'<div class="row">{"".join(drawings)}</div>',
    )


def _deciles(found: Findings) -> str:
    deciles = found.metrics.by_decile
    cuts = list(dict.fromkeys(key.split("@")[1] for key in found.metrics))
    measures = ("P", "recall", "microF1", "coverage")
    rows = [
        [
            f"{each['decile']:.0f}", f"{each['n_labels']:,.0f}",
            f"{each['lowest_frequency']:,.0f} – {each['highest_frequency']:,.0f}", f"{each['n_true']:,.0f}",
            *(f"{each[f'{name}@{cut}']:.2f}" for name in measures for cut in cuts),
        ]
        for each in deciles
    ]  # fmt: skip
    facts = ("group", "labels", "training rows", "true pairs")
    above = "".join(f'<th scope="colgroup" colspan="{len(cuts)}">{name}</th>' for name in measures)
    head = (
        "<tr>" + "".join(f'<th scope="col" rowspan="2">{name}</th>' for name in facts) + f"{above}</tr><tr>"
        + "".join(f'<th scope="col">@{cut}</th>' for _ in measures for cut in cuts) + "</tr>"
    )  # fmt: skip
    body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    return section(
        "Frequent and rare labels",
        paragraph(
            "Labels in ten groups, the most frequent in training first. P is what a group adds to that of all; the "
            "others are of the group alone. In percent."
        ),
        f'<div class="wide"><table class="groups"><thead>{head}</thead><tbody>{body}</tbody></table></div>',
    )


def _labels(found: Findings) -> str:
    rows = label_rows(found)
    uris = [] if not rows or "uri" not in rows[0] else ["URI"]
    header = [
        "label",
        *uris,
        "training rows",
        "support",
        "TP",
        "FP",
        "FN",
        "precision",
        "recall",
        "F1",
        "calibration",
    ]
    body = []
    for row in rows[:_MOST_LABELS]:
        cells = [f"<td>{html.escape(str(row['label']))}</td>"]
        for name, value in row.items():
            if name == "label":
                continue
            if name == "uri":
                cells.append(f'<td class="uri">{_link(value)}</td>')
                continue
            shown = (
                "–"
                if value is None
                else f"{value:,}"
                if isinstance(value, int)
                else f"{value:.2f}".replace("-0.00", "0.00")
            )
            cells.append(f'<td data-value="{-2 if value is None else value}">{shown}</td>')
        body.append(f"<tr>{''.join(cells)}</tr>")
    head = "".join(f'<th scope="col">{name}</th>' for name in header)
    shown = f"The {_MOST_LABELS:,} with the largest support are shown. " if len(rows) > _MOST_LABELS else ""
    data = base64.b64encode(labels_csv(found).encode("utf-8", "replace")).decode()
    return section(
        "Label by label",
        paragraph(
            f"{len(rows):,} labels that a row has or was given. {shown}Support: rows that have the label. TP, FP, "
            "FN: rightly given, wrongly given, missed. Calibration: how much too high its probabilities are. A click "
            "on a heading sorts."
        ),
        f'<p><a download="labels.csv" href="data:text/csv;charset=utf-8;base64,{data}">All of them as CSV</a></p>',
        f'<div class="wide tall"><table class="sortable"><thead><tr>{head}</tr></thead>'
        f"<tbody>{''.join(body)}</tbody></table></div>",
    )


def _link(uri: str) -> str:
    """A URI to click on, if it is one of the web."""
    shown = html.escape(uri)
    return f'<a href="{shown}">{shown}</a>' if uri.startswith(("https://", "http://")) else shown


def _most(found: Findings, title: str, counts: Any, *, missed: bool) -> str:
    order = [i for i in np.argsort(-counts, kind="stable")[:_SHOWN].tolist() if counts[i] > 0]
    parts = [_example(found, label, missed) for label in order]
    intro = (
        "Labels that rows have and were not given most often, with some of the rows and what the model saw in them."
        if missed
        else "Labels that rows were given most often without having them, with some of the rows and what led there."
    )
    return section(title, paragraph(intro if parts else "None."), *parts)


def _example(found: Findings, label: int, missed: bool) -> str:
    table = found.labels
    n = int(table.fn[label] if missed else table.fp[label])
    of = int(table.support[label]) if missed else int(table.tp[label] + table.fp[label])
    verb = "missed" if missed else "wrongly given"
    head = f"{found.names[label]}: {verb} in {n:,} of {of:,} rows"
    examples = []
    for row in _find_rows(found, label, missed):
        lines = [_show_row(found, row), _reason(found, row, label)]
        examples.append(f'<div class="example">{"<br>".join(map(html.escape, lines))}</div>')
    return f"<p><b>{html.escape(head)}</b></p>{''.join(examples)}"


def _find_rows(found: Findings, label: int, missed: bool) -> list[int]:
    """The first rows in which a label is missed, or wrongly given."""
    has = np.zeros(found.Y.shape[0], bool)
    has[np.repeat(np.arange(len(has)), np.diff(found.Y.indptr))[found.Y.indices == label]] = True
    was_given = (found.given == label).any(axis=1)
    rows: list[int] = np.flatnonzero(has & ~was_given if missed else was_given & ~has)[:_EXAMPLES].tolist()
    return rows


def _show_row(found: Findings, row: int) -> str:
    place = found.ids[row] if found.ids is not None else f"row {row + 1:,}"
    if found.texts is None:
        return place
    text = " ".join(_once(found.texts[row]).split())
    return f"{place}: {text[:_LONGEST_TEXT]}{'…' if len(text) > _LONGEST_TEXT else ''}"


def _once(text: str) -> str:
    """A text made of fields, of which one that counts twice stands there twice, with each field once."""
    places = getattr(text, "places", ())
    return "\n".join(text[begin:end] for _, begin, end in places) or text


def _reason(found: Findings, row: int, label: int) -> str:
    true = [found.names[i] for i in found.Y.indices[found.Y.indptr[row] : found.Y.indptr[row + 1]].tolist()]
    parts = [f"right: {', '.join(true) or 'none'}"]
    if label >= found.n_known:
        return "; ".join([*parts, "no training row had this label"])
    place = np.flatnonzero(found.ranked[row] == label)
    if len(place):
        parts.append(f"ranked {place[0] + 1}, probability {found.probabilities[row, place[0]]:.2f}")
    else:
        parts.append(f"not among the first {found.ranked.shape[1]}")
    if found.tagger is not None and found.texts is not None and found.tagger.features_ is not None:
        words = found.tagger.explain_row(found.texts[row], found.rows.X[row], label).words
        sides = {
            "for": [word for word, value in words if value > 0],
            "against": [word for word, value in sorted(words, key=lambda pair: pair[1]) if value < 0],
        }
        parts += [f"{name}: {', '.join(listed[:3])}" for name, listed in sides.items() if listed]
    return "; ".join(parts)


def _confusions(found: Findings) -> str:
    pairs = find_confusions(found.Y, found.given, 30)
    rows = [[found.names[a], found.names[b], f"{n:,}"] for a, b, n in pairs if n > 1]
    return section(
        "What is confused with what",
        paragraph("Rows that have the first label, were not given it, and were wrongly given the second."),
        f'<div class="words">{table(["missed", "given instead", "rows"], rows)}</div>'
        if rows
        else paragraph("No pair occurs twice."),
    )


def _rows(found: Findings) -> str:
    n_given = (found.given >= 0).sum(axis=1)
    n_true = np.diff(found.Y.indptr)
    most = int(min(max(n_given.max(initial=0), n_true.max(initial=0)), 20))
    counts = range(most + 1)
    chart = line_chart(
        {
            name: (list(counts), [100 * float((np.minimum(values, most) == n).mean()) for n in counts])
            for name, values in (("given", n_given), ("right", n_true))
        },
        x_label="labels" if most < 20 else "labels (20: or more)", y_label="% of rows",
    )  # fmt: skip
    facts = [f"{int((n_given == 0).sum()):,} rows were given no label."]
    if found.unknown is not None:
        facts.append(
            f"The model does not know {found.unknown.mean():.1%} of the words of a row on average; "
            f"{int((found.unknown > 0.5).sum()):,} rows have more unknown words than known ones."
        )
    metrics = found.metrics
    if metrics.n_unseen_labels:
        facts.append(
            f"{metrics.n_unseen_labels:,} labels of {metrics.n_rows_with_unseen_labels:,} rows were not in the "
            "training data"
            + (
                f"; they were found {metrics.n_unseen_found:,} times by their terms or words."
                if metrics.n_unseen_found
                else ", so no model of them could give them; they count as missed."
            )
        )
    return section(
        "Rows",
        *map(paragraph, facts),
        figure(chart, "How many labels rows are given, and have."),
        _unknown_words(found),
    )


def _unknown_words(found: Findings) -> str:
    """The words that training should have had."""
    if not found.unknown_words:
        return ""
    assert found.unknown is not None
    n = int((found.unknown > 0).sum())
    some = f" Counted in {found.n_looked_at:,} of {n:,} such rows." if found.n_looked_at < n else ""
    often = sum(count > 1 for _, count in found.unknown_words)
    listed = ", ".join(f"{word} ({count:,})" for word, count in found.unknown_words[: max(often, _FEW)])
    return (
        "<h3>Most frequent unknown words</h3>"
        + paragraph(f"With the number of rows that have each.{some}")
        + f'<p class="example">{html.escape(listed)}</p>'
    )
