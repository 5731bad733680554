"""Explanations of text: the words that count for and against a label, as data, coloured terminal text and HTML."""

from __future__ import annotations

import html
import re
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from umpteen.models.explanation import Explanation
from umpteen.printing import printable
from umpteen.text.features import TextFeatures
from umpteen.text.tfidf import Span
from umpteen.text.with_terms import WithTerms

#: Words that are listed one by one; the others are added up.
_WORDS_SHOWN = 8


class Line(NamedTuple):
    """One line of an account that adds up: what it is, how much it adds, and which kind of line it is."""

    text: str
    value: float
    kind: str  # "word", "rest" of the words, "base", or "sum" of all lines before


@dataclass(frozen=True, eq=False)
class TextExplanation:
    """Why a text was given a label.

    Attributes
    ----------
    text, label : str
    score : float
        The model's score.
    probability : float or None
        None if the model is not calibrated.
    family : str
        The model's family: in "linear", "low-rank" and "blend" models contributions and `base` add up to the score;
        in a "forest" they are shares of the trees' mean, in an "embedding" of the neighbours' votes; in a
        "label-tree" they add up to the margins on the way to the label.
    base : float
        The part of the score that comes from no word.
    explained : float
        `base` and all contributions added up: the score, but for families where it is no such sum.
    words : list of (str, float)
        Terms of the text and their contributions, the largest first.
    spans : list of (start, end, contribution)
        Where the terms occur; a term that occurs several times divides its contribution between them.
    unknown : list of str
        Words of the text the model has never seen.
    votes : list of dict
        The voters, strongest first: trees with their splits, or neighbours.
    note : str
        The votes in a few words; empty where nothing votes.
    terms : list of dict
        The term of the label's concept that the text has, if the model looks for terms: its `text`, `language` and
        `kind` in the vocabulary, and its `places` in the text, [start, end] of each word.
    """

    text: str
    label: str
    score: float
    probability: float | None
    family: str
    base: float
    words: list[tuple[str, float]]
    spans: list[tuple[int, int, float]]
    unknown: list[str] = field(default_factory=list)
    votes: list[dict[str, Any]] = field(default_factory=list)
    note: str = ""
    explained: float = 0.0
    terms: list[dict[str, Any]] = field(default_factory=list)

    def account(self) -> list[Line]:
        """The largest contributions, the sum of the others, the base, and the sum of all."""
        return add_up(self.words, self.base, self.explained, self.score)

    def as_dict(self) -> dict[str, Any]:
        return {
            "label": self.label,
            "score": self.score if np.isfinite(self.score) else None,
            "probability": self.probability,
            "family": self.family,
            "base": self.base,
            "explained": self.explained,
            "words": [{"word": word, "contribution": value} for word, value in self.words],
            "spans": [{"start": s, "end": e, "contribution": value} for s, e, value in self.spans],
            "unknown": self.unknown,
            "votes": self.votes,
            "note": self.note,
            "terms": self.terms,
        }

    def __str__(self) -> str:
        lines = [self._headline()]
        lines += [f"  {line.value:+8.3f}  {line.text}" for line in self.account()]
        return "\n".join(printable(line) for line in [*lines, *self._notes()])

    def _headline(self) -> str:
        probability = f", probability {self.probability:.2f}" if self.probability is not None else ""
        return f"{self.label}: score {self.score:.3f}{probability}"

    def _notes(self) -> list[str]:
        notes = [self.note] if self.note else []
        if self.unknown:
            notes.append(f"words the model does not know: {', '.join(self.unknown[:10])}")
        return notes

    def __rich__(self) -> Any:
        """Coloured text for a terminal: words for the label on green, words against it on red."""
        from rich.console import Group
        from rich.text import Text

        shown, at = Text(), 0
        for start, end, strength in self._strengths():
            if end <= 2000 and abs(strength) >= 0.05:
                shade = int(60 + 110 * min(1.0, abs(strength)))
                colour = f"on rgb(0,{shade},40)" if strength > 0 else f"on rgb({shade},20,20)"
                shown.append(printable(self.text[at:start], lines=True))
                style = f"white {colour}" + (" bold" if abs(strength) > 0.5 else "")
                shown.append(printable(self.text[start:end], lines=True), style)
                at = end
        shown.append(printable(self.text[at:2000], lines=True))
        head = Text(printable(self._headline()), style="bold")
        largest = max((abs(value) for _, value in self.words), default=1.0) or 1.0
        table = Text()
        for line in self.account():
            bar = "█" * max(1, round(16 * abs(line.value) / largest)) if line.kind == "word" else ""
            colour = "green" if line.value > 0 else "red"
            table.append(f"  {line.value:+8.3f} ", style="bold" if line.kind == "sum" else "dim")
            table.append(f"{bar:<17}", style=colour).append(f"{printable(line.text)}\n", style=_STYLES[line.kind])
        notes = Text("\n".join(map(printable, self._notes())), style="dim")
        return Group(head, shown, table, notes) if notes.plain else Group(head, shown, table)

    def to_html(self) -> str:
        """The text with its words highlighted; a fragment that needs no style sheet and is safe to embed."""
        parts, at = [], 0
        for start, end, strength in self._strengths():
            if start < at:  # words inside a longer term that is already shown
                continue
            parts.append(html.escape(self.text[at:start]))
            colour = "34,160,90" if strength > 0 else "208,60,60"
            title = f"{self.text[start:end]}: {'for' if strength > 0 else 'against'} ({strength:+.2f})"
            parts.append(
                f'<mark style="background:rgba({colour},{0.15 + 0.6 * min(1.0, abs(strength)):.2f});color:inherit" '
                f'title="{html.escape(title)}">{html.escape(self.text[start:end])}</mark>'
            )
            at = end
        parts.append(html.escape(self.text[at:]))
        return (
            f'<div class="umpteen-explanation"><p><strong>{html.escape(self._headline())}</strong></p>'
            f"<p>{''.join(parts)}</p>{self._html_account()}"
            + "".join(f"<p><small>{html.escape(note)}</small></p>" for note in self._notes())
            + "</div>"
        )

    def _html_account(self) -> str:
        cell = '<td style="padding:0 .8em 0 0;text-align:{}">{}</td>'
        rows = []
        for line in self.account():
            text = html.escape(line.text)
            shown = (
                f"<strong>{text}</strong>"
                if line.kind == "sum"
                else text
                if line.kind == "word"
                else f"<i>{text}</i>"
            )
            rows.append(f"<tr>{cell.format('right', f'{line.value:+.3f}')}{cell.format('left', shown)}</tr>")
        return f"<table>{''.join(rows)}</table>"

    def _repr_html_(self) -> str:
        return self.to_html()

    def _strengths(self) -> list[tuple[int, int, float]]:
        """Disjoint pieces of the text, from first to last, with strengths in [-1, 1]."""
        marks = np.zeros(len(self.text))
        for start, end, value in self.spans:
            marks[start:end] += value
        largest = float(np.abs(marks).max()) if len(marks) else 0.0
        if largest == 0:
            return []
        edges = np.flatnonzero(np.diff(marks, prepend=0.0, append=0.0))
        return [(a, b, float(marks[a]) / largest) for a, b in pairwise(edges.tolist()) if marks[a] != 0]


def add_up(words: Sequence[tuple[str, float]], base: float, explained: float, score: float) -> list[Line]:
    """The lines of an explanation, the same wherever one is shown: terminal, HTML, API and page."""
    lines = [Line(word, value, "word") for word, value in words[:_WORDS_SHOWN]]
    if rest := words[_WORDS_SHOWN:]:
        lines.append(Line(f"{len(rest)} more", sum(value for _, value in rest), "rest"))
    lines.append(Line("base", base, "base"))
    same = bool(np.isfinite(score)) and abs(explained - score) <= 1e-3 * max(1.0, abs(score))
    return [*lines, Line("score" if same else "sum", explained, "sum")]


#: What a dense vector said, in one line: its numbers mean nothing one by one. Words near it may follow.
MEANING = "(meaning)"
_STYLES = {"word": "", "rest": "italic", "base": "italic", "sum": "bold"}


def place_words(
    places: Sequence[tuple[int, int, int]], contributions: Mapping[int, float]
) -> list[tuple[int, int, float]]:
    """Where contributing features occur in a text, from (begin, end, feature); a feature that occurs several times
    divides its contribution between them."""
    count = Counter(feature for _, _, feature in places)
    return [
        (begin, end, contributions[feature] / count[feature])
        for begin, end, feature in places
        if contributions.get(feature, 0.0) != 0
    ]


def explain_in_words(
    found: Explanation, text: str, features: TextFeatures, classes: Sequence[str], probability: float | None
) -> TextExplanation:
    """A model's explanation with words instead of columns and names instead of ids."""
    contributions = dict(zip(found.features.tolist(), found.contributions.tolist(), strict=True))
    spans = features.spans(text)
    # Hashed columns have no names, so the words of this text name them.
    terms: dict[int, str] = {}
    for span in spans:
        terms.setdefault(span.column, text[span.begin : span.end].lower())
    known = None if features.hashing is not None else features.feature_names_
    of_words = (lambda f: terms.get(f, f"column {f}")) if known is None else lambda f: known[f]
    matched = features.find_terms(text) if isinstance(features, WithTerms) else {}
    own = [matched[f] for f in contributions if f in matched]

    def name(f: int) -> str:
        return _name_term(matched[f].term) if f in matched else str(of_words(f))

    return TextExplanation(
        text=str(text),  # also of a record, whose fields are told by the words
        label=classes[found.label],
        score=found.score,
        probability=probability,
        family=found.family,
        base=found.base,
        words=_add_by_word(text, spans, contributions, features, name),
        spans=place_words(spans, contributions),
        unknown=features.unknown_words(text),
        votes=[_name_vote(vote, name, features.n_features_, classes) for vote in found.votes],
        note=found.note,
        explained=found.explained,
        terms=[{**term.term._asdict(), "places": [list(place) for place in term.places]} for term in own],
    )


def _name_term(term: Any) -> str:
    """A term of the vocabulary, told apart from words of the text."""
    return f"term {term.text!r} ({', '.join(filter(None, (term.language, term.kind)))})"


def _add_by_word(
    text: str,
    spans: Sequence[Span],
    contributions: Mapping[int, float],
    features: TextFeatures,
    name: Callable[[int], str],
) -> list[tuple[str, float]]:
    """Contributions by term, the largest first; those of characters are added to the words they stand in, in equal
    parts if they stand in several, and those of dense vectors to one line."""
    meaning = [f for f in contributions if features.is_of_meaning(f)]
    words = [
        (name(f), value)
        for f, value in contributions.items()
        if not features.is_of_characters(f) and not features.is_of_meaning(f)
    ]
    if len(words) == len(contributions):
        return words
    added: defaultdict[str, float] = defaultdict(float)
    for word, value in words:
        added[word] += value
    if meaning:
        near = features.near_words(text)
        added[f"{MEANING} near {', '.join(near)}" if near else MEANING] += sum(contributions[f] for f in meaning)
    of_characters = {f: value for f, value in contributions.items() if features.is_of_characters(f)}
    runs = [(found.start(), found.end(), _bare(found[0])) for found in re.finditer(r"\S+", text)]
    ends = [end for _, end, _ in runs]
    for begin, end, value in place_words(spans, of_characters):
        first = bisect_right(ends, begin)
        last = next((i for i in range(first, len(runs)) if runs[i][0] >= end), len(runs))
        touched = [word for _, _, word in runs[first:last]] or [text[begin:end]]
        for word in touched:
            added[word] += value / len(touched)
    return sorted(added.items(), key=lambda pair: (-abs(pair[1]), pair[0]))


def _bare(word: str) -> str:
    """A word in lower case, without the punctuation around it."""
    return re.sub(r"^\W+|\W+$", "", word.lower()) or word


def _name_vote(
    vote: dict[str, Any], name: Callable[[int], str], n_features: int, classes: Sequence[str]
) -> dict[str, Any]:
    """A vote with words instead of feature ids and names instead of label ids."""
    named = dict(vote)
    if "splits" in vote:
        named["splits"] = [
            split | {"features": [name(f) if f < n_features else "(constant)" for f in split["features"]]}
            for split in vote["splits"]
        ]
    if "labels" in vote:
        named["labels"] = [classes[label] for label in vote["labels"]]
    return named
