"""Types as users see them: the documentation's examples under pyright, strict. Skipped where there is no pyright;
`.ci/lint` checks them with mypy everywhere."""

from __future__ import annotations

import importlib.util
import os
import shlex
import shutil
import subprocess
import sys

import pytest

from .examples import write_examples

PYRIGHT = shlex.split(os.environ.get("PYRIGHT", "pyright"))
pytestmark = [pytest.mark.slow, pytest.mark.process, pytest.mark.foreign]

RIGHT = """
import numpy as np
from numpy.typing import NDArray
import umpteen

opened: umpteen.Tagger | umpteen.TrainedModel = umpteen.load("a.model")
found: list[tuple[str, float]] = umpteen.Tagger.load("a.model").suggest("a text")
labels: NDArray[np.int32]
scores: NDArray[np.float32]
labels, scores = umpteen.TrainedModel.load("a.model").predict_topk(np.eye(3))
labels, scores = umpteen.DiSMEC(C=0.5).fit(np.eye(3), np.eye(3)).predict_topk(np.eye(3))
"""
WRONG = (
    'a: int = umpteen.load("a.model")',
    'b: list[str] = umpteen.Tagger.load("a.model").suggest("a text")',
    'c: int = umpteen.TrainedModel.load("a.model").predict_topk([[1.0]])[0]',
    "umpteen.DiSMEC(D=0.5)",
)


@pytest.mark.skipif(shutil.which(PYRIGHT[0]) is None, reason="no pyright: set $PYRIGHT to run this test")
@pytest.mark.skipif(importlib.util.find_spec("scipy-stubs") is None, reason="no scipy-stubs")
def test_examples_pass_and_what_is_wrong_does_not(tmp_path):
    examples = write_examples(tmp_path)
    assert len(examples) > 30
    (tmp_path / "examples" / "right.py").write_text(RIGHT)
    (tmp_path / "examples" / "wrong.py").write_text("import umpteen\n\n" + "\n".join(WRONG))
    command = [*PYRIGHT, "-p", str(tmp_path), "--pythonpath", sys.executable]
    said = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    errors = [line.strip() for line in said.splitlines() if " - error: " in line]
    assert {line.split(":")[1] for line in errors} == {str(3 + i) for i in range(len(WRONG))}, said
    assert all("wrong.py:" in line for line in errors), said
