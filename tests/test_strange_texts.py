"""Texts that nobody expects, through every kind of features: trained on, suggested for, explained, saved."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest

import umpteen

TEXTS = ["herring quotas in the sea", "cod quotas at sea", "a tax on wine", "wine and beer tax"] * 6
LABELS = [["fish", "sea"], ["fish", "sea"], ["tax", "wine"], ["tax", "wine"]] * 6
STRANGE = {
    "one word of a million characters": "x" * 1_000_000,
    "a million characters": "herring " * 125_000,
    "punctuation": "!?…—«»" * 1000,
    "scripts": "漁業 рыба सागर fish שלום ปลา",
    "lone surrogates": "lone \ud800 surrogate \udfff herring",
    "nothing": "",
    "spaces": " \t\n\u3000",
    "NUL": "\0nul\0 herring",
    "combining marks": "e\u0301" * 1000,
    "emoji": "🐟" * 50,
}


def wordllama():
    """Where wordllama's static vectors are: a small real encoder, which is not imported."""
    return importlib.util.find_spec("wordllama").submodule_search_locations[0]


def widths(texts):
    return np.array([[len(text), text.count("e") + 1.0] for text in texts])


FEATURES = {
    "words and starts": lambda: ["word", "start"],
    "characters": lambda: ["char", "char_wb"],
    "stems": lambda: umpteen.Tfidf(language="en"),
    "svd": lambda: ["word", "svd:4"],
    "static": lambda: ["word", f"static:{wordllama()}"],
    "function": lambda: ["word", widths],
    "hashed": lambda: umpteen.Tfidf(analyzer="char_wb", ngram_range=(3, 3), hashing=1000),
}


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=pytest.mark.slow if kind == "static" else ()) for kind in FEATURES]
)
def test_strange_texts(kind, tmp_path):
    if kind == "static" and importlib.util.find_spec("wordllama") is None:
        pytest.skip("wordllama has no wheel for this Python")
    texts, labels = [*TEXTS, *STRANGE.values()], [*LABELS, *[["odd"]] * len(STRANGE)]
    tagger = umpteen.Tagger("centroid", FEATURES[kind](), calibration=0).fit(texts, labels)
    rows = tagger.vectorize(texts)
    assert np.isfinite(rows.X.data).all()
    found = tagger.suggest(list(STRANGE.values()), top_k=2)
    alone = [tagger.suggest(text, top_k=2) for text in STRANGE.values()]
    assert found == alone
    for name, text in STRANGE.items():
        if len(text) < 10_000 and found[list(STRANGE).index(name)]:
            said = tagger.explain(text)
            assert np.isfinite(said.score)
            assert str(said)
    tagger.save(tmp_path / "m")
    again = umpteen.load(tmp_path / "m", encoder=widths if kind == "function" else None)
    assert again.suggest(list(STRANGE.values()), top_k=2) == found
    assert tagger.suggest(TEXTS[0], top_k=1)[0][0] in ("fish", "sea")
