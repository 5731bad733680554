"""Presets: a paper's settings are the ones its page lists, and reach methods by every way in."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
from typer.testing import CliRunner

import umpteen
from umpteen.cli.main import app
from umpteen.comparing.programs import parse_contestants
from umpteen.errors import ParamError
from umpteen.methods import METHODS, method_class
from umpteen.methods.rxml import RXML

from .conftest import ROOT

PAPERS = ("dismec", "ppdsparse", "pdsparse", "fastxml", "rxml")


def listed_settings() -> dict[str, dict[str, tuple[str, str]]]:
    """What docs/papers.md says: method -> setting -> default and paper's."""
    sections = re.split(r"\n## (\w+)\n", (ROOT / "docs" / "papers.md").read_text())[1:]
    return {
        name.lower(): {row[0]: (row[1], row[2]) for row in re.findall(r"\| `(\w+)` \| `(.*?)` \| `(.*?)` \|", text)}
        for name, text in zip(sections[::2], sections[1::2], strict=True)
    }


@pytest.mark.parametrize("name", PAPERS)
def test_a_paper_differs_from_the_defaults_in_the_listed_settings_and_no_other(name):
    cls = method_class(name)
    paper, default = cls.paper().get_params(), cls().get_params()
    differing = {key: (default[key], paper[key]) for key in paper if paper[key] != default[key]}
    listed = listed_settings()[name]
    assert {key: tuple(map(repr, values)) for key, values in differing.items()} == {
        key: tuple(value.replace('"', "'") for value in values) for key, values in listed.items()
    }
    cls.paper().validate()


def test_the_page_lists_all_that_have_a_paper():
    assert set(listed_settings()) == set(PAPERS)
    for name in METHODS:
        if name not in PAPERS:
            with pytest.raises(ParamError, match=f"{name} has no preset 'paper'; only dismec, .*rxml have"):
                method_class(name).paper()


def test_settings_go_over_those_of_the_preset():
    assert umpteen.FastXML.paper(labels_per_leaf=7).labels_per_leaf == 7
    assert umpteen.FastXML.paper(labels_per_leaf=7).max_outer == 10
    assert umpteen.FastXML.make(n_trees=3).labels_per_leaf == umpteen.FastXML().labels_per_leaf
    with pytest.raises(ParamError, match="preset must be one of default, paper, but is 'papers'"):
        umpteen.FastXML.make("papers")
    with pytest.raises(ParamError, match="fastxml has no parameter 'trees'"):
        umpteen.FastXML.paper(trees=7)


@pytest.mark.parametrize("name", PAPERS)
def test_a_paper_is_trained(name):
    train = umpteen.make_synthetic(300, 200, 15, seed=1)
    few = {"fastxml": {"n_trees": 3}, "rxml": {"n_learners": 1, "rank": 8}}.get(name, {})
    model = method_class(name).paper(**few).fit(train.X, train.Y)
    labels, _ = model.predict_topk(train.X, 1)
    assert umpteen.evaluate(train.Y, labels, k=1)["P@1"] > 50
    again = method_class(name).from_model(model.model_)
    np.testing.assert_array_equal(again.fit(train.X, train.Y).predict_topk(train.X, 1)[0], labels)


def test_the_command_line_takes_presets(tmp_path):
    data = umpteen.make_synthetic(100, 50, 8, seed=1)
    train, model = tmp_path / "train.txt", tmp_path / "model"
    umpteen.write_xc(data, train)
    given = ["--method", "fastxml", "--preset", "paper", "--set", "n_trees=2", "--model", str(model)]
    assert CliRunner().invoke(app, ["train", str(train), *given]).exit_code == 0
    params = json.loads((model / "manifest.json").read_text())["params"]
    assert (params["n_trees"], params["labels_per_leaf"], params["balance_sides"]) == (2, 20, False)
    for wrong, message in (
        (("--method", "fastxml", "--preset", "best"), "--preset must be one of default, paper, but is 'best'"),
        (("--preset", "paper"), "--preset paper goes with a method that --method names, but the method is auto"),
    ):
        result = CliRunner().invoke(app, ["train", str(train), *wrong, "--model", str(tmp_path / "x")])
        assert isinstance(result.exception, ParamError)
        assert message in str(result.exception)


def test_contestants_take_presets():
    (contestant,) = parse_contestants(["fastxml:preset=paper:n_trees=2"])
    assert contestant.name == "fastxml preset=paper n_trees=2"
    with pytest.raises(ParamError, match="centroid has no preset 'paper'"):
        parse_contestants(["centroid:preset=paper"])
    with pytest.raises(ParamError, match="preset must be one of default, paper, but is 'mine'"):
        parse_contestants(["fastxml:preset=mine"])


# --- what presets need ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("n_rows", "auto", "paper"), [(100, 1, 1), (11_999, 2, 1), (12_000, 2, 2), (15_539, 3, 2)])
def test_rxml_counts_clusters_as_its_paper(n_rows, auto, paper):
    assert RXML().count_clusters(n_rows) == auto
    assert RXML(n_clusters="paper").count_clusters(n_rows) == paper
    with pytest.raises(ParamError, match='n_clusters must be a number or "auto" or "paper", but is \'many\''):
        RXML(n_clusters="many").validate()


def test_rxml_keeps_inner_products_of_binary_label_vectors():
    train = umpteen.make_synthetic(60, 40, 6, labels_per_row=2, seed=1)
    vectors = RXML(label_vectors="binary").vectors_of(train.Y)
    np.testing.assert_array_equal(vectors.toarray(), (train.Y.toarray() != 0).astype(np.float32))
    lengths = np.linalg.norm(RXML().vectors_of(train.Y).toarray(), axis=1)
    np.testing.assert_allclose(lengths[np.diff(train.Y.indptr) > 0], 1, rtol=1e-6)


def test_pdsparse_chooses_lambda_on_held_out_rows():
    train = umpteen.make_synthetic(400, 200, 12, seed=1)
    settings = {"max_passes": 5, "threads": 1}
    model = umpteen.PDSparse("auto", **settings).fit(train.X, train.Y)
    best = {}
    for lambda_ in (10.0, 1.0, 0.1, 0.01):
        alone = umpteen.PDSparse(lambda_, post_solve=False, **settings).fit(train.X, train.Y)
        best[lambda_] = alone.stats_["quality"].max()
    alone = umpteen.PDSparse("auto", post_solve=False, **settings).fit(train.X, train.Y)
    assert alone.chosen_ == max(best, key=best.get)
    assert model.model_.params["lambda_"] == model.chosen_  # the model knows what was chosen
    same = umpteen.PDSparse(model.chosen_, **settings).fit(train.X, train.Y)
    np.testing.assert_array_equal(model.predict_topk(train.X, 3)[1], same.predict_topk(train.X, 3)[1])
    with pytest.raises(ParamError, match="lambda_ must be a number or \"auto\", but is 'best'"):
        umpteen.PDSparse("best").validate()


def test_pdsparse_without_held_out_rows_takes_the_usual_lambda():
    train = umpteen.make_synthetic(100, 50, 8, seed=1)
    assert umpteen.PDSparse("auto", heldout=0, max_passes=2).fit(train.X, train.Y).chosen_ == 0.01


def test_pdsparse_trains_again_on_all_rows_for_as_many_passes():
    train = umpteen.make_synthetic(400, 200, 12, seed=1)
    settings = {"max_passes": 30, "post_solve": False, "threads": 1, "weight_type": "float32"}
    first = umpteen.PDSparse(**settings).fit(train.X, train.Y)
    again = umpteen.PDSparse(refit=True, **settings).fit(train.X, train.Y)
    passes = int(first.stats_["quality"].argmax()) + 1
    whole = umpteen.PDSparse(heldout=0, **(settings | {"max_passes": passes})).fit(train.X, train.Y)
    np.testing.assert_array_equal(again.predict_topk(train.X, 3)[1], whole.predict_topk(train.X, 3)[1])
    np.testing.assert_array_equal(again.stats_["quality"], first.stats_["quality"])
    assert not np.array_equal(again.predict_topk(train.X, 3)[1], first.predict_topk(train.X, 3)[1])


def test_pdsparse_post_solves_again_if_that_was_better():
    train = umpteen.make_synthetic(400, 200, 12, seed=1)
    first = umpteen.PDSparse(0.3, max_passes=30, threads=1).fit(train.X, train.Y)
    again = umpteen.PDSparse(0.3, max_passes=30, refit=True, threads=1).fit(train.X, train.Y)
    assert again.post_solved_ == first.post_solved_
    forced = umpteen.PDSparse(0.3, max_passes=30, refit=True, post_solve=True, threads=1).fit(train.X, train.Y)
    assert forced.post_solved_
