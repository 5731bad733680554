"""A record as one text that still knows which part of it came from which field.

    FieldText("Herring\\nQuotas in the sea", (("title", 0, 7), ("abstract", 8, 25)))

Wherever a text is taken this is one; features of single fields look at the places.
"""

from __future__ import annotations

from typing import Self


class FieldText(str):
    """The texts of several fields, joined by newlines, and where each stands: name, from, to."""

    __slots__ = ("places",)
    places: tuple[tuple[str, int, int], ...]

    def __new__(cls, text: str, places: tuple[tuple[str, int, int], ...] = ()) -> Self:
        made = super().__new__(cls, text)
        made.places = places
        return made

    def place(self, field: str) -> tuple[int, int]:
        """From where to where a field stands; an empty place if the record lacks it."""
        return next(((begin, end) for name, begin, end in self.places if name == field), (0, 0))
