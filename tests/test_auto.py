"""method="auto": what is chosen, why, within which budget and memory, and where the choice is kept."""

from __future__ import annotations

import itertools
import json

import numpy as np
import pytest
from typer.testing import CliRunner

import umpteen
from umpteen.choosing import auto
from umpteen.choosing.budget import DEFAULT_BUDGET, format_seconds, parse_budget
from umpteen.choosing.choice import Choice, describe_method, read_choice
from umpteen.choosing.contest import Contest, Contestant, ndcg_by_row, rank
from umpteen.choosing.contestants import challengers
from umpteen.choosing.pilot import estimate_one_vs_rest
from umpteen.choosing.training import train_choice
from umpteen.cli.main import app
from umpteen.data.matrix import as_csr
from umpteen.data.preprocessing import Preprocessing
from umpteen.errors import MemoryLimitError, ModelCorruptError, ParamError, ShardError
from umpteen.storage.manifest import read_manifest

from .conftest import data_root
from .test_cli_text import LABELS, TEXTS, run

SHORT = TEXTS * 8, LABELS * 8


@pytest.fixture(scope="module")
def rows():
    """Enough rows to compare methods on."""
    return umpteen.make_synthetic(1200, 150, 12, labels_per_row=2, features_per_row=15, seed=3)


@pytest.fixture(scope="module")
def compared(rows):
    return umpteen.choose_method(rows.X, rows.Y, threads=1)


# --- budgets --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "seconds"),
    [(None, DEFAULT_BUDGET), (600, 600), ("600", 600), ("90s", 90), ("10m", 600), ("2 min", 120), ("1.5h", 5400)],
)
def test_budgets(given, seconds):
    assert parse_budget(given) == seconds


@pytest.mark.parametrize("given", ["soon", "10 parsecs", "-5", "", "1h30", [], True])
def test_what_is_no_time_is_refused(given):
    with pytest.raises(ParamError, match="budget must be"):
        parse_budget(given)


@pytest.mark.parametrize("given", [0, -1, "0", "0m", float("nan"), float("inf")])
def test_a_budget_is_above_zero(given):
    with pytest.raises(ParamError, match="budget must be a finite number above 0"):
        parse_budget(given)


def test_times_in_words():
    assert [format_seconds(s) for s in (0.004, 8, 45, 600, 7200)] == ["0.004 s", "8.0 s", "45 s", "10 min", "2.0 h"]


# --- the choice -----------------------------------------------------------------------------------------------------


def test_few_rows_get_exact_one_vs_rest(tiny):
    choice = umpteen.choose_method(tiny.X, tiny.Y)
    assert choice.name == "dismec"
    assert "fewer than 1,000 rows" in choice.reason
    assert [option.note for option in choice.options].count("chosen") == 1
    assert choice.options[0].seconds is not None
    assert all(option.peak_bytes > 0 for option in choice.options)


def test_what_ranks_best_on_held_out_rows_is_chosen(rows, compared):
    values = {option.name: option.value for option in compared.options}
    assert {"dismec", "dismec C=0.3", "label-tree", "label-tree n_trees=3", "rxml"} <= set(values)
    assert values[compared.name] >= max(values.values()) - 1
    assert f"nDCG@5 {values[compared.name]:.1f}" in compared.reason
    assert all(option.seconds is not None for option in compared.options)
    again = umpteen.choose_method(rows.X, rows.Y, threads=2)
    assert again.name == compared.name
    assert {option.name: option.value for option in again.options} == values


def test_the_values_are_those_of_evaluate(rows):
    contest = Contest(rows.X, rows.Y, 0, 1)
    contestant = Contestant(umpteen.DiSMEC(), 0)
    contest.train(contestant, contest.steps[-1])
    kept = np.setdiff1d(np.arange(rows.n_rows), contest.judged)
    kept = kept[np.diff(rows.Y.indptr)[kept] > 0]  # all rows with labels that are not judged by are trained on
    labels, _ = umpteen.DiSMEC().fit(rows.X[kept], rows.Y[kept]).predict_topk(rows.X[contest.judged], 5)
    expected = umpteen.evaluate(rows.Y[contest.judged], labels)["nDCG@5"]
    assert ndcg_by_row(rows.Y[contest.judged], labels).mean() * 100 == pytest.approx(expected, abs=1e-4)
    assert contestant.value == pytest.approx(expected, abs=0.5)


def test_a_difference_that_chance_explains_does_not_decide():
    noise = np.random.default_rng(0).random(400)
    exact, forest = Contestant(umpteen.DiSMEC(), 0), Contestant(umpteen.FastXML(), 0)
    exact.values, forest.values = noise, noise[::-1] + 0.001
    assert rank([forest, exact])[0] is exact
    forest.values = noise + 0.001  # the same rows, each a little better
    assert rank([forest, exact])[0] is forest


def test_a_tree_where_one_vs_rest_takes_too_long(tiny):
    seconds = estimate_one_vs_rest(umpteen.DiSMEC(threads=1), tiny.X, tiny.Y)
    assert seconds > 0
    choice = umpteen.choose_method(tiny.X, tiny.Y, budget=1e-6, threads=1)
    assert choice.name == "label-tree"
    assert "more than the budget" in choice.reason


def test_a_budget_that_leaves_no_time_to_compare(rows):
    needed = estimate_one_vs_rest(umpteen.DiSMEC(threads=1), rows.X, rows.Y)
    choice = umpteen.choose_method(rows.X, rows.Y, budget=max(1.0, 3 * needed), threads=1, trainings=50)
    assert choice.name.startswith(("dismec", "label-tree"))
    assert choice.budget == pytest.approx(max(1.0, 3 * needed))


def count_bytes(data):
    return sum(M.data.nbytes + M.indices.nbytes + M.indptr.nbytes for M in (data.X, data.Y))


def test_a_tree_where_one_vs_rest_does_not_fit_into_memory(tiny, monkeypatch):
    free = count_bytes(tiny) + umpteen.LabelTree(threads=1).estimate(tiny.X, tiny.Y).peak_bytes
    monkeypatch.setattr(auto, "available_memory", lambda: free)
    choice = umpteen.choose_method(tiny.X, tiny.Y, threads=1)
    assert choice.name == "label-tree"
    assert "does not fit into" in choice.reason
    assert any("does not fit into memory" in option.note for option in choice.options)


def test_smaller_shards_where_memory_is_short(monkeypatch):
    data = umpteen.make_synthetic(500, 400, 3000, seed=2)
    small = umpteen.DiSMEC(labels_per_shard=64, threads=1)
    free = count_bytes(data) + small.estimate(data.X, data.Y).peak_bytes
    monkeypatch.setattr(auto, "available_memory", lambda: free)
    choice = umpteen.choose_method(data.X, data.Y)
    assert choice.name == "dismec labels_per_shard=64"
    assert choice.method.threads == 1
    assert choice.options[0].peak_bytes + count_bytes(data) <= free


def test_no_memory_at_all(tiny, monkeypatch):
    monkeypatch.setattr(auto, "available_memory", lambda: 1000)
    with pytest.raises(MemoryLimitError, match="the smallest method, .* would need .* only 1.0 KB is available"):
        umpteen.choose_method(tiny.X, tiny.Y)


@pytest.mark.slow
def test_dense_rows_may_get_methods_for_dense_rows():
    data = umpteen.make_synthetic(1200, 20, 8, labels_per_row=2, features_per_row=5, seed=3)
    X = np.random.default_rng(0).random(data.X.shape, np.float32) + data.X.toarray()
    choice = umpteen.choose_method(X, data.Y, threads=1)
    assert any(option.name.startswith("rxml") and "normalize=False" in option.name for option in choice.options)
    assert all("fastxml normalize" not in option.name for option in choice.options)


def test_rows_of_different_lengths_are_tried_as_they_are_too(tiny):
    def forests(X):
        return [describe_method(m) for m in challengers(umpteen.DiSMEC(), X, 1, 0, tune=False) if m.name == "fastxml"]

    X = as_csr(tiny.X, "X")
    assert forests(X) == ["fastxml normalize=True", "fastxml"]
    assert forests(Preprocessing(normalize=True).transform(X)) == ["fastxml normalize=True"]


def test_rows_must_match(tiny):
    with pytest.raises(umpteen.errors.DataError, match="same number of rows"):
        umpteen.choose_method(tiny.X[:10], tiny.Y)


# --- kept in the model ----------------------------------------------------------------------------------------------


def test_the_manifest_has_the_choice(compared, rows, tmp_path):
    model = train_choice(compared, rows.X, rows.Y, tmp_path / "m")
    kept = read_choice(tmp_path / "m")
    assert kept is not None
    assert (kept.name, kept.reason, kept.budget) == (compared.name, compared.reason, compared.budget)
    assert [option.name for option in kept.options] == [option.name for option in compared.options]
    assert model.method == compared.method.name
    assert umpteen.load(tmp_path / "m").method == model.method
    facts = json.loads(run("inspect", tmp_path / "m", "--json", "-"))
    assert facts["chosen"]["reason"] == compared.reason
    assert compared.reason in run("inspect", tmp_path / "m")


def test_a_damaged_choice_is_named():
    for entry in ({}, {"methods": []}, {"methods": [{"method": "telepathy", "params": {}}]}, None):
        with pytest.raises(ModelCorruptError, match="'chosen' cannot be used"):
            Choice.from_header(entry, "m")


def test_a_tagger_chooses_by_default(tmp_path):
    tagger = umpteen.Tagger()
    assert tagger.method == "auto"
    tagger.fit(*SHORT, tmp_path / "m")
    assert tagger.choice_.name == "dismec"
    assert tagger.suggest("a tax on beer", 1)[0][0] == "tax"
    loaded = umpteen.load(tmp_path / "m")
    assert describe_method(loaded.method) == "dismec"
    assert umpteen.DiSMEC.from_model(loaded).C == 1.0
    assert loaded.explain("wine tax").label in ("tax", "wine")
    assert umpteen.Tagger(None).fit(*SHORT).choice_.name == "dismec"


def test_budget_and_tune_go_with_auto():
    with pytest.raises(ParamError, match='budget and tune go with method="auto"'):
        umpteen.Tagger(umpteen.DiSMEC(), budget="1m").fit(*SHORT)
    with pytest.raises(ParamError, match="budget must be a time"):
        umpteen.Tagger(budget="soon").fit(*SHORT)


@pytest.mark.parametrize("n_whole", [0, 1], ids=["in the first model", "in the second"])
def test_a_resumed_run_makes_the_same_choice(tmp_path, monkeypatch, n_whole):
    train_shard, n_trained = umpteen.LabelTree.train_shard, []

    def train_and_count(self, data, task, resources):
        if len(n_trained) == n_whole:
            raise RuntimeError("stopped")
        n_trained.append(task.name)
        return train_shard(self, data, task, resources)

    monkeypatch.setattr(umpteen.LabelTree, "train_shard", train_and_count)
    with pytest.raises(ShardError, match="stopped"):
        umpteen.Tagger(budget=1e-6).fit(*SHORT, tmp_path / "m")
    begun = read_choice(tmp_path / "m", tmp_path / "m.calibration" / "fold-0")
    assert begun is not None
    n_whole = -1  # never again
    monkeypatch.setattr(auto, "estimate_one_vs_rest", None)  # nothing is estimated again
    again = umpteen.Tagger(budget="1h").fit(*SHORT, tmp_path / "m")
    assert again.choice_.name == begun.name == "label-tree"
    assert read_manifest(tmp_path / "m")["chosen"] == begun.as_header()


def test_what_is_chosen_can_be_calibrated(tmp_path, tiny):
    umpteen.write_xc(tiny, tmp_path / "t.txt")
    done = CliRunner().invoke(
        app, ["train", str(tmp_path / "t.txt"), "--model", str(tmp_path / "m"), "--calibration", "3"]
    )
    assert done.exit_code == 0, done.output
    model = umpteen.load(tmp_path / "m")
    assert model.calibration.n_rows == tiny.n_rows
    assert not (tmp_path / "m.calibration").exists()


def test_a_run_begun_with_a_named_method_is_not_taken_over(tmp_path, monkeypatch):
    def stop(*_):
        raise RuntimeError("stopped")

    with monkeypatch.context() as patch:
        patch.setattr(umpteen.DiSMEC, "train_shard", stop)
        with pytest.raises(ShardError):
            umpteen.Tagger("dismec", calibration=0).fit(*SHORT, tmp_path / "m")
    with pytest.raises(ParamError, match="begun with method 'dismec', not with auto"):
        umpteen.Tagger(calibration=0).fit(*SHORT, tmp_path / "m")


# --- tuning ---------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_tuning_compares_more_and_may_blend(rows, tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "optuna", None)  # not needed
    choice = umpteen.choose_method(rows.X, rows.Y, threads=1, tune=True)
    names = {option.name for option in choice.options}
    assert {"dismec power=0.5", "rxml power=0.5", "label-tree n_trees=3 power=0.5"} <= names
    model = train_choice(choice, rows.X, rows.Y, tmp_path / "m")
    assert model.method == ("blend" if len(choice.methods) > 1 else choice.method.name)
    labels, _ = umpteen.load(tmp_path / "m").predict_topk(rows.X, 3)
    assert np.array_equal(labels, model.predict_topk(rows.X, 3)[0])


@pytest.mark.slow
def test_tuning_chooses_features_of_texts(tmp_path):
    words = ["herring", "cod", "sea", "tax", "wine", "beer", "north", "quota", "law", "fish", "ship", "port"]
    draw = np.random.default_rng(0)
    texts, labels = [], []
    for _ in range(1200):
        chosen = draw.choice(words, 4)
        texts.append(" ".join(chosen))
        # A label of pairs of neighbours, which single words cannot tell.
        labels.append(sorted({f"{a} {b}" for a, b in itertools.pairwise(chosen) if a < b}))
    tagger = umpteen.Tagger(tune=True, budget="2m", calibration=0).fit(texts, labels, tmp_path / "m")
    assert tagger.features_.ngram_range == (1, 2)
    assert read_manifest(tmp_path / "m")["chosen"]["features"]["ngram_range"] == [1, 2]
    assert umpteen.load(tmp_path / "m").suggest("cod sea", 1)[0][0] == "cod sea"


# --- the command line -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    path = tmp_path_factory.mktemp("auto") / "corpus.jsonl"
    path.write_text("".join(json.dumps({"text": t, "labels": n}) + "\n" for t, n in zip(*SHORT, strict=True)))
    return path


def test_train_says_what_it_chose(corpus, tmp_path):
    out = run("train", corpus, "--model", tmp_path / "m", "--valid", corpus)
    assert "chosen     dismec: exact one-vs-rest takes about" in out
    assert "label-tree" in out
    assert "P         100.00" in out
    assert umpteen.load(tmp_path / "m").method.name == "dismec"


def test_train_on_numbers(tiny, tmp_path):
    umpteen.write_xc(tiny, tmp_path / "t.txt")
    out = run("train", tmp_path / "t.txt", "--model", tmp_path / "m", "--budget", "1m", "--valid", tmp_path / "t.txt")
    assert "chosen     dismec: " in out
    assert umpteen.load(tmp_path / "m").method == "dismec"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--budget", "soon"], "budget must be a time such as 600, 90s, 10m or 1h, but is 'soon'"),
        (["--set", "C=2"], "--set C=2 goes with a method that --method names, but the method is auto"),
        (["--method", "dismec", "--budget", "1m"], "--budget and --tune go with --method auto, but .* is dismec"),
        (["--method", "dismec", "--tune"], "--budget and --tune go with --method auto"),
    ],
)
def test_messages(corpus, tmp_path, options, message):
    with pytest.raises(ParamError, match=message):
        run("train", corpus, "--model", tmp_path / "m", *options)


@pytest.mark.data
@pytest.mark.slow
def test_the_default_is_far_better_than_the_floor(tmp_path):
    """What a new user does first: umpteen train corpus.jsonl."""
    folder = data_root() / "StackExchange-Cooking"
    if not folder.exists():
        pytest.skip(f"no StackExchange-Cooking in {data_root()}")
    train, test = (umpteen.read_corpus(folder / f"{part}.jsonl.xz") for part in ("train", "test"))
    for name, part, n in (("train", train, 3000), ("test", test, 1000)):
        lines = (
            json.dumps({"text": t, "labels": names}) for t, names in zip(part.texts[:n], part.labels, strict=False)
        )
        (tmp_path / f"{name}.jsonl").write_text("\n".join(lines))
    run("train", tmp_path / "train.jsonl", "--model", tmp_path / "auto")
    run("train", tmp_path / "train.jsonl", "--model", tmp_path / "floor", "--method", "centroid")
    found = [
        umpteen.load(tmp_path / name).evaluate(test.texts[:1000], test.labels[:1000]) for name in ("auto", "floor")
    ]
    assert found[0]["P@1"] > found[1]["P@1"] + 25
