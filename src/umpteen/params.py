"""Checks that parameters share, so that a wrong value is named the same way everywhere."""

from __future__ import annotations

import math
import numbers
from typing import Any

from umpteen.errors import ParamError

#: More than any kernel's 32-bit counters hold.
LARGEST_COUNT = 2**31 - 1


def check_count(name: str, value: Any, low: int = 1, high: int = LARGEST_COUNT) -> int:
    """A whole number in a range."""
    whole = isinstance(value, numbers.Real) and not isinstance(value, bool) and math.isfinite(value)
    if not whole or int(value) != value or value < low:
        raise ParamError(f"{name} must be an integer of at least {low}, but is {value!r}")
    if value > high:
        raise ParamError(f"{name} must be at most {high}, but is {value!r}")
    return int(value)


def check_number(name: str, value: Any, low: float, *, above: bool = False) -> float:
    """A finite number of at least `low`, or above it."""
    finite = isinstance(value, numbers.Real) and not isinstance(value, bool) and math.isfinite(value)
    if not finite or value < low or (above and value == low):
        raise ParamError(
            f"{name} must be a finite number {'above' if above else 'of at least'} {low:g}, but is {value!r}"
        )
    return float(value)


def check_flag(name: str, value: Any) -> bool:
    """True or False, and nothing that only looks like it."""
    if not isinstance(value, bool) and type(value).__name__ not in ("bool", "bool_"):
        raise ParamError(f"{name} must be true or false, but is {value!r}")
    return bool(value)
