"""Run files of sets that are not here: each reads files of its exact format, and refuses those of another set."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from benchmarks.runner.configs import read_config

from umpteen.errors import DataError

from .conftest import ROOT

XC = ("wiki10-31k", "amazoncat-13k", "delicious-200k", "wikilshtc-325k", "amazon-670k", "rcv1-2k")
CLASSES = ("aloi.bin", "lshtc1", "dmoz", "sector")

#: As the repository's files begin: a header, then labels and features that count from 0; a row may have no labels.
TRAIN = "3 6 4\n0,2 0:0.5 5:1\n1 1:0.25\n3 2:1 3:0.125\n"
TEST = "2 6 4\n2 0:1\n 4:0.5\n"
#: As LIBSVM's: features count from 1, a class is any number.
CLASS_TRAIN = "7 1:0.5 6:1\n12 2:0.25\n7 3:1\n"
CLASS_TEST = "12 1:1\n99 2:0.5\n7 6:1\n"


@pytest.fixture
def data(tmp_path, monkeypatch):
    monkeypatch.setenv("UMPTEEN_DATA", str(tmp_path))
    return tmp_path


def write(config, data, train, test, end=""):
    folder = data / config.name
    folder.mkdir()
    (folder / (config.train + end)).write_text(train)
    (folder / (config.test + end)).write_text(test)


def sized(name, **sizes):
    """A run file, with the sizes of the small files here in place of its own."""
    config = read_config(ROOT / "benchmarks" / f"{name}.toml")
    assert {"train_rows", "n_features", "n_labels"} <= set(config.sizes)
    return dataclasses.replace(config, sizes={key: sizes[key] for key in config.sizes})


@pytest.mark.parametrize("name", XC)
def test_files_of_the_repository_are_read(name, data):
    config = sized(name, train_rows=3, test_rows=2, n_features=6, n_labels=4, labels_per_row=1.32)
    write(config, data, TRAIN, TEST)
    contest = config.contest(data)
    assert contest.name == config.name
    np.testing.assert_array_equal(contest.train.Y.toarray() != 0, [[1, 0, 1, 0], [0, 1, 0, 0], [0, 0, 0, 1]])
    np.testing.assert_array_equal(contest.test_Y.toarray() != 0, [[0, 0, 1, 0], [0, 0, 0, 0]])
    assert contest.test_X.shape == (2, 6)


@pytest.mark.parametrize("name", CLASSES)
def test_files_of_classes_are_read(name, data):
    config = sized(name, train_rows=3, test_rows=3, n_features=6, n_labels=2, labels_per_row=1.0)
    write(config, data, CLASS_TRAIN, CLASS_TEST)
    contest = config.contest(data)
    np.testing.assert_array_equal(contest.train.Y.toarray() != 0, [[1, 0], [0, 1], [1, 0]])  # 7 and 12
    np.testing.assert_array_equal(contest.test_Y.toarray() != 0, [[0, 1], [0, 0], [1, 0]])  # nobody can know 99
    assert contest.train.X[0, 5] == 1


@pytest.mark.parametrize(
    ("size", "value", "message"),
    [
        ("train_rows", 14146, "Wiki10-31K must have train_rows 14,146, but these files have 3"),
        ("test_rows", 6616, "must have test_rows 6,616, but these files have 2"),
        ("n_features", 101938, "must have n_features 101,938, but these files have 6"),
        ("n_labels", 30938, "must have n_labels 30,938, but these files have 4"),
        ("labels_per_row", 18.6, r"must have labels_per_row 18.6, but these files have 1.33333"),
    ],
)
def test_another_sets_files_are_refused(size, value, message, data):
    config = read_config(ROOT / "benchmarks" / "wiki10-31k.toml")
    assert config.sizes[size] == value
    write(config, data, TRAIN, TEST)
    with pytest.raises(DataError, match=message):
        dataclasses.replace(config, sizes={size: value}).contest(data)


def test_a_missing_file_is_named(data):
    config = read_config(ROOT / "benchmarks" / "aloi.bin.toml")
    with pytest.raises(DataError, match="no aloi.bin in"):
        config.contest(data)
    (data / "aloi.bin").mkdir()
    with pytest.raises(DataError, match="aloi.bin.train: no such file, nor one with .xz, .gz, .bz2, .zst after"):
        config.contest(data)


def test_what_a_file_cannot_say_is_refused(tmp_path):
    path = tmp_path / "a.toml"
    path.write_text('name = "a"\n[sizes]\nrows = 3\n')
    with pytest.raises(DataError, match=r"sizes are any of labels_per_row, .* but has \['rows'\]"):
        read_config(path)
    path.write_text('name = "a"\nformat = "csv"\n')
    with pytest.raises(DataError, match="format must be xc or svmlight, but is 'csv'"):
        read_config(path)


@pytest.mark.parametrize("name", [*XC, *CLASSES])
def test_figures_of_papers_are_there_to_compare_with(name):
    from .test_runner import published

    config = read_config(ROOT / "benchmarks" / f"{name}.toml")
    assert any(entry["data"] == config.name for entry in published()["entries"])
    assert any("paper" in str(each.params) for each in config.contestants)
