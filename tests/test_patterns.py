"""Token patterns from files: only forms over which `re` takes time proportional to the text are run."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tracemalloc
import warnings
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import umpteen
from umpteen.errors import ModelFormatError, ParamError
from umpteen.storage.store import Part
from umpteen.text.patterns import MOST_CHARACTERS, is_linear, run_length

TEXTS = ["herring quotas in the north sea", "fish-hooks and o'clock", "c++ and c#", "tax law", "law of the sea"] * 4
LABELS = [["fish"], ["fish"], ["code"], ["law"], ["law", "fish"]] * 4

RUN = [
    r"(?u)\b\w\w+\b", r"\w+", r"\w{3,}", r"(?u)\b[a-z]+\b", r"\S+", r"\b\w[\w'-]+\b", r"[a-zA-Z]{2,}", r"[^\s]+",
    r"[^\W_]+(?:[-.+'#][^\W_]+)*[+#]*", r"\b[^\d\W]+\b", r"[\w-]+", r"[A-Za-z0-9äöüß]+", r"\w+(?:-\w+)?", r"[^,;]+",
    r"\d{4}", r"[-\w]+", r"\b[A-Z]\w*", r".", r"\w\w\w", r"[+&|~]+",
]  # fmt: skip
REFUSED = [
    r"(?:|(?:)){60}x", r"(\w+)+", r"(?:\w+)*x", r"\w+x", r"\w*", r"(?i)[a-z]+", r"[a-z]+\b", r"\w+\w+", r"(?:\w+)+",
    r"(?=a)b", r"(?<=a)b", r"(a)\1", r"a|b", r"\w+?", r"\w++", r"^a", r"a$", r"[[a]+", r"[a&&b]+", r"[a--b]+",
    r"\w{999,}x", "", r"\b", r"(\w)\w+", r"(?:a*)*", r"\w*\w*\w*x", r"a{1,99999}", r"a{33,}", r"\u0041+", r"(?#x)a",
    r"a?b", r"\w+-\w+", r"(?P<a>b)", r"a\b", r"(?:a(?:b)*)*", "a" * (MOST_CHARACTERS + 1), r"a+" * 90,
]  # fmt: skip


@pytest.mark.parametrize("pattern", RUN)
def test_patterns_that_are_run(pattern):
    assert is_linear(pattern)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert re.compile(pattern).groups == 0


@pytest.mark.parametrize("pattern", REFUSED, ids=lambda pattern: pattern[:20])
def test_patterns_that_are_not(pattern):
    assert not is_linear(pattern)


CLASS = st.sampled_from(["a", "-", r"\w", r"\W", r"\S", ".", "[a-]", "[^a]", r"[\w-]", "[ab]"])
TIMES = st.sampled_from(["", "+", "{1,}", "{3}", "{2,9}", "{32,}", "{32,9999}"])
CLASSES = st.lists(CLASS, max_size=8).map("".join)
HEAD = st.tuples(CLASSES, CLASS, TIMES).map("".join)
OPTIONAL = st.one_of(
    st.tuples(CLASS, st.sampled_from("*?")).map("".join),
    st.tuples(CLASSES, CLASS, TIMES, st.sampled_from("*?")).map(lambda t: f"(?:{t[0][:14]}{t[1]}{t[2]}){t[3]}"),
)
FORM = st.one_of(
    HEAD.map(lambda head: rf"\b{head}\b"),
    st.tuples(st.sampled_from(["", r"\b"]), HEAD, st.lists(OPTIONAL, max_size=4).map("".join)).map("".join),
)


@settings(max_examples=60)
@given(FORM)
def test_what_is_run_looks_at_each_character_a_fixed_number_of_times(pattern):
    """Counted, not timed: the search is done by a slow twin of `re` that counts how often it looks at a character."""
    if not is_linear(pattern):
        return
    for text in ("a" * 100, "a-" * 50, "-" * 100, "a--" * 33, "aaaaaaaa-" * 11, "a b-" * 25):
        few, many = Backtracking(pattern).count(text), Backtracking(pattern).count(text * 3)
        assert many <= 60 * len(text) * 3, (pattern, text[:9])
        assert many <= 4 * few + 4000, (pattern, text[:9])


def test_the_twin_of_re_sees_what_grows():
    """What is refused for its time does grow with the square of the text, or worse."""
    for pattern in (r"\w+x", r"[a-z]+\b-", r"\w*\w*x"):
        few, many = (Backtracking(pattern).count("a" * n) for n in (30, 90))
        assert many > 6 * few


class Backtracking:
    """Matches a pattern as `re` does, by trying; and counts."""

    def __init__(self, pattern: str) -> None:
        import re._parser as parser

        self.items = list(parser.parse(pattern))

    def count(self, text: str) -> int:
        self.text, self.looks = text, 0
        at = 0
        while at < len(text):
            end = self.match(self.items, at)
            at = end if end is not None and end > at else at + 1
        return self.looks

    def match(self, items, at: int) -> int | None:
        """Where the first match ends that trying finds. A single character that is repeated is a loop, as in `re`."""
        if not items:
            return at
        (kind, value), rest = items[0], items[1:]
        name = str(kind)
        if name == "AT":
            self.looks += 1
            inside = [0 <= i < len(self.text) and bool(re.match(r"\w", self.text[i])) for i in (at - 1, at)]
            return self.match(rest, at) if inside[0] != inside[1] else None
        if name == "MAX_REPEAT":
            least, most, body = value
            if len(body) == 1 and str(body[0][0]) not in ("SUBPATTERN", "MAX_REPEAT"):
                end = at
                while end - at < min(most, 10**6) and self.one(body[0], end):
                    end += 1
                for stop in range(end, at + least - 1, -1):
                    if (found := self.match(rest, stop)) is not None:
                        return found
                return None
            ends = [at]
            while len(ends) <= min(most, 10**6) and (end := self.match(list(body), ends[-1])) not in (None, ends[-1]):
                ends.append(end)
            for stop in reversed(ends[least:]):
                if (found := self.match(rest, stop)) is not None:
                    return found
            return None
        if name == "SUBPATTERN":
            return self.match([*value[3], *rest], at)
        return self.match(rest, at + 1) if self.one(items[0], at) else None

    def one(self, item, at: int) -> bool:
        self.looks += 1
        if at >= len(self.text):
            return False
        kind, value = str(item[0]), item[1]
        letter = self.text[at]
        if kind == "ANY":
            return letter != "\n"
        if kind in ("LITERAL", "NOT_LITERAL"):
            return (ord(letter) == value) == (kind == "LITERAL")
        inside, negated = False, False
        for what, member in value:
            if str(what) == "NEGATE":
                negated = True
            elif str(what) == "LITERAL":
                inside |= ord(letter) == member
            elif str(what) == "RANGE":
                inside |= member[0] <= ord(letter) <= member[1]
            else:
                code = {"DIGIT": r"\d", "SPACE": r"\s", "WORD": r"\w"}[str(member).rsplit("_", 1)[1]]
                inside |= bool(re.match(code.upper() if "_NOT_" in str(member) else code, letter))
        return inside != negated


# --- models ---------------------------------------------------------------------------------------------------------


def train(path: Path, pattern: str) -> Path:
    features = umpteen.Tfidf(token_pattern=pattern, lowercase=False)
    umpteen.Tagger(umpteen.Centroid(), features, calibration=0).fit(TEXTS, LABELS).save(path)
    return path


def change(path: Path, **params) -> None:
    file = path / "manifest.json"
    manifest = json.loads(file.read_text())
    manifest["parts"]["vocabulary"]["scalars"]["tfidf"].update(params)
    file.write_text(json.dumps(manifest))


@pytest.mark.parametrize("pattern", [r"\w+", r"\S+", r"[^\W_]+(?:[-.+'#][^\W_]+)*[+#]*"])
def test_a_model_with_such_a_pattern_is_opened_and_answers_as_before(tmp_path, pattern):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tagger = umpteen.Tagger(umpteen.Centroid(), umpteen.Tfidf(token_pattern=pattern)).fit(TEXTS, LABELS)
        tagger.save(tmp_path / "m")
    assert umpteen.load(tmp_path / "m").suggest("c++ and herring") == tagger.suggest("c++ and herring")


def test_a_pattern_from_a_file_that_never_ends_is_refused(tmp_path):
    """In a process of its own: where it is run, `suggest` never ends."""
    train(tmp_path / "m", r"\w+")
    change(tmp_path / "m", token_pattern="(?:|(?:)){60}x")
    code = "import sys, umpteen; umpteen.load(sys.argv[1]).suggest('é')"
    environment = os.environ | {"PYTHONPATH": str(Path(umpteen.__file__).parent.parent)}
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "m")], capture_output=True, text=True, timeout=60, env=environment
    )
    assert re.search(
        r"ModelFormatError: .*/m: token_pattern '\(\?:\|\(\?:\)\)\{60\}x' is not of a form that is run from a file",
        done.stderr,
    )


def test_a_pattern_of_ones_own_is_opened_with_trust(tmp_path):
    with pytest.warns(
        UserWarning, match=r"token_pattern '\(\\\\w\)\\\\w\+' is not of a form that is run from a file"
    ):
        train(tmp_path / "m", r"(\w)\w+")
    for load in (umpteen.load, umpteen.Tagger.load):
        with pytest.raises(ModelFormatError, match=r"m: token_pattern .* umpteen\.load\(…, trust_pattern=True\)"):
            load(tmp_path / "m")
        assert load(tmp_path / "m", trust_pattern=True).features_.token_pattern == r"(\w)\w+"


def test_long_terms_are_refused(tmp_path):
    with pytest.raises(ParamError, match=r"ngram_range\[1\] must be at most 10, but is 1000"):
        umpteen.Tfidf(ngram_range=(1, 1000)).fit(TEXTS)
    train(tmp_path / "m", r"\w+")
    change(tmp_path / "m", ngram_range=[1, 1000])
    with pytest.raises(umpteen.errors.ModelCorruptError, match=r"m: .*ngram_range\[1\] must be at most 10"):
        umpteen.load(tmp_path / "m")


@pytest.mark.parametrize("n_rows", [-1, True, 1.5, None, "3"])
def test_the_number_of_rows_is_a_count(n_rows):
    part = umpteen.Tfidf().fit(TEXTS).to_part()
    with pytest.raises(umpteen.errors.ModelCorruptError, match="its number of rows"):
        umpteen.Tfidf.from_part(Part(part.arrays, part.scalars | {"n_rows": n_rows}))


@pytest.mark.parametrize("pattern", [r"\w{40,}", r"\b\w{3,}\b", r"\w\w\w+"])
def test_runs_are_found_for_explanations_without_the_pattern(pattern):
    """`\\w{40,}` over one long word would be tried from each of its characters."""
    text = "a" * 39 + " " + "b" * 40 + " cc ddd-" + "é" * 41
    tfidf = umpteen.Tfidf(token_pattern=pattern, lowercase=False).fit([text])
    assert run_length(pattern) is not None
    found = [text[span.begin : span.end] for span in tfidf.spans(text)]
    assert found == re.findall(pattern, text)


def test_an_explanation_of_long_terms_takes_little(tmp_path):
    """Terms of up to 1,000 words took gigabytes; of up to 10, some of a text of 4,000 words are small."""
    train(tmp_path / "m", r"\w+")
    change(tmp_path / "m", ngram_range=[1, 10])
    tagger = umpteen.load(tmp_path / "m")
    tracemalloc.start()
    try:
        tagger.explain("a " * 4_000)
        assert tracemalloc.get_traced_memory()[1] < 20_000_000
    finally:
        tracemalloc.stop()
