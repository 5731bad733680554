"""How much memory work needs, how much is free, and an error before it runs out."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path

from umpteen.errors import MemoryLimitError


@dataclass(frozen=True)
class Estimate:
    """What a training run will need.

    peak_bytes
        Memory beyond the data the caller already holds.
    model_bytes
        The finished model.
    """

    peak_bytes: int
    model_bytes: int


def available_memory() -> int | None:
    """Bytes this process may still use: the system's free memory, within its control group. None if unknown."""
    limits = []
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                limits.append(int(line.split()[1]) * 1024)
    with contextlib.suppress(OSError, ValueError):
        group = Path("/sys/fs/cgroup")
        limit = (group / "memory.max").read_text().strip()
        if limit != "max":
            used = int((group / "memory.current").read_text())
            # Cached files count as used, but are dropped when memory is needed.
            for line in (group / "memory.stat").read_text().splitlines():
                if line.startswith("inactive_file "):
                    used -= int(line.split()[1])
            limits.append(max(0, int(limit) - used))
    if not limits:
        with contextlib.suppress(OSError, ValueError, AttributeError):
            limits.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    return min(limits, default=None)


def check_fits(estimate: Estimate, advice: str) -> None:
    """Refuses work that would not fit, before it starts."""
    available = available_memory()
    if available is not None and estimate.peak_bytes > available:
        raise MemoryLimitError(
            f"this would need {format_bytes(estimate.peak_bytes)} of memory, "
            f"but only {format_bytes(available)} is available; {advice}"
        )


def format_bytes(n: float) -> str:
    """A size in words: 1.5 GB."""
    for unit in ("B", "KB", "MB", "GB"):
        if abs(n) < 1000:
            return f"{n:.0f} {unit}" if unit == "B" or n >= 100 else f"{n:.1f} {unit}"
        n /= 1000
    return f"{n:.1f} TB"
