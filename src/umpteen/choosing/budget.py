"""How long choosing and training may take, and how long they took.

Time is the processor time of all threads divided by their number: what the work takes on a machine that does nothing
else. So other programs on the machine do not change a choice.
"""

from __future__ import annotations

import re
import time
from numbers import Real
from typing import Any

from umpteen.errors import ParamError
from umpteen.params import check_number
from umpteen.threads import resolve_threads

#: Seconds, where no budget is given.
DEFAULT_BUDGET = 600.0
_UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
_TIME = re.compile(r"(\d+(?:\.\d+)?)\s*(s|min|m|h|)")


def parse_budget(budget: Any = None) -> float:
    """Seconds, from a number of seconds or text such as "600", "90s", "10m" or "1h"; None is ten minutes."""
    if budget is None:
        return DEFAULT_BUDGET
    if isinstance(budget, Real):
        return check_number("budget", budget, 0, above=True)
    found = _TIME.fullmatch(budget.strip()) if isinstance(budget, str) else None
    if found is None:
        raise ParamError(f"budget must be a time such as 600, 90s, 10m or 1h, but is {budget!r}"[:300])
    return check_number("budget", float(found[1]) * _UNITS[found[2]], 0, above=True)


def format_seconds(seconds: float) -> str:
    """A time in words: 8 s, 12 min, 3.5 h."""
    if seconds < 0.1:
        return f"{seconds:.1g} s"  # "0.0 s, more than 0.0 s" would say nothing
    if seconds < 100:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


class Clock:
    """Seconds of work since it was made."""

    def __init__(self, threads: int | None) -> None:
        self._threads = resolve_threads(threads)
        self._begun = time.process_time()

    def __call__(self) -> float:
        return (time.process_time() - self._begun) / self._threads
