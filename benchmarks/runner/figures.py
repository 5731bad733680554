"""Figures that are kept of comparisons: `results.json` without what only the report draws."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from umpteen.comparing.programs import BASELINE
from umpteen.errors import DataError

_TIMES = (
    "train_seconds", "train_cpu_seconds", "predict_seconds", "predict_ms_per_row", "predict_cpu_seconds",
    "predict_cpu_ms_per_row", "load_seconds", "single_ms",
)  # fmt: skip


def keep_figures(result: dict[str, Any], *, times: bool = True) -> dict[str, Any]:
    """A result without studies and deciles; and without times, where the machine was busy with other things too."""
    dropped = {"studies", *(() if times else (*_TIMES, "relative"))}
    runs = []
    for run in result["runs"]:
        kept = {key: value for key, value in run.items() if key not in dropped}
        if "metrics" in kept:
            kept["metrics"] = {key: value for key, value in kept["metrics"].items() if key != "by_decile"}
        runs.append(kept)
    return {key: value for key, value in result.items() if key != "mistakes"} | {"timed": times, "runs": runs}


def merge_figures(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """Kept figures with some runs taken anew; each run's times stay relative to the baseline it ran beside."""
    if old["data"]["name"] != new["data"]["name"]:
        raise DataError(f"the figures kept are of {old['data']['name']}, these are of {new['data']['name']}")
    taken = {run["name"]: run for run in new["runs"]}
    if len(taken) > 1 and any(run["name"] == BASELINE for run in old["runs"]):
        taken.pop(BASELINE, None)  # it ran to tell the others' times by; what is kept of it stays
    kept = [taken.pop(run["name"], run) for run in old["runs"]]
    return new | {"runs": [*kept, *taken.values()], "timed": old.get("timed", True) and new.get("timed", True)}


def read_figures(path: Path) -> Any:
    try:
        return json.loads(path.read_text())
    except ValueError as error:
        raise DataError(f"{path}: not JSON ({error})") from error
