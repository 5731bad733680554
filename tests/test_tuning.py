"""Settings found by trying."""

from __future__ import annotations

import json

import numpy as np
import pytest
from typer.testing import CliRunner

import umpteen
from umpteen.cli.main import app
from umpteen.errors import DataError, ParamError
from umpteen.methods import METHODS, method_class
from umpteen.methods.dual import Alphas
from umpteen.tuning import SPACES, OneOf, Space, space_of


def test_every_method_has_a_space_its_parameters_fit():
    assert set(SPACES) == set(METHODS) - {"label-text"}  # it needs the words of labels
    for name, space in SPACES.items():
        known = method_class(name).param_defaults()
        assert {*space.search, *space.cheap} <= set(known)
        for parameter, what in space.search.items():
            ends = what.values if isinstance(what, OneOf) else (what.low, what.high)
            assert isinstance(what, OneOf) or what.low <= known[parameter] <= what.high
            for end in ends:
                method_class(name)(**{parameter: end}).validate()


@pytest.mark.parametrize(
    ("method", "best"),
    [
        ("dismec", {"C": 0.3}),
        ("ppdsparse", {"lambda_": 0.1, "tau": 1.0}),
        ("pdsparse", {"lambda_": 1.0, "normalize": False}),
        ("pdsparse", {"lambda_": 10.0, "C": 100.0, "normalize": False}),
        ("label-tree", {"C": 0.3, "n_trees": 3}),
        ("fastxml", {"tfidf": True, "C_delta": 0.5, "max_leaf": 5}),
        ("fastxml", {"C_delta": 4.0}),
        ("rxml", {"rank": 50, "n_neighbors": 150, "iterations": 8, "start": "random", "normalize": False}),
    ],
)
def test_the_best_settings_known_are_in_the_space(method, best):
    """Those with a row in RESULTS.md, or that its page names."""
    space = SPACES[method].search
    for name, value in best.items():
        domain = space[name]
        assert value in domain.values if isinstance(domain, OneOf) else domain.low <= value <= domain.high


class Other(umpteen.Centroid):
    """A method that is not ours."""

    name = "other"


def test_a_method_that_is_not_ours_is_tuned(tiny, monkeypatch):
    monkeypatch.setitem(METHODS.own, "other", f"{__name__}:Other")
    assert set(space_of(Other).search) == {"normalize", "tfidf", "power"}
    found = umpteen.tune("other", tiny.X, tiny.Y, trials=2)
    assert set(found.trials[0].params) == {"normalize", "tfidf", "power"}
    monkeypatch.setattr(Other, "tuning_space", Space({"power": OneOf((1.0, 0.5))}), raising=False)
    assert set(umpteen.tune("other", tiny.X, tiny.Y, trials=1).trials[0].params) == {"power"}
    monkeypatch.setattr(Other, "tuning_space", Space({"beta": OneOf((1.0, 0.5))}), raising=False)
    with pytest.raises(ParamError, match="tuning_space of other must name parameters it has, but has 'beta'"):
        umpteen.tune("other", tiny.X, tiny.Y)


@pytest.mark.slow
@pytest.mark.parametrize(("method", "fixed"), [("dismec", {}), ("fastxml", {"n_trees": 10})])
def test_better_than_the_defaults_on_bibtex(bibtex, method, fixed):
    train, test = bibtex
    found = umpteen.tune(method, train.X, train.Y, trials=8, metric="nDCG@5", threads=2, fixed=fixed)
    assert found.value > found.default_value
    assert len(found.trials) == 8
    scores = [
        umpteen.evaluate(test.Y, model.fit(train.X, train.Y).predict_topk(test.X, 5)[0], deciles=False)["nDCG@5"]
        for model in (method_class(method)(**fixed, threads=2), found.make(threads=2))
    ]
    assert scores[1] > scores[0]


@pytest.mark.slow
@pytest.mark.parametrize("cls", [umpteen.DiSMEC, umpteen.PPDSparse])
def test_a_start_from_fewer_rows_saves_rounds_and_ends_at_the_same_optimum(bibtex, cls):
    train, _ = bibtex
    some = np.flatnonzero(np.arange(train.n_rows) % 2)
    settings = {"solver": "dual"} if cls is umpteen.DiSMEC else {}
    models = [cls(eps=1e-4, prune=0, labels_per_shard=50, threads=2, **settings) for _ in range(4)]
    few, cold, warm, there = models
    few.alphas, cold.alphas = Alphas(), Alphas()
    few.fit(train.X[some], train.Y[some])
    cold.fit(train.X, train.Y)
    warm.alphas = Alphas(few.alphas.on(some, train.n_rows))
    assert warm.alphas.start.shape == (train.n_labels, train.n_rows)
    assert not warm.alphas.start[:, 0].nnz  # a row nothing is known of yet
    there.alphas = Alphas(cold.alphas.on(np.arange(train.n_rows), train.n_rows))
    scores = [model.fit(train.X, train.Y).predict_topk(train.X, 5)[1] for model in (cold, warm, there)]
    for other in scores[1:]:
        assert np.abs(other - scores[0]).max() < 0.02
    if cls is umpteen.PPDSparse:
        visits = [model.stats_["rounds"].sum() for model in (cold, warm, there)]
        assert visits[2] < visits[1] < visits[0]


@pytest.mark.slow
def test_bad_trials_are_given_up_and_a_journal_goes_on(bibtex, tmp_path, monkeypatch):
    train, _ = bibtex
    options = {"metric": "P@1", "journal": tmp_path / "j", "threads": 2}
    first = umpteen.tune("centroid", train.X, train.Y, trials=2, **options)
    fitted = []
    fit = umpteen.Centroid.fit
    monkeypatch.setattr(umpteen.Centroid, "fit", lambda self, X, Y: fitted.append(X.shape[0]) or fit(self, X, Y))
    more = umpteen.tune("centroid", train.X, train.Y, trials=12, **options)
    assert more.trials[:2] == first.trials
    assert len(more.trials) == 12
    given_up = [trial for trial in more.trials if trial.value is None]
    assert given_up
    assert all(trial.rows < 0.8 * train.n_rows for trial in given_up)
    assert len(fitted) < 3 * 10
    assert umpteen.tune("centroid", train.X, train.Y, trials=5, **options).trials == more.trials
    with pytest.raises(ParamError, match=r"from another tuning run \(metric differs\)"):
        umpteen.tune("centroid", train.X, train.Y, trials=2, **options | {"metric": "P@5"})


def test_the_same_seed_finds_the_same(tiny):
    one, two = (umpteen.tune("dismec", tiny.X, tiny.Y, trials=5, seed=3) for _ in range(2))
    assert [trial.params for trial in one.trials] == [trial.params for trial in two.trials]
    assert one.value == two.value


def test_refusals(tiny):
    for options, message in (
        ({"metric": "accuracy"}, "metric must be one of P@1"),
        ({"trials": 0}, "trials must be"),
        ({"fixed": {"D": 1}}, "has no parameter 'D'"),
        ({"fixed": {"normalize": True, "tfidf": False, "power": 1}}, "needs a free parameter"),
        ({"heldout": 1.5}, "heldout must be a share above 0 and below 1, but is 1.5"),
    ):
        with pytest.raises(ParamError, match=message):
            umpteen.tune("centroid", tiny.X, tiny.Y, **options)
    with pytest.raises(ParamError, match="method must be one of"):
        umpteen.tune("blend", tiny.X, tiny.Y)
    with pytest.raises(DataError, match="every label is needed"):
        umpteen.tune("dismec", np.eye(3), np.eye(3))


def test_values_below_zero_are_not_tried_with_tfidf(tiny):
    X = tiny.X.copy()
    X.data[0] = -1
    assert all("tfidf" not in trial.params for trial in umpteen.tune("centroid", X, tiny.Y, trials=2).trials)


def test_command_line(tmp_path):
    data = umpteen.make_synthetic(300, 100, 10, seed=1)
    umpteen.write_xc(data, tmp_path / "train.txt")
    words = ["tune", tmp_path / "train.txt", "--method", "dismec", "--trials", 3, "--set", "tfidf=false"]
    words += ["--journal", tmp_path / "j", "--json", tmp_path / "t.json", "--model", tmp_path / "m"]
    done = CliRunner().invoke(app, [str(word) for word in words])
    assert done.exit_code == 0, done.output
    assert "defaults   nDCG@5" in done.output
    assert "settings   --method dismec" in done.output
    report = json.loads((tmp_path / "t.json").read_text())
    assert len(report["trials"]) == 3
    assert umpteen.load(tmp_path / "m").params["C"] == report["params"].get("C", 1.0)
    again = CliRunner().invoke(app, [str(word) for word in words])
    assert "t.json: already exists" in str(again.exception)
    (tmp_path / "t.json").unlink()
    again = CliRunner().invoke(app, [str(word) for word in words])
    assert isinstance(again.exception, umpteen.errors.ModelExistsError)
    again = CliRunner().invoke(app, [str(word) for word in [*words, "--overwrite"]])
    assert again.exit_code == 0, again.output
    assert f"replaced {tmp_path / 'm'}" in again.output


def test_texts(tmp_path):
    from .test_tagger import SHORT

    rows = [json.dumps({"text": t, "labels": names}) for t, names in zip(*SHORT, strict=True)]
    (tmp_path / "c.jsonl").write_text("\n".join(rows))
    words = ["tune", tmp_path / "c.jsonl", "--method", "centroid", "--trials", 2, "--journal", tmp_path / "j"]
    done = CliRunner().invoke(app, [str(word) for word in [*words, "--model", tmp_path / "m"]])
    assert done.exit_code == 0, done.output
    assert umpteen.load(tmp_path / "m").suggest("wine tax", 1)[0][0] in ("tax", "wine")
