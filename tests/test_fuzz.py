"""Inputs the fuzzers found worth keeping, and a few thousand drawn ones; tests/fuzz/ runs for longer."""

from __future__ import annotations

import base64
import os
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import umpteen
from umpteen import _native

from .conftest import ROOT
from .fuzz.guided import TARGETS, seeds

#: A model whose parameters are damaged can suggest, and warns that it cannot be trained further.
pytestmark = pytest.mark.filterwarnings("ignore:.*cannot be trained further:UserWarning")

CORPORA = ROOT / "tests" / "corpora"


def kept(target: str) -> list[bytes]:
    """One input a line, in base 64."""
    return [base64.b64decode(line) for line in (CORPORA / f"{target}.txt").read_text().split()]


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
def test_inputs_that_were_kept(target):
    inputs = kept(target)
    assert len(inputs) > 20
    for data in inputs:
        TARGETS[target](data)


def test_texts_that_were_kept():
    """Of cpp/fuzz/text_reader_fuzz.cpp: as there, the same on any number of threads."""
    for data in kept("text"):
        text, how = np.frombuffer(data[1:], np.uint8), data[0]
        grammar = (
            not how & 1, not how & 2, bool(how & 4), bool(how & 8), bool(how & 16), 1000 if how & 32 else -1,
            100 if how & 64 else -1, "feature",
        )  # fmt: skip
        outcomes = []
        for threads in (1, 3):
            try:
                parsed = _native.parse_text(text, *grammar, threads)
                outcomes.append({k: v.tolist() if hasattr(v, "tolist") else v for k, v in parsed.items()})
            except _native.ParseError as error:
                outcomes.append(error.args)
        assert outcomes[0] == outcomes[1]


@pytest.mark.slow
@pytest.mark.parametrize(("target", "n"), [("readers", 3000), ("http", 1000), ("sockets", 400)])
def test_drawn_inputs(target, n):
    draw = random.Random(1)
    begin = list(seeds(target))
    for _ in range(n):
        data = bytearray(draw.choice(begin))
        for _ in range(draw.randrange(4)):
            at = draw.randrange(len(data))
            data[at : at + draw.randrange(3)] = draw.randbytes(draw.randrange(4))
        TARGETS[target](bytes(data))


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.parametrize(
    "how", [("models", "--mutations", "2500", "--seed", "1"), ("values", "--every", "97")], ids=lambda how: how[0]
)
def test_damaged_models_are_refused_or_harmless(how):
    """In processes of their own, with limits on memory and time; see tests/records/fuzz.md for many more."""
    environment = os.environ | {"PYTHONPATH": str(Path(umpteen.__file__).parent.parent)}
    command = [sys.executable, "-m", "tests.fuzz", *how]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
