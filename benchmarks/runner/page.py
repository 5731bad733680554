"""The page of all results, written from kept figures and published ones; no figure in it is typed by hand.

Published figures are a JSON file. `sources` are papers and the like, by a key: a short name and a title. `entries`
are figures: kind ("paper", "authors" for the authors' own program, "peer"), data, method or program, source (a key),
and any of P, nDCG and PSP (a list at 1, 3 and 5; null where not given), deviation (P's), O (training time in
omikuji's), model_bytes, note. One of a paper also names its table and its row or column there.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import table
from benchmarks.runner.figures import read_figures, read_json
from umpteen.comparing.page import describe_machine, describe_time, format_metric, format_p
from umpteen.comparing.programs import BASELINE
from umpteen.comparing.running import unpack_bytes, unpack_hits
from umpteen.evaluation.metrics import KS
from umpteen.evaluation.significance import compare_with_best, find_best, score_hits
from umpteen.memory import format_bytes


def write_page(folder: Path, published: Path) -> str:
    """The page in Markdown."""
    found: dict[str, list[dict[str, Any]]] = {}
    for path in sorted(folder.glob("*.json")):
        result = read_figures(path)
        if result is not None:
            found.setdefault(result["data"]["name"], []).append(result | {"file": path.stem})
    others = read_json(published)
    entries, sources = others["entries"], others["sources"]
    here = {entry["data"] for entry in entries} & set(found)
    parts = [
        "# Results",
        "Written by `python -m benchmarks results` from [benchmarks/results](../benchmarks/results), which `python "
        "-m benchmarks run` keeps, and from [published.json](../benchmarks/published.json), which holds figures of "
        "others with their sources. Nothing here is typed by hand.",
        "All in percent. Each program learned from the training rows and was asked for five labels of each test row. "
        "**O** is one default run of omikuji on the same data, in the same comparison: times in O compare, seconds "
        "of different machines do not. Where the machine had other work, O is the ratio of processor times, marked "
        "*cpu*. Methods have their default settings but for those named. Memory is what "
        "training takes beyond the data, beside what the method states before it starts; the last column is the time "
        "of a row among all test rows, and of one row asked for alone.",
        "In bold are the best P and nDCG, and all that the test rows cannot tell from them (p of 0.05 or more; see "
        "*how sure*), unless that is everybody. Where figures are mean ± standard deviation, programs were trained "
        "anew with several seeds. *How sure* has the 95 % interval of the bootstrap over test rows, and p: how often "
        "chance alone makes a difference from the best as large as the one seen, by flipping the signs of the rows' "
        "differences, corrected for the number of programs (Holm). *Tail* is recall@5 by tenths of the labels, "
        "frequent to rare. Under each set stands where and when its runs were taken, each with the code of that "
        "day, and the command that takes them. Runs that are kept from before these were counted have "
        "neither intervals nor tests.",
        *(_section(of_data, entries, sources) for of_data in found.values()),
        "## Sets that are not here",
        "What papers print of sets that have no figures above.",
        _published([each for each in entries if each["kind"] == "paper" and each["data"] not in here], sources, True),
        "## Sources",
        "\n".join(f"- {each['short']}: {each['title']}" for each in sources.values()),
    ]
    return "\n\n".join(parts) + "\n"


def _section(results: Sequence[dict[str, Any]], entries: Sequence[dict[str, Any]], sources: dict[str, Any]) -> str:
    """A data set: all runs on it; of two with one name, the first."""
    data = results[0]["data"]
    here = [entry for entry in entries if entry["data"] == data["name"]]
    runs: dict[str, dict[str, Any]] = {}
    for result in results:
        for run in result["runs"]:
            # O is omikuji's time and nobody else's: where it is not the baseline there is none.
            dropped = () if run["baseline"] == BASELINE else ("relative",)
            runs.setdefault(run["name"], {key: value for key, value in run.items() if key not in dropped})
    done = [run for run in runs.values() if run["status"] == "done"]
    gains = _gains(done, data)
    parts = [
        f"## {data['name']}",
        f"{data['train_rows']:,} training and {data['test_rows']:,} test rows, {data['n_features']:,} features, "
        f"{data['n_labels']:,} labels, {data['labels_per_row']:.2f} a row.",
        _ours([run for run in done if not run["peer"]], done, here, gains),
        _peers([run for run in done if run["peer"]], here),
        _published([entry for entry in here if entry["kind"] != "peer"], sources),
        _certainty(done, gains),
        _tail(done),
        _origins(list(runs.values())),
        *(_command(result["file"], runs.values()) for result in results),
        *(f"{run['name']} failed: `{run['error']}`" for run in runs.values() if run["status"] == "failed"),
    ]
    return "\n\n".join(part for part in parts if part)


def _origins(runs: Sequence[dict[str, Any]]) -> str:
    """Where and when runs were taken: a line for each machine, and on it when which of them were."""
    taken: dict[str, dict[str, list[str]]] = {}
    for run in runs:
        place = f"{describe_machine(run['machine'])}; {run['threads']} threads; umpteen {run['umpteen_version']}"
        place += "" if run["timed"] else "; busy with other things too, so no times of the clock"
        taken.setdefault(place, {}).setdefault(describe_time(run["taken"]), []).append(run["name"])
    most = max((names for times in taken.values() for names in times.values()), key=len)
    rest = "all" if len(most) == len(runs) else "all others"
    lines = []
    for place, times in taken.items():
        ordered = sorted(times.items(), key=lambda item: item[1] is most)
        parts = [f"{rest if names is most else ', '.join(names)} at {time}" for time, names in ordered]
        lines.append(f"{place}. Taken: {'; '.join(parts)}.")
    return "<br>".join(lines)


def _gains(done: Sequence[dict[str, Any]], data: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Metric -> run -> what each test row adds to it, of the runs whose hits are kept."""
    if "n_true" not in data:
        return {}
    n_true = unpack_bytes(data["n_true"]).astype(np.int64)
    scores = {run["name"]: score_hits(unpack_hits(run["hits"]), n_true) for run in done if "hits" in run}
    metrics = next(iter(scores.values()), {})
    return {metric: {name: each[metric].gain for name, each in scores.items()} for metric in metrics}


def _best_is_tested(done: Sequence[dict[str, Any]], metric: str, gains: dict[str, Any]) -> bool:
    return max(done, key=lambda run: run["metrics"][metric])["name"] in gains


def _certainty(done: Sequence[dict[str, Any]], gains: dict[str, dict[str, Any]]) -> str:
    """Intervals of precision, and how likely a run differs from the best by chance alone."""
    keys = [f"P@{k}" for k in KS]
    tests = {key: compare_with_best(gains[key]) for key in keys if len(gains.get(key, ())) > 1}
    rows = []
    for run in done:
        if "intervals" in run and run["name"] in gains.get("P@1", ()):
            spans = ["{:.1f} to {:.1f}".format(*run["intervals"][key]) for key in (*keys, "PSP@5")]
            p = [format_p(tests[key][1][run["name"]]) if run["name"] in tests[key][1] else "best" for key in tests]
            rows.append([run["name"], *spans, " / ".join(p)])
    header = ["how sure", *(f"{key}, 95 %" for key in (*keys, "PSP@5")), "p of P@1 / 3 / 5"]
    return table(header, rows) if rows else ""


def _tail(done: Sequence[dict[str, Any]]) -> str:
    """Recall by tenths of the labels."""
    kept = [run for run in done if "deciles" in run]
    if not kept:
        return ""
    spans = zip(kept[0]["deciles"]["lowest_frequency"], kept[0]["deciles"]["highest_frequency"], strict=True)
    header = ["tail: training rows of a label", *(f"{b:,}" if a == b else f"{b:,} to {a:,}" for a, b in spans)]
    return table(header, [[run["name"], *(f"{each:.1f}" for each in run["deciles"]["recall@5"])] for run in kept])


def _command(file: str, runs: Iterable[dict[str, Any]]) -> str:
    seeds = max((len(run["over_runs"]["seeds"]) for run in runs if "over_runs" in run), default=1)
    more = f" --seeds {seeds}" if seeds > 1 else ""
    return f"`python -m benchmarks run benchmarks/{file}.toml --result benchmarks/results/{file}.json{more}`"


def _ours(
    runs: Sequence[dict[str, Any]],
    done: Sequence[dict[str, Any]],
    here: Sequence[dict[str, Any]],
    gains: dict[str, dict[str, Any]],
) -> str:
    """Each of our methods beside what its own paper prints, and the best peer of the same comparison."""
    if not runs:
        return ""
    header = ["method", "P@1 / 3 / 5", "its paper", "nDCG@1 / 3 / 5"]
    header += ["PSP@1 / 3 / 5", "O", "memory (stated)", "model", "ms a row: of many, one"]
    best = {key: find_best(of) for key, of in gains.items() if _best_is_tested(done, key, of)}
    rows = []
    programs = list(dict.fromkeys(run["program"] for run in runs))  # a program's settings stand together
    for run in sorted(runs, key=lambda run: programs.index(run["program"])):
        own = [entry for entry in here if entry.get("method") == entry["source"] == run["program"]]
        rows.append(
            [
                run["name"],
                _triple(run, "P", best),
                _listed(own),
                _triple(run, "nDCG", best),
                _triple(run, "PSP", best),
                _in_o(run),
                _memory(run),
                format_bytes(run["model_bytes"]),
                _asking(run),
            ]
        )
    peers = [run for run in done if run["peer"]]
    if peers:
        top = max(peers, key=lambda run: run["metrics"]["P@1"])
        name = f"*best peer here: {top['name']} {top['version']}*"
        figures = [_triple(top, key, best) for key in ("P", "nDCG", "PSP")]
        sizes = [_in_o(top), _memory(top), format_bytes(top["model_bytes"]), _asking(top)]
        rows.append([name, figures[0], "", *figures[1:], *sizes])
    return table(header, rows)


def _peers(runs: Sequence[dict[str, Any]], here: Sequence[dict[str, Any]]) -> str:
    """Peers of the same comparison, and those measured elsewhere on the same files."""
    rows = [
        [
            f"{run['name']} {run['version']}",
            "this comparison",
            _triple(run, "P"),
            f"{run['metrics']['nDCG@5']:.2f}",
            _triple(run, "PSP"),
            _in_o(run),
            _memory(run),
            format_bytes(run["model_bytes"]),
            _asking(run),
        ]
        for run in runs
    ]
    for entry in here:
        if entry["kind"] == "peer":
            rows.append(
                [
                    entry["program"],
                    "elsewhere",
                    _figures(entry.get("P")),
                    f"{entry['nDCG'][2]:.2f}" if entry.get("nDCG") else "–",
                    _figures(entry.get("PSP")),
                    f"{entry['O']:g}" if entry.get("O") else "–",
                    "–",
                    format_bytes(entry["model_bytes"]) if entry.get("model_bytes") else "–",
                    "–",
                ]
            )
    if not rows:
        return ""
    header = ["peer", "measured in", "P@1 / 3 / 5", "nDCG@5", "PSP@1 / 3 / 5", "O", "memory", "model"]
    return table([*header, "ms a row: of many, one"], rows)


def _in_o(run: dict[str, Any]) -> str:
    relative = run.get("relative", {})
    for key, mark in (("train_seconds", ""), ("train_cpu_seconds", " cpu")):
        if key in relative:
            return f"{relative[key]:.2f}{mark}"
    return "–"


def _memory(run: dict[str, Any]) -> str:
    """How far memory rose while it trained, and what it had said it would take at most."""
    peak, stated = run.get("train_peak_bytes"), (run.get("estimate") or {}).get("peak_bytes")
    found = format_bytes(peak) if peak is not None else "–"
    return f"{found} ({format_bytes(stated)})" if stated is not None else found


def _asking(run: dict[str, Any]) -> str:
    """Milliseconds of a row among all test rows, and of one alone."""
    if "predict_ms_per_row" not in run:
        return "–"
    return f"{run['predict_ms_per_row']:.3f}, {run['single_ms']['p50']:.2f}"


def _triple(run: dict[str, Any], name: str, best: dict[str, set[str]] | None = None) -> str:
    cells = []
    for k in KS:
        value = format_metric(run, f"{name}@{k}")
        is_best = run["name"] in (best or {}).get(f"{name}@{k}", ())
        cells.append(f"**{value}**" if is_best else value)
    return " / ".join(cells)


def _published(entries: Sequence[dict[str, Any]], sources: dict[str, Any], with_data: bool = False) -> str:
    """What others print, and where: papers with table and row; and what authors' programs reached on these files."""
    rows = []
    for entry in sorted(entries, key=lambda entry: (entry["data"] if with_data else "", entry["method"])):
        short = sources[entry["source"]]["short"]
        where = "authors' program, these files"
        if entry["kind"] == "paper":
            where = f"{short}, {entry['table']}: {entry['row']}"
        more = [str(entry["note"])] if entry.get("note") else []
        more += [f"{entry['O']:g} O"] if entry.get("O") else []
        more += [format_bytes(entry["model_bytes"])] if entry.get("model_bytes") else []
        cells = [entry["method"], _figures(entry["P"], entry.get("deviation")), where, "; ".join(more)]
        rows.append([entry["data"], *cells] if with_data else cells)
    header = ["published", "P@1 / 3 / 5", "where", "note"]
    return table(["data", *header] if with_data else header, rows) if rows else ""


def _figures(values: Sequence[float | None] | None, deviations: Sequence[float] | None = None) -> str:
    if not values:
        return "–"
    spread = [f" ± {each:.2f}" for each in deviations] if deviations else [""] * len(values)
    cells = zip(values, spread, strict=True)
    return " / ".join("–" if value is None else f"{value:.2f}{more}" for value, more in cells)


def _listed(entries: Sequence[dict[str, Any]]) -> str:
    """Several entries of one cell, each with what is special about it."""
    cells = [_figures(entry["P"]) + (f" ({entry['note']})" if entry.get("note") else "") for entry in entries]
    return "<br>".join(cells) or "–"
