"""Self-contained HTML: tables and drawings that open offline, in light and in dark."""

from __future__ import annotations

import html
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: Told apart by most colour-blind readers, on white and on black.
COLOURS = ("#3b82c4", "#e07b39", "#3a9a5b", "#b65fc9", "#c44e52", "#8a8a3a", "#5aa9b8", "#8c6d57")

_STYLE = """
:root{color-scheme:light dark;--line:#8884;--soft:#8882}
body{font:16px/1.5 system-ui,sans-serif;max-width:64rem;margin:2rem auto;padding:0 1rem}
h1{line-height:1.2}h2{margin-top:2.5rem;border-bottom:1px solid var(--line)}
table{border-collapse:collapse;font-variant-numeric:tabular-nums}
th,td{padding:.25rem .7rem;text-align:right;border-bottom:1px solid var(--line)}
th:first-child,td:first-child{text-align:left}
td.best{font-weight:700;background:var(--soft)}
.wide{overflow-x:auto}.row{display:flex;flex-wrap:wrap;gap:1.5rem;align-items:flex-start}
figure{margin:0}figcaption{font-size:.85rem;opacity:.8;max-width:26rem}
mark{border-radius:3px;padding:0 2px}blockquote{margin:1rem 0;padding:.2rem 1rem;border-left:3px solid var(--line)}
pre{white-space:pre-wrap}code{background:var(--soft);padding:.1rem .3rem;border-radius:3px}
svg{max-width:100%;height:auto}
"""


def page(title: str, sections: Sequence[str]) -> str:
    """A whole page; the sections are HTML already."""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{html.escape(title)}</title><style>{_STYLE}</style></head>\n"
        f"<body><h1>{html.escape(title)}</h1>\n" + "\n".join(sections) + "\n</body></html>\n"
    )


def section(title: str, *parts: str) -> str:
    return f"<section><h2>{html.escape(title)}</h2>{''.join(parts)}</section>"


def paragraph(text: str) -> str:
    return f"<p>{html.escape(text)}</p>"


def figure(svg: str, caption: str) -> str:
    return f"<figure>{svg}<figcaption>{html.escape(caption)}</figcaption></figure>"


def table(header: Sequence[str], rows: Sequence[Sequence[str]], best: Mapping[int, str] | None = None) -> str:
    """A table. `best` says which columns have a best cell, and whether it is the "highest" or the "lowest"."""
    marked = {column: _best_row([row[column] for row in rows], kind) for column, kind in (best or {}).items()}
    head = "".join(f'<th scope="col">{html.escape(name)}</th>' for name in header)
    body = "".join(
        "<tr>"
        + "".join(
            f"<td{' class=best' if i in marked.get(column, ()) else ''}>{html.escape(cell)}</td>"
            for column, cell in enumerate(row)
        )
        + "</tr>"
        for i, row in enumerate(rows)
    )
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _best_row(cells: Sequence[str], kind: str) -> set[int]:
    values = [_leading_number(cell) for cell in cells]
    known = [value for value in values if value is not None]
    if len(known) < 2:
        return set()
    best = max(known) if kind == "highest" else min(known)
    return {i for i, value in enumerate(values) if value == best}


def _leading_number(cell: str) -> float | None:
    try:
        return float(cell.split()[0].replace(",", ""))
    except (ValueError, IndexError):
        return None


def line_chart(
    lines: Mapping[str, tuple[Sequence[float], Sequence[float]]],
    *,
    x_label: str,
    y_label: str,
    log: bool = False,
    dots_only: bool = False,
    size: tuple[int, int] = (460, 300),
) -> str:
    """Lines or dots in one SVG, each with its (x, y), a legend below; `log` scales both axes."""
    width, height = size
    left, right, top, bottom = 52, 24, 12, 44
    scale = np.log10 if log else lambda v: np.asarray(v, np.float64)
    points = {name: (scale(np.asarray(x, float)), scale(np.asarray(y, float))) for name, (x, y) in lines.items()}
    xs = np.concatenate([x for x, _ in points.values()])
    ys = np.concatenate([y for _, y in points.values()])
    x_low, x_high = _padded(xs, log)
    y_low, y_high = _padded(ys if log else np.append(ys, 0.0), log)

    def at_x(v: Any) -> Any:
        return left + (v - x_low) / (x_high - x_low) * (width - left - right)

    def at_y(v: Any) -> Any:
        return top + (y_high - v) / (y_high - y_low) * (height - top - bottom)

    parts = []
    for value, text in _ticks(y_low, y_high, log):
        parts.append(
            f'<line x1="{left}" x2="{width - right}" y1="{at_y(value):.1f}" y2="{at_y(value):.1f}" '
            f'stroke="currentColor" stroke-opacity=".15"/>'
            f'<text x="{left - 6}" y="{at_y(value) + 4:.1f}" text-anchor="end">{text}</text>'
        )
    for value, text in _ticks(x_low, x_high, log):
        parts.append(f'<text x="{at_x(value):.1f}" y="{height - bottom + 16}" text-anchor="middle">{text}</text>')
    for i, (name, (x, y)) in enumerate(points.items()):
        colour = COLOURS[i % len(COLOURS)]
        places = " ".join(f"{at_x(a):.1f},{at_y(b):.1f}" for a, b in zip(x, y, strict=True))
        if not dots_only:
            parts.append(f'<polyline points="{places}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts += [
            f'<circle cx="{at_x(a):.1f}" cy="{at_y(b):.1f}" r="{2 if dots_only else 3}" fill="{colour}">'
            f"<title>{html.escape(name)}</title></circle>"
            for a, b in zip(x, y, strict=True)
        ]
    legend, along = [], 0
    for i, name in enumerate(lines if len(lines) > 1 else ()):
        legend.append(
            f'<circle cx="{left + along}" cy="{height + 10}" r="4" fill="{COLOURS[i % len(COLOURS)]}"/>'
            f'<text x="{left + along + 8}" y="{height + 14}">{html.escape(name)}</text>'
        )
        along += 24 + 7 * len(name)
    full = height + (20 if legend else 0)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {max(width, left + along)} {full}" width="{width}" '
        f'font-family="sans-serif" font-size="11" fill="currentColor" role="img" '
        f'aria-label="{html.escape(y_label)} by {html.escape(x_label)}">{"".join(parts)}{"".join(legend)}'
        f'<text x="{(left + width - right) / 2:.0f}" y="{height - 8}" text-anchor="middle">'
        f"{html.escape(x_label)}</text>"
        f'<text x="14" y="{(top + height - bottom) / 2:.0f}" text-anchor="middle" '
        f'transform="rotate(-90 14 {(top + height - bottom) / 2:.0f})">{html.escape(y_label)}</text></svg>'
    )


def _padded(values: NDArray[Any], log: bool) -> tuple[float, float]:
    low, high = float(values.min()), float(values.max())
    if log:
        low, high = math.floor(low), math.ceil(high)
    return (low, high) if high > low else (low - 0.5, high + 0.5)


def _ticks(low: float, high: float, log: bool) -> list[tuple[float, str]]:
    if log:
        return [(float(e), f"{10**e:,}") for e in range(math.ceil(low), math.floor(high) + 1)]
    step = 10 ** math.floor(math.log10((high - low) / 3))
    while (high - low) / step > 6:
        step *= 2.5 if str(step).lstrip("0.").startswith("2") else 2
    first = math.ceil(low / step)
    return [(i * step, f"{i * step:g}") for i in range(first, math.floor(high / step) + 1)]


def frequency_chart(counts: NDArray[np.int64]) -> str:
    """Label frequency by rank, both on a log scale: a long tail is a falling line."""
    ordered = -np.sort(-counts[counts > 0])
    ranks = np.unique(np.geomspace(1, len(ordered), 80).astype(int))
    return line_chart(
        {"labels": (ranks.tolist(), ordered[ranks - 1].tolist())},
        x_label="labels, most frequent first",
        y_label="rows of the label",
        log=True,
        dots_only=True,
    )
