"""Names and texts of others at a terminal: shown, never obeyed; and no traceback."""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import umpteen
from umpteen.printing import format_json, printable

pytestmark = pytest.mark.slow

EVIL = "\x1b]0;owned\x07\x1b[31mred\x9b2J"
LONE = "half \ud83d"
NAMES = [EVIL, LONE, "\u202egnirts", "plain é 魚 👩‍👩‍👧"]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain é 魚 👩‍👩‍👧 می‌خواهم", "plain é 魚 👩‍👩‍👧 می‌خواهم"),
        (EVIL, r"\x1b]0;owned\x07\x1b[31mred\x9b2J"),
        (LONE, r"half \ud83d"),
        ("a\nb\tc\r\nd\re", r"a\nb\tc\r\nd\re"),
        ("\u202eb\u2066c\u2028\x00\x7f", r"\u202eb\u2066c\u2028\x00\x7f"),
        (Path("a\udcff"), r"a\udcff"),
    ],
)
def test_what_a_terminal_would_obey_is_written_out(text, shown):
    assert printable(text) == shown
    printable(text).encode()


def test_lines_stay_lines():
    assert printable("a\nb\tc\r\nd\re\x1b", lines=True) == "a\nb\tc\nd\\re\\x1b"


def test_json_is_the_same_value_and_can_be_printed():
    value = {name: [name, 1.5] for name in NAMES}
    text = format_json(value, indent=1)
    assert json.loads(text) == value
    assert json.loads(text.encode()) == value
    assert printable(text, lines=True) == text


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A model whose label names and words are of the worst kind."""
    path = tmp_path_factory.mktemp("printing") / "m.model"
    features = umpteen.Tfidf(token_pattern=r"\S+", lowercase=False)
    texts = [f"{EVIL} {LONE} word{i}" for i in range(4)] * 3
    umpteen.Tagger(umpteen.Centroid(), features, calibration=0).fit(texts, [[name] for name in NAMES] * 3, path)
    return path


def run(*words: object, text: str | None = None) -> subprocess.CompletedProcess[bytes]:
    environment = os.environ | {"PYTHONPATH": str(Path(umpteen.__file__).parent.parent), "PYTHONUTF8": "1"}
    code = "import sys; from umpteen.cli.main import main; sys.argv = sys.argv[1:]; main()"
    command = [sys.executable, "-c", code, "umpteen", *map(str, words)]
    given = None if text is None else text.encode("utf-8", "surrogatepass")
    return subprocess.run(command, capture_output=True, env=environment, input=given, timeout=120)


def harmless(output: bytes) -> str:
    text = output.decode()  # strictly
    assert printable(text, lines=True) == text.replace("\r\n", "\n")
    return text


def test_suggest_prints_names_and_reasons(model):
    done = run("suggest", model, f"{EVIL} word1", "--explain", "--top-k", 4)
    assert done.returncode == 0, done.stderr
    shown = harmless(done.stdout)
    assert r"\x1b]0;owned\x07" in shown
    assert r"half \ud83d" in shown
    assert "plain é 魚" in shown
    harmless(done.stderr)


def test_json_and_pages_are_written(model, tmp_path):
    done = run("suggest", model, "word1", "--top-k", 4, "--explain", "--json", "-", "--html", tmp_path / "page.html")
    assert done.returncode == 0, done.stderr
    found = json.loads(harmless(done.stdout))
    assert {entry["label"] for entry in found["suggestions"]} == set(NAMES)
    assert "\x1b" not in format_json(found)
    (tmp_path / "page.html").read_bytes().decode()
    (tmp_path / "in.jsonl").write_text('{"text": "word1 word2"}\n')
    done = run("predict", model, tmp_path / "in.jsonl", "--output", tmp_path / "out.jsonl", "--top-k", 4)
    assert done.returncode == 0, done.stderr
    assert set(json.loads((tmp_path / "out.jsonl").read_bytes())["labels"]) == set(NAMES)


def test_errors_and_facts_are_harmless(model, tmp_path):
    done = run("suggest", model, "word1", "--exclude", f"{EVIL}?")
    assert done.returncode == 1
    assert harmless(done.stderr).startswith("error: ")
    manifest = json.loads((model / "manifest.json").read_text())
    copy = tmp_path / "copy.model"
    shutil.copytree(model, copy)
    manifest["umpteen_version"] = f"{EVIL}{LONE}"
    (copy / "manifest.json").write_text(json.dumps(manifest))
    done = run("inspect", copy)
    assert done.returncode == 0, done.stderr
    assert r"\x1b]0;owned" in harmless(done.stdout)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """Texts and labels of the worst kind, in a file whose name is one too."""
    file = tmp_path_factory.mktemp("corpus") / "a\x1b[31m\u202eb.jsonl"
    lines = [{"text": f"{EVIL} {LONE} word{i}", "labels": [name]} for i, name in enumerate(NAMES * 4)]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return file


@pytest.mark.parametrize("command", ["evaluate", "train", "add-labels", "prune", "inspect", "predict"])
def test_every_command_prints_harmlessly(model, corpus, tmp_path, command):
    target = tmp_path / "t\x1b[2J.model"
    if command == "add-labels":
        new = [{"text": f"word{i}", "labels": [f"{EVIL}{i}"]} for i in range(4)]
        (tmp_path / "new.jsonl").write_text("".join(json.dumps(line) + "\n" for line in new))
    words: list[object] = {
        "evaluate": [model, corpus],
        "train": [corpus, "--method", "centroid", "--model", target, "--valid", corpus],
        "add-labels": [model, tmp_path / "new.jsonl", "--model", target],
        "prune": [model, "--delta", "0.1", "--model", target],
        "inspect": [corpus.with_name("nothing\x1b[31m")],
        "predict": [model, corpus, "--output", "-"],
    }[command]
    done = run(command, *words)
    assert done.returncode == (1 if command == "inspect" else 0), done.stderr
    shown = harmless(done.stdout) + harmless(done.stderr)
    assert command in ("evaluate", "predict") or r"\x1b[" in shown
    if command == "add-labels":
        assert r"\x1b]0;owned\x07" in shown


def test_a_newer_umpteen_is_named_harmlessly(model, tmp_path):
    """Its warnings, too, which Python prints as they are."""
    copy = tmp_path / "copy.model"
    shutil.copytree(model, copy)
    manifest = json.loads((copy / "manifest.json").read_text())
    manifest["umpteen_version"] = f"99.0.0{EVIL}"
    manifest["params"]["unheard_of"] = EVIL
    (copy / "manifest.json").write_text(json.dumps(manifest))
    done = run("suggest", copy, "word1")
    assert done.returncode == 0, done.stderr
    assert "made by a newer umpteen, 99.0.0" in harmless(done.stderr)


def test_compare_and_demo_print_harmlessly(model):
    from rich.console import Console

    from umpteen.cli.compare import print_table
    from umpteen.cli.demo import _show_example

    out = io.StringIO()
    console = Console(file=out, width=100, color_system=None)
    failed = {"status": "failed", "name": f"{EVIL}[bold]", "error": f"{LONE} [/] \u202e", "peer": None}
    print_table(console, {"baseline": None, "runs": [failed]})
    assert r"\x1b]0;owned\x07" in out.getvalue()
    assert r"half \ud83d [/] \u202e" in out.getvalue()
    _show_example(console, umpteen.load(model), f"{EVIL} {LONE} word1", [EVIL])
    assert printable(out.getvalue(), lines=True) == out.getvalue()


def test_explanations_as_text(model):
    tagger = umpteen.load(model)
    text = f"first\nsecond {EVIL} {LONE} word1 \x1b[0m"
    why = tagger.explain(text, EVIL)
    assert printable(str(why), lines=True) == str(why)
    from rich.console import Console

    out = io.StringIO()
    Console(file=out, width=100, color_system=None).print(why)
    assert printable(out.getvalue(), lines=True) == out.getvalue()
    assert "second" in out.getvalue()
    assert r"\x1b[0m" in out.getvalue()
