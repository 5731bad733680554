"""Models as they were written when their format was released are read, and answer as they did then."""

from __future__ import annotations

import json

import numpy as np
import pytest

import umpteen
from umpteen.models.families import FAMILIES, scorer_class
from umpteen.storage.manifest import FORMAT_VERSION, read_manifest

from . import golden
from .fuzz.families import questions

ARCHIVES = sorted(golden.FOLDER.glob("format-*.tar.xz"))


def test_every_format_has_models():
    assert [path.name for path in ARCHIVES] == [
        f"format-{version}.tar.xz" for version in range(1, FORMAT_VERSION + 1)
    ]
    assert sum(path.stat().st_size for path in ARCHIVES) < 300_000


@pytest.mark.parametrize("archive", ARCHIVES, ids=lambda path: path.name.split(".")[0])
def test_old_models_answer_as_they_did(archive, tmp_path):
    answers = golden.read(archive, tmp_path)
    families = {scorer_class(read_manifest(tmp_path / name)["family"]).family for name in answers}
    assert families == set(FAMILIES)
    for name, want in answers.items():
        model = umpteen.load(tmp_path / name, checksums=True)
        if isinstance(model, umpteen.Tagger):
            want[0][1] = []  # an empty text got labels then
        got = json.loads(json.dumps(questions(model)))
        assert len(got) == len(want), name
        for now, then in zip(got, want, strict=True):
            same(now, then, name)


def same(now, then, name) -> None:
    """Labels and names the same; scores up to the last bits, which another machine may round otherwise."""
    if isinstance(then, list):
        assert len(now) == len(then), name
        for a, b in zip(now, then, strict=True):
            same(a, b, name)
    elif isinstance(then, float):
        np.testing.assert_allclose(now, then, rtol=1e-5, atol=1e-6, err_msg=name)
    else:
        assert now == then, name
