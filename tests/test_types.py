"""Types as users see them: the documentation's examples under pyright, strict. In `.ci/lint` mypy looks at them."""

from __future__ import annotations

import importlib.util
import os
import shlex
import shutil
import subprocess
import sys

import pytest

from .examples import write_examples

PYRIGHT = shlex.split(os.environ.get("PYRIGHT", "basedpyright"))
pytestmark = [pytest.mark.slow, pytest.mark.process, pytest.mark.foreign]

RIGHT = """
import numpy as np
import umpteen
from numpy.typing import NDArray
from typing_extensions import assert_type
from umpteen.tagger import Suggestions

assert_type(umpteen.load("a.model"), umpteen.Tagger | umpteen.TrainedModel)
tagger, model, svm = umpteen.Tagger.load("a.model"), umpteen.TrainedModel.load("a.model"), umpteen.DiSMEC(C=0.5)
assert_type(tagger, umpteen.Tagger)
assert_type(tagger.suggest("a text", top_k=3), Suggestions)
assert_type(tagger.suggest({"title": "a text"}), Suggestions)
assert_type(tagger.suggest(["a text"]), list[Suggestions])
assert_type(tagger.suggest_broader("a text", 2), Suggestions)
assert_type(tagger.suggest_broader(["a text"]), list[Suggestions])
found: list[tuple[str, float]] = tagger.suggest("a text")
assert_type(svm.fit(np.eye(3), np.eye(3)), umpteen.DiSMEC)
assert_type(svm.predict_topk(np.eye(3)), tuple[NDArray[np.int32], NDArray[np.float32]])
assert_type(model.predict_topk(np.eye(3), top_k=2), tuple[NDArray[np.int32], NDArray[np.float32]])
assert_type(model.predict_topk_proba(np.eye(3)), tuple[NDArray[np.int32], NDArray[np.float32]])
"""
WRONG = (
    'a: int = umpteen.load("a.model")',
    'b: list[str] = umpteen.Tagger.load("a.model").suggest("a text")',
    'c: int = umpteen.TrainedModel.load("a.model").predict_topk([[1.0]])[0]',
    "umpteen.DiSMEC(D=0.5)",
    'umpteen.Tagger.load("a.model").suggest("a text", topk=3)',
    'umpteen.Tagger.load("a.model").suggest(3)',
    'umpteen.TrainedModel.load("a.model").predict_topk([[1.0]], 5, 3)',
)


@pytest.mark.skipif(shutil.which(PYRIGHT[0]) is None, reason="no basedpyright; $PYRIGHT may name another pyright")
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
