"""Self-contained HTML: tables and drawings that open offline, in light and dark mode."""

from __future__ import annotations

import html
import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: Distinct for most colour-blind readers, on white and on black.
COLOURS = ("#3b82c4", "#e07b39", "#3a9a5b", "#b65fc9", "#c44e52", "#8a8a3a", "#5aa9b8", "#8c6d57")

_STYLE = """
:root{color-scheme:light dark;--line:#8884;--soft:#8882}
body{font:16px/1.5 system-ui,sans-serif;max-width:70rem;margin:2rem auto;padding:0 1rem}
h1{line-height:1.2}h2{margin-top:2.5rem;border-bottom:1px solid var(--line)}
table{border-collapse:collapse;font-variant-numeric:tabular-nums;font-size:.9rem}
th,td{padding:.25rem .45rem;text-align:right;border-bottom:1px solid var(--line)}
th:first-child,td:first-child{text-align:left}td+td{white-space:nowrap}
td.best{font-weight:700;background:var(--soft)}
.wide{overflow-x:auto}
.wide th:first-child,.wide tbody td:first-child{position:sticky;left:0;background:Canvas;z-index:1}
@media (min-width:20rem){.wide td:first-child{min-width:6rem}}
.row{display:flex;flex-wrap:wrap;gap:1.5rem;align-items:flex-start}
figure{margin:0;max-width:100%}figcaption{font-size:.85rem;opacity:.8}
mark{border-radius:3px;padding:0 2px}blockquote{margin:1rem 0;padding:.2rem 1rem;border-left:3px solid var(--line)}
.words td{text-align:left;white-space:normal}.words th{text-align:left}summary{cursor:pointer;padding:.15rem 0}
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
    """A drawing with a caption of the same width below it."""
    width = re.search(r'\bwidth="(\d+)"', svg)
    style = f' style="width:{width[1]}px"' if width else ""
    return f"<figure{style}>{svg}<figcaption>{html.escape(caption)}</figcaption></figure>"


def table(
    header: Sequence[str], rows: Sequence[Sequence[str]], best: Mapping[int, str | set[int]] | None = None
) -> str:
    """A table. `best` names the columns whose best cell is marked, and whether it is the "highest" or "lowest", or
    which rows it is in."""
    marked = {
        column: _best_row([row[column] for row in rows], kind) if isinstance(kind, str) else kind
        for column, kind in (best or {}).items()
    }
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


class _Axis:
    """Maps values to positions between two ends of a drawing."""

    def __init__(self, values: NDArray[Any], ends: tuple[float, float], log: bool, from_zero: bool) -> None:
        self.log, self.ends = log, ends
        known = self._scaled(values)
        low, high = (float(known.min()), float(known.max())) if len(known) else (0.0, 1.0)
        if from_zero and not log:
            low = min(low, 0.0)
        spare = 0.04 * (high - low) if high > low else (0.15 if log else 0.5)
        self.low = low if low == 0 and not log else low - spare
        self.high = high + spare

    def _scaled(self, values: Any) -> NDArray[np.float64]:
        given = np.asarray(values, np.float64)
        return np.log10(given) if self.log else given

    def at(self, values: Any) -> Any:
        begin, end = self.ends
        return begin + (self._scaled(values) - self.low) / (self.high - self.low) * (end - begin)

    def ticks(self) -> list[tuple[float, str]]:
        """Round values between the ends, and their text."""
        found = self._log_ticks() if self.log else _linear_ticks(self.low, self.high)
        return [(value, f"{value:,.10g}" if abs(value) >= 1e-9 else "0") for value in found]

    def _log_ticks(self) -> list[float]:
        powers = range(math.floor(self.low), math.ceil(self.high) + 1)
        for digits in ((1,), (1, 3), (1, 2, 5), (1, 1.5, 2, 3, 5, 7)):
            found = [digit * 10.0**power for power in powers for digit in digits]
            found = [value for value in found if self.low <= math.log10(value) <= self.high]
            if len(found) >= 3:
                return found[:: -(-len(found) // 6)]
        # So short a piece of a logarithmic axis is nearly linear.
        return _linear_ticks(10**self.low, 10**self.high)


def _linear_ticks(low: float, high: float) -> list[float]:
    step = 10 ** math.floor(math.log10((high - low) / 3))
    factors = iter((2.0, 2.5, 2.0) * 4)
    while (high - low) / step > 6:
        step *= next(factors)
    return [i * step for i in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)]


class _Frame:
    """Two axes with their ticks and names, and a legend below."""

    left, right, top, bottom = 52, 24, 12, 44

    def __init__(
        self, size: tuple[int, int], x: Any, y: Any, log: str, from_zero: bool, x_label: str, y_label: str
    ) -> None:
        self.width, self.height = size
        self.x_label, self.y_label = x_label, y_label
        self.x = _Axis(x, (self.left, self.width - self.right), "x" in log, False)
        self.y = _Axis(y, (self.height - self.bottom, self.top), "y" in log, from_zero)

    def draw(self, parts: Sequence[str], legend: Mapping[str, tuple[str, bool]]) -> str:
        """The whole SVG; the legend maps each name to a colour and whether its line is dashed."""
        middle_x = (self.left + self.width - self.right) / 2
        middle_y = (self.top + self.height - self.bottom) / 2
        grid = []
        for value, text in self.y.ticks():
            y = self.y.at(value)
            grid.append(
                f'<line x1="{self.left}" x2="{self.width - self.right}" y1="{y:.1f}" y2="{y:.1f}" '
                f'stroke="currentColor" stroke-opacity=".15"/>'
                f'<text x="{self.left - 6}" y="{y + 4:.1f}" text-anchor="end">{text}</text>'
            )
        for value, text in self.x.ticks():
            grid.append(
                f'<text x="{self.x.at(value):.1f}" y="{self.height - self.bottom + 16}" '
                f'text-anchor="middle">{text}</text>'
            )
        keys, below = self._legend(legend)
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width} {self.height + below}" '
            f'width="{self.width}" font-family="sans-serif" font-size="11" fill="currentColor" role="img" '
            f'aria-label="{html.escape(self.y_label)} by {html.escape(self.x_label)}">'
            f"{''.join(grid)}{''.join(parts)}{keys}"
            f'<text x="{middle_x:.0f}" y="{self.height - 8}" text-anchor="middle">{html.escape(self.x_label)}</text>'
            f'<text x="14" y="{middle_y:.0f}" text-anchor="middle" transform="rotate(-90 14 {middle_y:.0f})">'
            f"{html.escape(self.y_label)}</text></svg>"
        )

    def _legend(self, legend: Mapping[str, tuple[str, bool]]) -> tuple[str, int]:
        """The names in as many lines as they need, and the height of those."""
        parts, along, line = [], self.left, 0
        for name, (colour, dashed) in legend.items():
            room = 34 + round(6.2 * len(name))
            if along > self.left and along + room > self.width:
                along, line = self.left, line + 1
            y = self.height + 8 + 16 * line
            parts.append(
                f'<line x1="{along}" x2="{along + 16}" y1="{y}" y2="{y}" stroke="{colour}" stroke-width="3"'
                f"{_DASHED if dashed else ''}/>"
                f'<text x="{along + 21}" y="{y + 4}">{html.escape(name)}</text>'
            )
            along += room
        return "".join(parts), 16 * (line + 1) if legend else 0


_DASHED = ' stroke-dasharray="5 3"'


def pick_colours(names: Sequence[str]) -> dict[str, tuple[str, bool]]:
    """A colour for each name, and whether its line is dashed, which sets the ninth apart from the first."""
    return {name: (COLOURS[i % len(COLOURS)], i // len(COLOURS) % 2 == 1) for i, name in enumerate(names)}


def line_chart(
    lines: Mapping[str, tuple[Sequence[float], Sequence[float]]],
    *,
    x_label: str,
    y_label: str,
    log: bool | str = False,
    dots_only: bool | Collection[str] = False,
    dots: bool = True,
    from_zero: bool = True,
    colours: Mapping[str, tuple[str, bool]] | None = None,
    size: tuple[int, int] = (460, 300),
) -> str:
    """Lines or dots in one SVG, each with its (x, y), a legend below.

    Parameters
    ----------
    log
        The axes on a log scale: "x", "y", or "xy" (True).
    dots_only
        Draw no lines between the dots: for all, or for the names given.
    dots
        Whether lines have dots.
    from_zero
        Whether y begins at 0, unless it is on a log scale.
    colours
        As `pick_colours` returns them, to make several charts agree.
    """
    scales = ("xy" if log else "") if isinstance(log, bool) else log
    colours = pick_colours(list(lines)) if colours is None else colours
    xs, ys = (np.concatenate([np.asarray(pair[i], float) for pair in lines.values()]) for i in (0, 1))
    frame = _Frame(size, xs, ys, scales, from_zero, x_label, y_label)
    parts = []
    for name, pair in lines.items():
        colour, dashed = colours[name]
        x, y = frame.x.at(pair[0]), frame.y.at(pair[1])
        alone = dots_only if isinstance(dots_only, bool) else name in dots_only
        if not alone:
            places = " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(x, y, strict=True))
            parts.append(
                f'<polyline points="{places}" fill="none" stroke="{colour}" stroke-width="2" '
                f'stroke-linejoin="round"{_DASHED if dashed else ""}/>'
            )
        if alone or dots:
            parts += [
                f'<circle cx="{a:.1f}" cy="{b:.1f}" r="{2 if alone else 3}" fill="{colour}">'
                f"<title>{html.escape(name)}: {u:,.4g}, {v:,.4g}</title></circle>"
                for a, b, u, v in zip(x, y, *pair, strict=True)
            ]
    return frame.draw(parts, {name: colours[name] for name in lines} if len(lines) > 1 else {})


def bubble_chart(
    bubbles: Mapping[str, tuple[float, float, float]],
    *,
    x_label: str,
    y_label: str,
    format_size: Callable[[float], str] = str,
    colours: Mapping[str, tuple[str, bool]] | None = None,
    size: tuple[int, int] = (860, 440),
) -> str:
    """A bubble and a name for each (x, y, size), with x on a log scale; the area of a bubble shows its size, and its
    name ends in `format_size` of it."""
    colours = pick_colours(list(bubbles)) if colours is None else colours
    xs, ys, sizes = (np.array([values[i] for values in bubbles.values()], float) for i in range(3))
    frame = _Frame(size, xs, ys, "x", False, x_label, y_label)
    # Leave room for the largest bubble, and for names beside the outermost ones.
    largest = 32.0
    for axis, before, after in ((frame.x, 0.10, 0.16), (frame.y, 0.12, 0.12)):
        span = axis.high - axis.low
        axis.low, axis.high = axis.low - before * span, axis.high + after * span
    radii = np.maximum(3.0, largest * np.sqrt(sizes / sizes.max()))
    places = list(zip(bubbles, frame.x.at(xs).tolist(), frame.y.at(ys).tolist(), radii.tolist(), strict=True))
    parts = []
    for name, x, y, radius in sorted(places, key=lambda place: -place[3]):
        parts.append(
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius:.1f}" fill="{colours[name][0]}" fill-opacity=".4" '
            f'stroke="{colours[name][0]}" stroke-width="1.5">'
            f"<title>{html.escape(name)}: {bubbles[name][0]:,.3g}, {bubbles[name][1]:,.4g}, "
            f"{html.escape(format_size(bubbles[name][2]))}</title></circle>"
        )
    taken: list[tuple[float, float, float, float]] = []
    for name, x, y, radius in sorted(places, key=lambda place: place[2]):
        text, colour = f"{name} · {format_size(bubbles[name][2])}", colours[name][0]
        wide = 6.1 * len(text)
        others = [place[1:] for place in places if place[0] != name]
        left, base = _free_place(x, y, radius, wide, size[0], taken, others)
        taken.append((left, base - 10, left + wide, base + 3))
        end = (min(max(x, left), left + wide), min(max(y, base - 10), base + 3))
        if math.dist((x, y), end) > radius + 7:
            parts.append(
                f'<line x1="{x:.1f}" y1="{y:.1f}" x2="{end[0]:.1f}" y2="{end[1]:.1f}" stroke="{colour}" '
                f'stroke-opacity=".7"/>'
            )
        parts.append(f'<text x="{left:.1f}" y="{base:.1f}">{html.escape(text)}</text>')
    return frame.draw(parts, {})


def _free_place(
    x: float,
    y: float,
    radius: float,
    wide: float,
    width: int,
    names: Sequence[tuple[float, float, float, float]],
    bubbles: Sequence[tuple[float, float, float]],
) -> tuple[float, float]:
    """A place for a bubble's name: near it, over no other name, and over as few bubbles as possible."""
    near = radius + 5
    choices = [(x + near, y + 4), (x - near - wide, y + 4), (x - wide / 2, y - near), (x - wide / 2, y + near + 8)]
    choices += [(x + near, y + 4 + step) for step in (-15, 15, -30, 30, -45, 45, -60, 60)]
    choices += [(x - near - wide, y + 4 + step) for step in (-15, 15, -30, 30, -45, 45)]

    def cost(place: tuple[int, tuple[float, float]]) -> float:
        number, (left, base) = place
        right, top = left + wide, base - 10
        outside = left < _Frame.left or right > width - 4
        on_names = sum(not (right < a or c < left or base + 3 < b or d < top) for a, b, c, d in names)
        on_bubbles = sum(left - r < cx < right + r and top - r < cy < base + 3 + r for cx, cy, r in bubbles)
        return 1000 * outside + 100 * on_names + 5 * on_bubbles + number / 10

    return min(enumerate(choices), key=cost)[1]


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
