"""Figures that are kept of comparisons: `results.json` without what only the report draws.

{"format": 2, "data": {…}, "runs": [{"name": …, "taken": …, "machine": {…}, …}, …]}

A run has metrics, their intervals, recall by tenths of the labels (`deciles`) and which of its predictions were right
(`hits`), so that any two runs of a file can be tested against each other. Each run has a date, a machine, versions
and a seed of its own: some are taken anew while the others stay. In format 1 they stood once, for all runs of a file.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from umpteen.comparing.programs import BASELINE
from umpteen.errors import DataError

FORMAT = 2
#: What a comparison states once, and figures of each run; its program's version and seed are the run's anyway.
STAMPS = ("taken", "machine", "threads", "rounds", "umpteen_version", "baseline", "timed")
#: What figures kept before had not.
_LATER = ("intervals", "hits", "deciles", "over_runs")
#: What means little where the machine was busy with other things; processor times do not.
_TIMES = ("train_seconds", "predict_seconds", "predict_ms_per_row", "load_seconds", "single_ms")

Figures = dict[str, Any]


def keep_figures(result: dict[str, Any], *, times: bool = True) -> Figures:
    """A result without studies; and without times of the clock, where the machine was busy with other things too."""
    dropped = {"studies", *(() if times else _TIMES)}
    runs = []
    for run in result["runs"]:
        kept = {key: value for key, value in run.items() if key not in dropped}
        if "relative" in kept:
            kept["relative"] = {key: value for key, value in kept["relative"].items() if key not in dropped}
        if "metrics" in kept:
            kept["deciles"] = {
                key: [decile[key] for decile in kept["metrics"]["by_decile"]]
                for key in ("lowest_frequency", "highest_frequency", "recall@5")
            }
            kept["metrics"] = {key: value for key, value in kept["metrics"].items() if key != "by_decile"}
        runs.append(kept)
    return _stamp_runs(result | {"runs": runs, "timed": times})


def _stamp_runs(result: dict[str, Any]) -> Figures:
    stamps = {key: result[key] for key in STAMPS}
    return {"format": FORMAT, "data": result["data"], "runs": [run | stamps for run in result["runs"]]}


def merge_figures(old: Figures, new: Figures) -> Figures:
    """Kept figures with some runs taken anew; the others stay as they are, with their dates and machines. So does a
    run that was taken anew without times of the clock and has the same metrics: it only gets what it had not."""
    if old["data"]["name"] != new["data"]["name"]:
        raise DataError(f"the figures kept are of {old['data']['name']}, these are of {new['data']['name']}")
    taken = {run["name"]: run for run in new["runs"]}
    if len(taken) > 1 and any(run["name"] == BASELINE for run in old["runs"]):
        taken.pop(BASELINE, None)  # it ran for the others' times to be given in its own; what is kept of it stays
    kept = [_renew(run, taken.pop(run["name"])) if run["name"] in taken else run for run in old["runs"]]
    return new | {"runs": [*kept, *taken.values()]}


def _renew(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    same = "metrics" in old and _rounded(old["metrics"]) == _rounded(new.get("metrics", {}))
    if not same or new.get("timed", True) or not old.get("timed", True):
        return new
    return old | {key: new[key] for key in _LATER if key in new}


def _rounded(metrics: dict[str, Any]) -> dict[str, float]:
    """To the digits that files have."""
    return {key: float(f"{value:.6g}") for key, value in metrics.items() if "@" in key}


def read_figures(path: Path) -> Figures | None:
    """What is kept of a comparison; None of a file that another benchmark keeps."""
    found = read_json(path)
    if "data" not in found:
        return None
    if found["format"] not in (1, FORMAT):
        raise DataError(f"{path}: format must be 1 or {FORMAT}, but is {found['format']!r}")
    return _stamp_runs({"timed": True} | found) if found["format"] == 1 else found


def read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text())
    except ValueError as error:
        raise DataError(f"{path}: not JSON ({error})") from error
