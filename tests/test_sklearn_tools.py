"""Our methods inside scikit-learn's tools, and scikit-learn's inside ours, on real rows: Bibtex's and texts about
cooking."""

from __future__ import annotations

import importlib
import itertools
import pickle
import tracemalloc
import warnings
from collections import UserList
from types import SimpleNamespace

import joblib
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn import set_config
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import StackingClassifier
from sklearn.exceptions import FitFailedWarning
from sklearn.experimental import enable_halving_search_cv  # noqa: F401
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import average_precision_score, f1_score
from sklearn.model_selection import (
    GridSearchCV,
    HalvingGridSearchCV,
    KFold,
    RandomizedSearchCV,
    StratifiedKFold,
    cross_val_predict,
    cross_val_score,
    cross_validate,
)
from sklearn.multiclass import OneVsRestClassifier
from sklearn.multioutput import ClassifierChain
from sklearn.pipeline import FeatureUnion, Pipeline
from sklearn.preprocessing import MultiLabelBinarizer
from sklearn.svm import LinearSVC

import umpteen
from umpteen.data.arrow import read_matrix
from umpteen.data.matrix import as_csr
from umpteen.data.targets import plain_values
from umpteen.data.tensors import from_tensor
from umpteen.errors import DataError, NotFittedError, ParamError

from .conftest import data_root

FEW = 400


@pytest.fixture(scope="module")
def rows(bibtex):
    """Some rows and the labels that many of them have."""
    train, _ = bibtex
    frequent = np.argsort(-train.Y[:1500].getnnz(axis=0), kind="stable")[:12]
    has = np.flatnonzero(np.diff(train.Y[:1500, frequent].indptr))[:FEW]
    assert len(has) == FEW
    return train.X[has], train.Y[has][:, frequent]


@pytest.fixture(scope="module")
def classes(rows):
    """Rows that have one class each: the most frequent label of those they have."""
    X, Y = rows
    has = np.diff(Y.indptr) > 0
    names = np.array([f"class {i:02}" for i in range(Y.shape[1])])
    y = names[np.asarray(Y[has].argmax(axis=1)).ravel()]
    often = np.isin(y, [name for name in names if (y == name).sum() >= 15])
    return X[has][often], y[often]


# --- what every estimator has -----------------------------------------------------------------------------------


def test_decisions_and_scores_of_labels(rows):
    X, Y = rows
    svm = umpteen.DiSMEC(threads=1).fit(X, Y)
    scores = svm.decision_function(X)
    assert scores.shape == Y.shape
    assert np.array_equal(svm.classes_, np.arange(12))
    assert np.array_equal(scores >= 0, svm.predict(X).toarray() > 0)
    assert np.array_equal(np.argmax(scores, axis=1), svm.predict_topk(X, 1)[0][:, 0])
    W, bias = svm.to_weights()
    assert np.allclose(svm.preprocessing_.transform(X) @ W.T + bias, scores, atol=1e-4)
    assert np.array_equal(svm.coef_.toarray(), W.toarray())
    assert np.array_equal(svm.intercept_, bias)


def test_a_tree_has_no_weights(rows):
    forest = umpteen.FastXML(n_trees=2).fit(*rows)
    with pytest.raises(ParamError, match="only linear models have weights .* family is forest"):
        forest.to_weights()


def test_probabilities_are_there_once_calibrated(rows):
    X, Y = rows
    assert not hasattr(umpteen.DiSMEC(), "predict_proba")
    plain = umpteen.DiSMEC().fit(X, Y)
    assert not hasattr(plain, "predict_proba")
    svm = umpteen.DiSMEC().fit(X, Y, calibration=3)
    found = svm.predict_proba(X)
    labels, probabilities = svm.predict_topk_proba(X, 3)
    assert np.array_equal(np.take_along_axis(found, labels, axis=1), probabilities)
    assert found.min() >= 0
    assert found.max() <= 1


def test_what_would_be_too_large_is_refused_and_says_what_to_use(rows, monkeypatch):
    X, Y = rows
    svm = umpteen.DiSMEC().fit(X, Y, calibration=3)
    monkeypatch.setattr("umpteen.trained.dense.MOST_CELLS", FEW * 12 - 1)
    with pytest.raises(ParamError, match=f"predict_proba of {FEW} rows x 12 labels .* use predict_topk_proba"):
        svm.predict_proba(X)
    with pytest.raises(ParamError, match="use predict_topk, or fewer rows"):
        svm.decision_function(X)
    assert svm.decision_function(X[1:]).shape == (FEW - 1, 12)


@pytest.mark.parametrize("name", ["fastxml", "rxml", "label-tree", "rxml-global"])
def test_the_least_score_that_is_given_is_zero_in_every_family(name, rows):
    from umpteen.methods import method_class

    X, Y = rows
    model = method_class(name)().fit(X, Y)
    assert np.mean((model.decision_function(X) >= 0) == (model.predict(X).toarray() > 0)) > 0.999


def test_n_jobs_is_another_name_for_threads():
    svm = umpteen.DiSMEC(n_jobs=2)
    assert (svm.threads, svm.n_jobs) == (2, 2)
    assert "n_jobs" not in svm.get_params()
    assert svm.set_params(n_jobs=-1).threads is None
    assert clone(svm).threads is None
    with pytest.raises(ParamError, match="threads and n_jobs are one parameter"):
        umpteen.DiSMEC(n_jobs=2, threads=1)
    with pytest.raises(ParamError, match="n_jobs must be an integer of at least 1, but is -2"):
        umpteen.DiSMEC(n_jobs=-2)


def test_an_error_before_fit_is_one_of_both():
    from sklearn.exceptions import NotFittedError as Theirs

    for kind in (NotFittedError, Theirs):
        with pytest.raises(kind, match="not fitted") as caught:
            umpteen.DiSMEC().predict(np.ones((2, 2)))
    assert isinstance(pickle.loads(pickle.dumps(caught.value)), Theirs)


# --- labels of every shape ----------------------------------------------------------------------------------------


def test_labels_of_every_shape_train_the_same_model(rows):
    X, Y = rows
    names = [f"label {i:02}" for i in range(12)]
    dense = Y.toarray().astype(np.int64)
    lists = [[names[label] for label in row.indices] for row in Y]
    known = umpteen.DiSMEC().fit(X, Y)
    forms = {
        "csr": Y,
        "csr_array": sp.csr_array(Y),
        "dense": dense,
        "table": pd.DataFrame(dense, columns=names),
        "lists": lists,
    }
    for form, given in forms.items():
        svm = umpteen.DiSMEC().fit(X, given)
        assert np.array_equal(svm.decision_function(X), known.decision_function(X)), form
        assert svm.score(X, given) == known.score(X, Y), form
        predicted = svm.predict(X)
        if form in ("dense", "table"):
            assert predicted.dtype == dense.dtype
            assert np.array_equal(predicted, known.predict(X).toarray())
        if form in ("table", "lists"):
            assert list(svm.label_names_) == names
            assert svm.classes_.tolist() == names
        if form.startswith("csr"):
            assert type(predicted) is type(given)
            assert (abs(predicted - known.predict(X))).nnz == 0
        if form == "lists":
            assert predicted == [[names[label] for label in row.indices] for row in known.predict(X)]


def test_one_class_for_each_row(classes):
    X, y = classes
    svm = umpteen.DiSMEC().fit(X, y)
    assert np.array_equal(svm.classes_, np.unique(y))
    assert svm.score(X, y) == np.mean(svm.predict(X) == y) > 0.9
    peer = LinearSVC().fit(svm.preprocessing_.transform(X), y)
    assert np.mean(peer.predict(svm.preprocessing_.transform(X)) == svm.predict(X)) > 0.98
    assert svm.score(X, np.where(y == y[0], "unknown", y)) < svm.score(X, y)
    calibrated = umpteen.DiSMEC().fit(X, y, calibration=3).predict_proba(X)
    assert np.allclose(calibrated.sum(axis=1), 1)


def test_two_classes_have_one_score(classes):
    X, y = classes
    y = (y == y[0]).astype(int)
    svm = umpteen.DiSMEC().fit(X, y)
    scores = svm.decision_function(X)
    assert scores.shape == y.shape
    assert np.array_equal(scores > 0, svm.predict(X) == 1)
    rows = svm.preprocessing_.transform(X)
    assert np.allclose((rows @ svm.coef_.T).toarray().ravel() + svm.intercept_, scores, atol=1e-4)


def test_columns_of_a_table_are_remembered(rows):
    X, Y = rows
    table = pd.DataFrame(X[:, :30].toarray(), columns=[f"word {i}" for i in range(30)])
    svm = umpteen.DiSMEC().fit(table, Y)
    assert svm.feature_names_in_.tolist() == list(table.columns)
    assert svm.predict(table).shape == Y.shape
    with pytest.raises(DataError, match="unknown column 'verb'"):
        svm.predict(table.rename(columns={"word 3": "verb"}))
    with pytest.raises(DataError, match="in the same order"):
        svm.decision_function(table[table.columns[::-1]])
    sparse = table.astype(pd.SparseDtype(float, 0))
    assert np.array_equal(umpteen.DiSMEC().fit(sparse, Y).coef_.toarray(), svm.coef_.toarray())
    assert not hasattr(umpteen.DiSMEC().fit(X, Y), "feature_names_in_")


class Stream:
    """What DuckDB, Arrow readers and others have in common: a stream of columns, and nothing else."""

    def __init__(self, table):
        self.table = table

    def __arrow_c_stream__(self, requested_schema=None):
        return self.table.__arrow_c_stream__(requested_schema)


def test_tables_of_every_kind_train_the_same_model(rows):
    import polars
    import pyarrow

    X, Y = rows
    words, names = [f"word {i}" for i in range(40)], [f"label {i}" for i in range(12)]
    table = pd.DataFrame(X[:, :40].toarray(), columns=words)
    labels = pd.DataFrame(Y.toarray().astype(int), columns=names)
    known = umpteen.DiSMEC().fit(table, labels)
    forms = {
        "polars": (polars.DataFrame(table.to_dict("list")), polars.DataFrame(labels.to_dict("list"))),
        "arrow": (pyarrow.table(table), pyarrow.table(labels)),
        "stream": (Stream(pyarrow.table(table)), Stream(pyarrow.table(labels))),
    }
    for form, (given, targets) in forms.items():
        svm = umpteen.DiSMEC().fit(given, targets)
        assert np.array_equal(svm.coef_.toarray(), known.coef_.toarray()), form
        assert np.array_equal(svm.predict(given), known.predict(table)), form
        if form != "stream":
            assert svm.feature_names_in_.tolist() == words
            assert list(svm.label_names_) == names


class Tensor:
    """What tensors have in common: DLPack, and nothing else."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


class TorchTensor(Tensor):
    """A tensor with what PyTorch's have: the methods of every layout, which fail for those of another."""

    def __init__(self, array, layout="strided", device="cpu"):
        super().__init__(array)
        self.shape, self.layout, self.device = array.shape, f"torch.{layout}", SimpleNamespace(type=device)

    def __array__(self, dtype=None, copy=None):
        if self.layout != "torch.strided":
            raise TypeError(f"can't convert {self.layout} layout tensor to numpy. Use Tensor.to_dense() first.")
        return np.asarray(self.array, dtype)

    def detach(self):
        return self

    coalesce = detach

    def is_floating_point(self):
        return self.array.dtype.kind == "f"

    def element_size(self):
        return self.array.dtype.itemsize

    def float(self):
        return TorchTensor(self.array.astype(np.float32))

    def sparse_dim(self):
        return 2

    def part(self, name, *layouts):
        if self.layout.removeprefix("torch.") not in layouts:
            raise RuntimeError(f"{name} expected sparse tensor layout but got {self.layout}")
        return TorchTensor(getattr(self.array, name))

    def values(self):
        return self.part("data", "sparse_csr", "sparse_csc", "sparse_coo")

    def crow_indices(self):
        return self.part("indptr", "sparse_csr")

    def col_indices(self):
        return self.part("indices", "sparse_csr")

    def ccol_indices(self):
        return self.part("indptr", "sparse_csc")

    def row_indices(self):
        return self.part("indices", "sparse_csc")

    def indices(self):
        assert self.layout == "torch.sparse_coo"
        return TorchTensor(np.vstack([self.array.row, self.array.col]))


def forms_of_torch(X):
    """A matrix as PyTorch has it, by layout; without PyTorch, as objects that offer what its tensors do."""
    try:
        torch = importlib.import_module("torch")
    except ImportError:
        return {
            "strided": TorchTensor(X.toarray()), "sparse_csr": TorchTensor(X, "sparse_csr"),
            "sparse_csc": TorchTensor(X.tocsc(), "sparse_csc"), "sparse_coo": TorchTensor(X.tocoo(), "sparse_coo"),
            "float16": TorchTensor(X.toarray().astype(np.float16)),
        }  # fmt: skip
    parts = (torch.from_numpy(part) for part in (X.indptr, X.indices, X.data))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that its sparse tensors are new, and not checked
        dense, csr = torch.from_numpy(X.toarray()), torch.sparse_csr_tensor(*parts, X.shape)
        return {
            "strided": dense, "sparse_csr": csr, "sparse_csc": dense.to_sparse_csc(),
            "sparse_coo": dense.to_sparse_coo(), "float16": dense.half(), "float64": dense.double(),
            "with a gradient": dense.clone().requires_grad_(),
        }  # fmt: skip


def test_tensors_train_the_same_model(rows):
    X, Y = rows
    X = sp.csr_matrix(X.toarray().astype(np.float16).astype(np.float32))
    known = umpteen.DiSMEC().fit(X, Y)
    tagged = umpteen.Tagger("centroid", "precomputed", calibration=0).fit(X, Y)
    forms = {"dlpack": Tensor(X.toarray()), "array": sp.csr_array(X)} | forms_of_torch(X)
    labels = {"dlpack": Tensor(Y.toarray()), "array": sp.csr_array(Y)} | forms_of_torch(Y)
    for form, given in forms.items():
        svm = umpteen.DiSMEC().fit(given, labels[form])
        assert np.array_equal(svm.coef_.toarray(), known.coef_.toarray()), form
        assert np.array_equal(svm.decision_function(given), known.decision_function(X)), form
        assert svm.score(given, labels[form]) == known.score(X, Y), form
        assert sp.issparse(svm.predict(given)) == (form.startswith("sparse") or form == "array"), form
        tagger = umpteen.Tagger("centroid", "precomputed", calibration=0).fit(given, labels[form])
        assert np.array_equal(tagger.model_.decision_function(given), tagged.model_.decision_function(X)), form
        assert type(tagger.predict(given)) is type(svm.predict(given)), form


def test_compressed_tensors_share_their_memory(rows):
    X, _ = rows
    kept = as_csr(forms_of_torch(X)["sparse_csr"], "X")
    assert np.shares_memory(kept.data, X.data)
    assert np.shares_memory(kept.indices, X.indices)
    dense = X.toarray()
    assert np.shares_memory(from_tensor(Tensor(dense), "X"), dense)


def test_classes_weights_and_blocks_may_be_tensors(rows, classes):
    X, y = classes[0], np.unique(classes[1], return_inverse=True)[1]
    assert np.array_equal(umpteen.Centroid().fit(X, Tensor(y)).predict(X), umpteen.Centroid().fit(X, y).predict(X))
    X, Y = rows
    forms, dense = forms_of_torch(X), X.toarray()[:, :20]
    joined = umpteen.Centroid().fit((X, dense), Y)
    given = umpteen.Centroid().fit((forms["sparse_csr"], Tensor(dense)), Y)
    assert np.array_equal(given.decision_function((X, dense)), joined.decision_function((X, dense)))
    model = umpteen.TrainedModel.from_weights(forms["sparse_csr"])
    assert np.array_equal(model.decision_function(X), umpteen.TrainedModel.from_weights(X).decision_function(X))


def test_broken_tensors_are_refused(rows):
    X, Y = rows
    broken = X.copy()
    broken.indices = broken.indices + X.shape[1]
    with pytest.raises(DataError, match="X's indices must be in"):
        umpteen.DiSMEC().fit(TorchTensor(broken, "sparse_csr"), Y)

    class Elsewhere(Tensor):
        def __dlpack__(self, **options):
            raise BufferError("the tensor is on another device")

    with pytest.raises(DataError, match=r"X is a tensor that cannot be read in place; is it on the CPU\? the"):
        umpteen.DiSMEC().fit(Elsewhere(X.toarray()), Y)
    with pytest.raises(DataError, match="X must be a tensor on the CPU, but is on"):
        umpteen.DiSMEC().fit(TorchTensor(X.toarray(), device="cuda"), Y)
    with pytest.raises(DataError, match=r"whose layout is one of strided, .* its layout sparse_bsr"):
        umpteen.DiSMEC().fit(TorchTensor(X.tobsr(), "sparse_bsr"), Y)


def test_relations_of_duckdb(rows):
    import duckdb

    X, Y = rows
    table = pd.DataFrame(X[:, :20].toarray(), columns=[f"word {i}" for i in range(20)])
    labels = pd.DataFrame(Y.toarray().astype(int), columns=[f"label {i}" for i in range(12)])
    known = umpteen.DiSMEC().fit(table, labels)
    with duckdb.connect() as connection:
        svm = umpteen.DiSMEC().fit(connection.from_df(table), connection.from_df(labels))
        assert list(svm.feature_names_in_) == list(table.columns)
        assert np.array_equal(svm.coef_.toarray(), known.coef_.toarray())
        assert np.array_equal(svm.predict(connection.from_df(table)), known.predict(table))


def test_columns_of_arrow_are_classes_and_lists_of_names(classes):
    import pyarrow

    X, y = classes
    names = [f"class {value}" for value in y.tolist()]
    known = umpteen.Centroid().fit(X, np.array(names))
    lists = [[name, "all"] if i % 3 else [] for i, name in enumerate(names)]
    listed = umpteen.Centroid().fit(X, lists)
    texts = pyarrow.array(names)
    columns = {
        "string": texts, "large_string": texts.cast("large_string"), "dictionary": texts.dictionary_encode(),
        "string_view": texts.cast(pyarrow.string_view()),
        "pieces": pyarrow.chunked_array([texts[:5], texts[5:5], texts[5:]]),
        "a table of one": pyarrow.table({"class": texts}),
        "a stream of one": pyarrow.table({"class": texts}).to_reader(7),
    }  # fmt: skip
    for form, column in columns.items():
        svm = umpteen.Centroid().fit(X, column)
        assert np.array_equal(svm.predict(X), known.predict(X)), form
        assert list(svm.classes_) == list(known.classes_), form
    for kind in (pyarrow.string(), pyarrow.large_string(), pyarrow.dictionary(pyarrow.int32(), pyarrow.string())):
        for column in (pyarrow.array(lists, pyarrow.list_(kind)), pyarrow.array(lists, pyarrow.large_list(kind))):
            for given in (column, pyarrow.chunked_array([column[:9], column[9:]]), pyarrow.table({"labels": column})):
                assert umpteen.Centroid().fit(X, given).predict(X) == listed.predict(X), given.type
        tagger = umpteen.Tagger("centroid", calibration=0).fit(texts, pyarrow.array(lists, pyarrow.list_(kind)))
        assert tagger.predict(texts) == umpteen.Tagger("centroid", calibration=0).fit(names, lists).predict(names)
        assert tagger.suggest(texts) == tagger.suggest(names)
    for wrong in (pyarrow.array([None, *names[1:]]), pyarrow.array([1, None, *range(len(names) - 2)])):
        with pytest.raises(DataError, match=r"row [01] of y has no class, but None"):
            umpteen.Centroid().fit(X, wrong)
    with pytest.raises(DataError, match="text 0 has None"):
        umpteen.Centroid().fit(X, pyarrow.array([None, *lists[1:]]))
    with pytest.raises(DataError, match=r"type is datetime64\[us\]"):
        umpteen.Centroid().fit(X, pyarrow.array(np.arange(len(names)).astype("datetime64[us]")))


def test_labels_of_arrow_are_judged_and_learnt():
    import pyarrow

    texts = ["herring quotas", "cod quotas in the sea", "a tax on wine", "wine and beer tax"] * 10
    labels = [["fish"], ["fish", "sea"], ["tax", "wine"], ["tax", "wine"]] * 10
    columns = pyarrow.array(texts), pyarrow.array(labels)
    tagger = umpteen.Tagger("dismec", calibration=0).fit(*columns)
    assert tagger.evaluate(*columns) == tagger.evaluate(texts, labels)
    assert tagger.score(*columns) == tagger.score(texts, labels) == 1
    new = pyarrow.array(["an apple"] * 3), pyarrow.array([["fruit"]] * 3)
    assert tagger.learn(pyarrow.array(["bread tax"]), pyarrow.array([["bread"]])).classes_[-1] == "bread"
    assert tagger.add_labels(*new).classes_[-1] == "fruit"


def test_columns_of_arrow_are_rows_of_numbers(rows):
    import pyarrow

    X, Y = rows
    X = X[:, :30].toarray()
    known = umpteen.Centroid().fit(X, Y)
    flat = pyarrow.array(X.ravel())
    vectors = pyarrow.FixedSizeListArray.from_arrays(flat, 30)
    halves = pyarrow.FixedSizeListArray.from_arrays(pyarrow.array(X.astype("f2").ravel()), 30)
    columns = {f"x{i}": pyarrow.array(X[:, i]) for i in range(30)}
    decimal = pyarrow.decimal128(38, 8)
    for form, column in {
        "vectors": vectors,
        "lists": pyarrow.array(X.tolist()),
        "pieces": pyarrow.chunked_array([vectors[:7], vectors[7:]]),
        "decimals": pyarrow.table({name: column.cast(decimal) for name, column in columns.items()}),
        "dictionaries": pyarrow.table({name: column.dictionary_encode() for name, column in columns.items()}),
        "halves": halves,
        "a stream": pyarrow.table({"x": vectors}).to_reader(50),
    }.items():
        svm = umpteen.Centroid().fit(column, Y)
        near = 1e-2 if form == "halves" else 1e-6
        assert np.abs(svm.decision_function(X) - known.decision_function(X)).max() < near, form
    labels = pyarrow.FixedSizeListArray.from_arrays(pyarrow.array(Y.toarray().ravel()), 12)
    assert np.array_equal(umpteen.Centroid().fit(X, labels).predict(X), known.predict(X).toarray())
    with pytest.raises(DataError, match="X must have two dimensions, but has 1"):
        umpteen.Centroid().fit(flat, Y)


def test_numbers_of_arrow_are_read_where_they_lie(rows):
    import pyarrow

    X = rows[0][:, :30].toarray()
    vectors = pyarrow.FixedSizeListArray.from_arrays(pyarrow.array(X.ravel()), 30)
    memory = np.frombuffer(vectors.values.buffers()[1], np.float32)
    for given in (vectors, pyarrow.table({"x": vectors}), pyarrow.table({"x": vectors}).to_reader(), vectors[5:]):
        assert np.shares_memory(read_matrix(given, "X"), memory)
    ids = pyarrow.array(np.arange(40))
    assert np.shares_memory(plain_values(ids), np.frombuffer(ids.buffers()[1], np.int64))
    assert np.array_equal(read_matrix(vectors[5:], "X"), X[5:])


def test_a_stream_of_arrow_is_read_batch_by_batch():
    import pyarrow

    n_batches, n_rows, n_columns = 40, 1000, 200
    schema = pyarrow.schema([(f"x{i}", pyarrow.float64()) for i in range(n_columns)])
    row = np.zeros(n_rows)
    row[::50] = 1.5

    def batches():
        for _ in range(n_batches):
            yield pyarrow.record_batch([pyarrow.array(row.copy()) for _ in range(n_columns)], schema=schema)

    before = pyarrow.default_memory_pool().bytes_allocated()
    tracemalloc.start()
    X = as_csr(pyarrow.RecordBatchReader.from_batches(schema, batches()), "X")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert X.shape == (n_batches * n_rows, n_columns)
    assert X.nnz == n_batches * n_columns * n_rows // 50
    assert peak < n_batches * n_rows * n_columns * 8 / 2
    assert pyarrow.default_memory_pool().bytes_allocated() <= before + 1


def test_streams_of_arrow_get_suggestions():
    import duckdb
    import polars
    import pyarrow

    texts = ["herring quotas", "cod quotas in the sea", "a tax on wine", "wine and beer tax"] * 10
    labels = [["fish"], ["fish", "sea"], ["tax", "wine"], ["tax", "wine"]] * 10
    tagger = umpteen.Tagger("centroid", calibration=0).fit(texts, labels)
    table = pyarrow.table({"id": range(40), "text": texts})
    known = [list(found) for found in tagger.suggest(texts, top_k=2)]
    read = []

    def batches():
        for batch in table.to_batches(max_chunksize=8):
            read.append(batch)
            yield batch

    found = tagger.suggest_stream(pyarrow.RecordBatchReader.from_batches(table.schema, batches()), top_k=2)
    assert not read
    first = found.read_next_batch()
    assert (len(read), first.num_rows, first.schema.names) == (1, 8, ["id", "text", "suggestions"])
    rest = pyarrow.Table.from_batches([first, *found])
    assert rest.select(["id", "text"]).equals(table)
    got = [[(hit["label"], hit["probability"]) for hit in row] for row in rest["suggestions"].to_pylist()]
    assert got == known

    with duckdb.connect() as source, duckdb.connect() as target:  # DuckDB has one stream open for each connection
        source.register("texts", table)
        stream = tagger.suggest_stream(source.sql("select id, text as body from texts"), fields="body", top_k=1)
        target.register("found", stream)
        best = target.sql("select id, body, suggestions[1].label from found order by id").fetchall()
        assert best == [(i, text, row[0][0]) for i, (text, row) in enumerate(zip(texts, known, strict=True))]
    for frame in (polars.DataFrame({"text": texts}), pd.DataFrame({"text": texts})):
        assert polars.DataFrame(tagger.suggest_stream(frame, top_k=2))["suggestions"].to_list() == [
            [{"label": label, "probability": probability} for label, probability in row] for row in known
        ]
    none = tagger.suggest_stream(table.slice(0, 0), top_k=2).read_all()
    assert (none.num_rows, none.schema.names) == (0, ["id", "text", "suggestions"])
    assert tagger.suggest_stream(pyarrow.table({"text": ["zzz"]})).read_all()["suggestions"].to_pylist() == [[]]


def test_streams_without_texts_are_refused():
    import pyarrow

    tagger = umpteen.Tagger("centroid", calibration=0).fit(["a tax", "a fish"], [["tax"], ["fish"]])
    for source, message in (
        (pyarrow.table({"txt": ["a"]}), "there must be a column 'text', but the columns are 'txt'"),
        (pyarrow.table({"text": ["a"], "suggestions": [1]}), "must not have a column 'suggestions'"),
        (pyarrow.array(["a"]), "must be a table or a stream of Arrow, but is a column"),
        (pyarrow.table([pyarrow.array(["a"])] * 2, ["text", "text"]), "'text' stands 2 times"),
        (["a"], "must be a column, a table or a stream of Arrow, but"),
    ):
        with pytest.raises(DataError, match=message):
            tagger.suggest_stream(source)
    with pytest.raises(DataError, match="row 1: text must be a string, but is null"):
        tagger.suggest_stream(pyarrow.table({"text": ["a", None]})).read_all()
    numbers = umpteen.Tagger("centroid", "precomputed", calibration=0).fit(np.eye(2), [["a"], ["b"]])
    with pytest.raises(ParamError, match="a tagger with precomputed features takes no texts"):
        numbers.suggest_stream(pyarrow.table({"text": ["a"]}))


def test_tables_with_more_than_numbers_are_refused_by_column(rows):
    import datetime
    import decimal

    import polars
    import pyarrow

    Y = np.eye(2)
    for value, kind in (
        (datetime.date(2020, 1, 1), "date32"),
        (datetime.datetime(2020, 1, 1), "timestamp"),
        (datetime.timedelta(1), "duration"),
        ("1", "string"),
        ({"a": 1}, "struct"),
        ([[1.0]], "(large_)?list<item: (large_)?list"),
        (None, "null"),
    ):
        table = {"a": [1.0, 2.0], "odd": [value, value]}
        for given in (pyarrow.table(table), polars.DataFrame(table)):
            with pytest.raises(DataError, match=f"column 'odd' of X must hold numbers, but holds {kind}"):
                umpteen.Centroid().fit(given, Y)
    for value, message in (
        ([1, None], "column 'odd' of X must hold a number in every place, but lacks one in row 1"),
        ([[1.0], [1.0, 2.0]], r"column 'odd' of X must hold lists of one length, but lengths are \[1, 2\]"),
        ([[1.0, 2.0], [1.0, None]], "column 'odd' of X must hold a number in every place, but lacks one in row 1"),
    ):
        with pytest.raises(DataError, match=message):
            umpteen.Centroid().fit(pyarrow.table({"a": [1.0, 2.0], "odd": value}), Y)
    right = {"a": [decimal.Decimal("1.5"), decimal.Decimal(2)], "b": [[1.0, 0.0], [0.0, 1.0]]}
    for given in (pyarrow.table(right), polars.DataFrame(right)):
        assert as_csr(given, "X").toarray().tolist() == [[1.5, 1.0, 0.0], [2.0, 0.0, 1.0]]
    narrow, wide = (pyarrow.table({"x": [[1.0] * n]}).to_batches()[0] for n in (2, 3))
    with pytest.raises(
        DataError, match=r"X must hold lists of one length, but further on they have \[3\], not \[2\]"
    ):
        as_csr(pyarrow.RecordBatchReader.from_batches(narrow.schema, [narrow, wide]), "X")


def test_columns_of_hugging_face_datasets(rows):
    datasets = pytest.importorskip("datasets")
    texts = ["herring quotas", "cod quotas in the sea", "a tax on wine", "wine and beer tax"] * 10
    labels = [["fish"], ["fish", "sea"], ["tax", "wine"], ["tax", "wine"]] * 10
    vectors, y = [[1.0, 0.0], [0.9, 0.1], [0.0, 1.0], [0.1, 1.0]] * 10, ["a", "a", "b", "b"] * 10
    data = datasets.Dataset.from_dict({"text": texts, "labels": labels, "vector": vectors, "y": y})
    known = umpteen.Tagger("centroid", calibration=0).fit(texts, labels)
    arrow = data.with_format("arrow")
    for source, given in (
        (data, data["labels"]),
        (data["text"], data["labels"]),
        (arrow["text"][:], arrow["labels"][:]),
    ):
        tagger = umpteen.Tagger("centroid", calibration=0).fit(source, given, fields="text")
        assert tagger.predict(source) == known.predict(texts)
    assert umpteen.read_corpus(data.filter(lambda row: "tax" in row["text"])).labels == labels[2:4] * 10
    assert umpteen.read_corpus(data.to_iterable_dataset()).texts == texts
    for X in (data["vector"], arrow["vector"][:], data.select_columns("vector").with_format("arrow")[:]):
        assert umpteen.Centroid().fit(X, data["y"]).predict(np.array(vectors)).tolist() == y
        assert umpteen.Centroid().fit(X, arrow["y"][:]).predict(X).tolist() == y


def test_a_sequence_that_is_no_list_holds_names(rows):
    """Such as a column of Hugging Face's datasets."""
    X, Y = rows
    lists = [[str(label) for label in row] for row in np.split(Y.indices, Y.indptr[1:-1])]
    assert umpteen.Centroid().fit(X, UserList(lists)).predict(X) == umpteen.Centroid().fit(X, lists).predict(X)


def test_arrow_columns_of_text_are_no_numbers(rows):
    import pyarrow

    with pytest.raises(DataError, match="column 'word' of X must hold numbers, but holds string"):
        umpteen.DiSMEC().fit(Stream(pyarrow.table({"word": ["a", "b"]})), np.eye(2))


# --- searches and cross-validation --------------------------------------------------------------------------------


def test_grid_search_by_a_measure_of_scikit_learn(rows):
    X, Y = rows
    search = GridSearchCV(umpteen.DiSMEC(), {"C": [0.01, 1.0]}, cv=3, scoring="f1_micro").fit(X, Y)
    assert search.best_params_ == {"C": 1.0}
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    assert search.best_score_ > 0.2


def test_grid_search_of_dense_labels_by_three_measures(rows):
    X, Y = rows
    scoring = umpteen.make_scorer("P@1", "nDCG@5", "PSP@3")
    search = GridSearchCV(umpteen.DiSMEC(), {"C": [0.01, 1.0]}, cv=2, scoring=scoring, refit="nDCG@5")
    search.fit(X, Y.toarray())
    assert search.best_params_ == {"C": 1.0}
    for name in scoring:
        assert (search.cv_results_[f"mean_test_{name}"] > 0.1).all()


def test_randomized_search(rows):
    from scipy.stats import loguniform

    search = RandomizedSearchCV(umpteen.DiSMEC(), {"C": loguniform(0.01, 10)}, n_iter=3, cv=2, random_state=0)
    assert search.fit(*rows).best_score_ > 0.3


def test_halving_search(rows):
    search = HalvingGridSearchCV(
        umpteen.DiSMEC(), {"C": [0.01, 0.1, 1.0]}, cv=2, min_resources=100, random_state=0,
        scoring=umpteen.make_scorer("P@1"),
    )  # fmt: skip
    assert search.fit(*rows).best_params_["C"] in (0.1, 1.0)


def test_cross_val_predict(rows, classes):
    X, Y = rows
    given = cross_val_predict(umpteen.DiSMEC(), X, Y, cv=3)
    assert given.shape == Y.shape
    assert f1_score(Y, given, average="micro", zero_division=0) > 0.2
    scores = cross_val_predict(umpteen.DiSMEC(), X, Y.toarray(), cv=3, method="decision_function")
    assert scores.shape == Y.shape
    assert cross_val_predict(umpteen.DiSMEC(), *classes, cv=3).shape == classes[1].shape


def test_a_measure_agrees_with_evaluate(rows):
    X, Y = rows
    svm = umpteen.DiSMEC().fit(X, Y)
    known = umpteen.evaluate(Y, svm.predict_topk(X, 5)[0], svm.train_counts_)
    for name in ("P@5", "nDCG@5", "PSP@3", "PSnDCG@1"):
        assert umpteen.make_scorer(name)(svm, X, Y) == pytest.approx(known[name] / 100)


def test_measures_of_estimators_that_are_not_ours(rows):
    X, Y = rows
    peer = OneVsRestClassifier(LinearSVC()).fit(X, Y)
    assert umpteen.make_scorer("P@1")(peer, X, Y) > 0.9
    y = np.asarray(Y.argmax(axis=1)).ravel()
    for classes in (y, y == y[0]):  # scores of two classes are one column
        peer_of_classes = LinearSVC().fit(X, classes)
        share = np.mean(peer_of_classes.predict(X) == classes)
        assert umpteen.make_scorer("P@1")(peer_of_classes, X, classes) == pytest.approx(share)
        assert umpteen.make_scorer("f1_micro")(peer_of_classes, X, classes) == pytest.approx(share)
    with pytest.raises(ParamError, match="PSP@3 needs how often labels occur in training"):
        umpteen.make_scorer("PSP@3")(peer, X, Y)


@pytest.mark.parametrize("name", ["P", "F@3", "P@0", 5, "accuracy"])
def test_unknown_measures_are_refused(name):
    with pytest.raises(ParamError, match="a scorer must be one of"):
        umpteen.make_scorer(name)


# --- meta-estimators ----------------------------------------------------------------------------------------------


def test_calibrated_classifier(classes):
    X, y = classes
    calibrated = CalibratedClassifierCV(umpteen.DiSMEC(), cv=3).fit(X, y)
    found = calibrated.predict_proba(X)
    assert found.shape == (len(y), len(np.unique(y)))
    assert np.mean(calibrated.predict(X) == y) > 0.85


def test_stacking(classes):
    X, y = classes
    stack = StackingClassifier(
        [("svm", umpteen.DiSMEC()), ("trees", umpteen.FastXML(n_trees=3)), ("peer", LinearSVC())],
        LogisticRegression(max_iter=300), cv=2,
    )  # fmt: skip
    assert stack.fit(X, y).score(X, y) > 0.7


def test_a_chain_of_classifiers(rows):
    X, Y = rows
    chain = ClassifierChain(umpteen.DiSMEC(), order=[0, 1, 2]).fit(X, Y[:, :3].toarray())
    assert f1_score(Y[:, :3].toarray(), chain.predict(X), average="micro") > 0.7


def test_weights_are_routed(rows):
    X, Y = rows
    weights = np.where(np.arange(FEW) < 200, 1.0, 0.0)
    set_config(enable_metadata_routing=True)
    try:
        svm = umpteen.DiSMEC().set_fit_request(sample_weight=True).set_score_request(sample_weight=True)
        search = GridSearchCV(svm, {"C": [1.0]}, cv=KFold(2, shuffle=True, random_state=0))
        search.fit(X, Y, sample_weight=weights)
        half = umpteen.DiSMEC().fit(X[:200], Y[:200])
        assert np.array_equal(search.best_estimator_.decision_function(X), half.decision_function(X))
        results = cross_validate(svm, X, Y.toarray(), cv=2, params={"sample_weight": np.ones(FEW)})
        assert len(results["test_score"]) == 2
        with pytest.raises(TypeError, match="not 'texts'"):
            svm.set_fit_request(texts=True)
    finally:
        set_config(enable_metadata_routing=False)


# --- pipelines ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def texts():
    """Questions about cooking in a table of two columns, and their most frequent labels."""
    folder = data_root() / "StackExchange-Cooking"
    if not folder.exists():
        pytest.skip(f"no StackExchange-Cooking in {data_root()}; set UMPTEEN_DATA to run this test")
    questions = list(itertools.islice(umpteen.iter_corpus(folder / "train.jsonl.xz"), 600))
    titles = [question.text for question in questions]
    table = pd.DataFrame({"title": titles, "end": [" ".join(title.split()[-4:]) for title in titles]})
    Y = MultiLabelBinarizer().fit_transform([question.labels for question in questions])
    Y = Y[:, np.argsort(-Y.sum(axis=0), kind="stable")[:15]]
    return table[Y.any(axis=1)], Y[Y.any(axis=1)]


def test_pipeline_and_feature_union_of_texts(texts):
    table, Y = texts
    union = FeatureUnion([("words", umpteen.Tfidf()), ("stems", umpteen.Tfidf(ngram_range=(1, 2)))])
    pipeline = Pipeline([("features", union), ("svm", umpteen.DiSMEC())])
    scores = cross_val_score(pipeline, table["title"], Y, cv=3, scoring=umpteen.make_scorer("P@1"))
    assert scores.min() > 0.2
    search = GridSearchCV(pipeline, {"svm__C": [0.01, 1.0]}, cv=2, scoring="f1_micro").fit(table["title"], Y)
    assert search.best_params_ == {"svm__C": 1.0}


def test_columns_of_texts(texts):
    table, Y = texts
    columns = ColumnTransformer([("title", umpteen.Tfidf(), "title"), ("end", umpteen.Tfidf(), "end")])
    pipeline = Pipeline([("columns", columns), ("svm", umpteen.DiSMEC())]).fit(table, Y)
    assert pipeline.score(table, Y) > 0.8
    names = columns.fit(table).get_feature_names_out()
    assert len(names) == pipeline.named_steps["svm"].n_features_in_
    assert names[0].startswith("title__")


@pytest.mark.parametrize("cls", [umpteen.Tfidf, umpteen.TfidfUnion])
def test_words_as_columns_of_a_table(cls, texts):
    table, _ = texts
    fifty = umpteen.Tfidf(max_features=50)
    new = fifty.get_params if cls is umpteen.Tfidf else lambda: {"parts": [fifty]}
    words = cls(**new()).set_output(transform="pandas")
    found = words.fit_transform(table["title"])
    assert list(found.columns) == words.get_feature_names_out().tolist()
    assert found.shape == (len(table), 50)
    plain = cls(**new()).fit_transform(table["title"])
    assert found.equals(words.transform(table["title"]))
    assert np.array_equal(found.sparse.to_coo().toarray(), plain.toarray())
    assert sp.issparse(words.set_output(transform="default").transform(table["title"]))


# --- taggers ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def tagged(texts):
    table, Y = texts
    return table["title"].tolist(), [[f"label {label:02}" for label in np.flatnonzero(row)] for row in Y]


def test_grid_search_of_a_tagger(tagged):
    search = GridSearchCV(umpteen.Tagger("dismec", calibration=0), {"method__C": [0.01, 1.0]}, cv=2).fit(*tagged)
    assert search.best_params_ == {"method__C": 1.0}
    assert search.best_estimator_.method.C == 1.0
    scoring = umpteen.make_scorer("nDCG@3")
    search = GridSearchCV(umpteen.Tagger("dismec", calibration=0), {"method__C": [0.01, 1.0]}, cv=2, scoring=scoring)
    assert search.fit(*tagged).best_score_ > 0.3


@pytest.mark.parametrize("cv", [2, KFold(2, shuffle=True, random_state=0)], ids=str)
def test_grid_search_of_settings_where_the_method_is_auto(cv, tagged):
    search = GridSearchCV(umpteen.Tagger(), {"method__C": [0.01, 1.0]}, cv=cv).fit(*tagged)
    assert search.best_params_ == {"method__C": 1.0}
    assert repr(search.best_estimator_) == "Tagger(method=DiSMEC())"  # 1.0 is its default
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()


def test_settings_inside_a_tagger_have_an_owner():
    tagger = umpteen.Tagger().set_params(method__C=2.0, features__ngram_range=(1, 2))
    assert repr(tagger.method) == "DiSMEC(C=2.0)"
    assert (
        tagger.features.get_params()
        == umpteen.Tfidf(ngram_range=(1, 2), sublinear_tf=True, all_scripts=True).get_params()
    )
    assert umpteen.Tagger().set_params(method__n_trees=3, method="fastxml").method.n_trees == 3
    with pytest.raises(ParamError, match=r"method__n_trees .* which is dismec .* such as Tagger\('fastxml'\)"):
        umpteen.Tagger().set_params(method__n_trees=3)
    with pytest.raises(ParamError, match="Tagger has no parameter 'method__D'"):
        umpteen.Tagger("dismec").set_params(method__D=3)
    with pytest.raises(ParamError, match="Tagger has no parameter 'colour'"):
        umpteen.Tagger().set_params(colour=3)


def test_other_searches_of_a_tagger(tagged):
    settings = {"method": ["centroid", "dismec"], "features": ["word", "pairs"]}
    tagger = umpteen.Tagger(calibration=0)
    halving = HalvingGridSearchCV(tagger, settings, cv=2, min_resources=60, random_state=0).fit(*tagged)
    assert halving.best_score_ > 0.2
    random = RandomizedSearchCV(tagger, settings, cv=2, n_iter=2, random_state=0, scoring=umpteen.make_scorer("P@1"))
    assert random.fit(*tagged).best_params_["method"] in settings["method"]


def test_a_tagger_is_a_classifier(texts, tagged):
    table, Y = texts
    tagger = umpteen.Tagger("dismec").fit(table["title"], Y)
    scores, probabilities = tagger.decision_function(table["title"]), tagger.predict_proba(table["title"])
    assert tagger.classes_.tolist() == list(range(Y.shape[1]))
    assert list(tagger.model_.label_names) == [str(label) for label in range(Y.shape[1])]  # 10 after 9
    rows = tagger.vectorize(table["title"]).X
    same = umpteen.DiSMEC().fit(rows, Y)
    assert np.allclose(scores, same.decision_function(rows), atol=1e-3)
    ranked, best = tagger.predict_topk_proba(table["title"], 3)
    assert np.array_equal(np.take_along_axis(probabilities, ranked, axis=1), best)
    assert np.array_equal(tagger.predict_topk(table["title"], 3)[0], ranked)
    assert average_precision_score(Y, scores) > 0.9
    measures = ["f1_micro", "average_precision", "roc_auc"]
    results = cross_validate(tagger, table["title"], Y[:, :5], cv=2, scoring=measures)
    assert all(np.isfinite(results[f"test_{name}"]).all() for name in measures)
    lists = cross_val_predict(umpteen.Tagger("dismec"), *tagged, cv=2)
    assert len(lists) == len(Y)
    assert len({len(row) for row in lists}) > 1


def test_what_a_tagger_refuses_as_a_classifier(texts, monkeypatch):
    table, Y = texts
    assert hasattr(umpteen.Tagger(), "predict_proba")
    plain = umpteen.Tagger("dismec", calibration=0)
    assert not hasattr(plain, "predict_proba")
    assert not hasattr(plain.fit(table["title"], Y), "predict_proba")
    with pytest.raises(NotFittedError, match="this Tagger is not fitted"):
        umpteen.Tagger().predict_proba(["a text"])
    tagger = umpteen.Tagger("dismec").fit(table["title"], Y)
    monkeypatch.setattr("umpteen.trained.dense.MOST_CELLS", Y.size - 1)
    with pytest.raises(ParamError, match=f"predict_proba of {len(Y)} rows x 15 labels .* use predict_topk_proba"):
        tagger.predict_proba(table["title"])
    with pytest.raises(ParamError, match="use predict_topk, or fewer rows"):
        tagger.decision_function(table["title"])


@pytest.fixture(scope="module")
def one_class(texts):
    table, Y = texts
    y = np.array([f"class {label}" for label in np.argmax(Y, axis=1)])
    often = np.isin(y, [name for name in set(y) if (y == name).sum() >= 10])
    return table["title"][often].tolist(), y[often]


@pytest.mark.parametrize("method", ["auto", "dismec", "fastxml"])
def test_calibration_of_taggers(method, one_class):
    texts, y = one_class
    calibrated = CalibratedClassifierCV(umpteen.Tagger(method, calibration=0), cv=3).fit(texts, y)
    assert np.allclose(calibrated.predict_proba(texts).sum(axis=1), 1)
    assert np.array_equal(calibrated.classes_, np.unique(y))
    assert np.mean(calibrated.predict(texts) == y) > 0.7
    own = cross_val_score(umpteen.Tagger(method), texts, y, cv=StratifiedKFold(2), scoring="neg_log_loss")
    assert own.min() > -np.log(len(np.unique(y)))  # better than chance


def test_stacking_of_taggers_and_pipelines(one_class):
    texts, y = one_class
    stack = StackingClassifier(
        [
            ("tagger", umpteen.Tagger("dismec")),
            ("pipeline", Pipeline([("words", umpteen.Tfidf()), ("trees", umpteen.FastXML(n_trees=3))])),
            ("peer", Pipeline([("words", TfidfVectorizer()), ("svm", LinearSVC())])),
        ],
        LogisticRegression(max_iter=300), cv=2,
    )  # fmt: skip
    assert stack.fit(texts, y).score(texts, y) > 0.7


def test_a_list_of_classes_is_an_array_of_them(one_class):
    texts, y = one_class
    tagger = umpteen.Tagger("dismec").fit(texts, y.tolist())
    assert np.array_equal(tagger.predict(texts), umpteen.Tagger("dismec").fit(texts, y).predict(texts))
    assert tagger.score(texts, y.tolist()) == np.mean(tagger.predict(texts) == y)
    assert np.allclose(tagger.predict_proba(texts).sum(axis=1), 1)
    numbers = np.unique(y, return_inverse=True)[1].tolist()
    assert umpteen.Tagger("dismec", calibration=0).fit(texts, numbers).predict(texts).dtype == int


def test_a_tagger_gives_lists_once_labels_joined(one_class):
    texts, y = one_class
    tagger = umpteen.Tagger("dismec").fit(texts, y)
    tagger.add_labels(["a kettle for tea"] * 3, [["kettles"]] * 3)
    assert tagger.predict(["a kettle for tea"]) == [["kettles"]]
    assert tagger.classes_.tolist() == [*np.unique(y), "kettles"]


def test_a_tagger_of_a_file_judges_labels_in_every_form(texts, tagged, one_class, tmp_path):
    _, Y = texts
    titles, lists = tagged
    frame = pd.DataFrame(Y, columns=[f"label {i:02}" for i in range(Y.shape[1])])
    umpteen.Tagger("dismec", calibration=0).fit(titles, frame).save(tmp_path / "labels")
    loaded = umpteen.Tagger.load(tmp_path / "labels")
    assert loaded.score(titles, frame) == loaded.score(titles, lists) > 0.9
    umpteen.Tagger("dismec", calibration=0).fit(*one_class).save(tmp_path / "classes")
    assert umpteen.Tagger.load(tmp_path / "classes").score(*one_class) > 0.9


def test_what_is_not_a_list_of_texts_or_labels(tagged):
    import pyarrow

    titles, lists = tagged
    tagger = umpteen.Tagger("dismec", calibration=0).fit(pyarrow.chunked_array([titles]), lists)
    assert tagger.predict(pyarrow.array(titles)) == tagger.predict(titles)
    with pytest.raises(ParamError, match="texts must be a list of texts, but is one text"):
        tagger.predict("one text")
    with pytest.raises(DataError, match="the columns of Y must have different names, but two are 'a'"):
        tagger.fit(titles, pd.DataFrame(np.ones((len(titles), 3)), columns=["b", "a", "a"]))


def test_weights_of_texts(tagged):
    texts, lists = tagged
    weights = np.random.default_rng(0).integers(0, 3, len(texts))
    rows = np.repeat(np.arange(len(texts)), weights)
    exact = umpteen.DiSMEC(eps=1e-5, prune=0.0, weight_type="float32")
    features = umpteen.Tfidf(use_idf=False)  # idf takes each text once
    taggers = [umpteen.Tagger(clone(exact), features, calibration=0) for _ in range(3)]
    taggers[0].fit(texts, lists, sample_weight=weights)
    taggers[1].fit([texts[i] for i in rows], [lists[i] for i in rows])
    taggers[2].fit(texts, lists)
    weighted, repeated, once = (tagger.model_.to_weights()[0] for tagger in taggers)
    assert abs(weighted - repeated).max() < 2e-3 * abs(repeated).max()
    assert weighted.shape != once.shape  # words of texts that do not count are not there
    score = taggers[0].score(texts, lists, sample_weight=weights)
    assert score == pytest.approx(taggers[0].score([texts[i] for i in rows], [lists[i] for i in rows]))


def test_texts_in_tables_and_matrices_have_weights(texts):
    table, Y = texts
    weights = np.arange(len(table)) % 3
    kept = weights > 0
    columns = ColumnTransformer([("title", TfidfVectorizer(), "title")])
    for features, given in ((columns, table), ("precomputed", columns.fit_transform(table).tocsr())):
        found, known = (
            umpteen.Tagger("centroid", features, calibration=0).fit(X, labels, sample_weight=w)
            for X, labels, w in ((given, Y, weights), (given[kept], Y[kept], weights[kept]))
        )
        assert np.array_equal(found.decision_function(given), known.decision_function(given))


def test_auto_chooses_among_methods_that_weigh_rows(tagged):
    texts, lists = tagged
    tagger = umpteen.Tagger(budget="20s", calibration=0)
    tagger.fit(texts * 2, lists * 2, sample_weight=np.linspace(0.5, 2, 2 * len(texts)))
    assert "rxml" in [option.name for option in umpteen.choose_method(*tagger.encode(texts * 2, lists * 2)).options]
    assert not any(option.name.startswith("rxml") for option in tagger.choice_.options)
    with pytest.raises(ParamError, match="sample_weight must be None for rxml"):
        umpteen.Tagger("rxml").fit(texts, lists, sample_weight=np.ones(len(texts)))
    with pytest.raises(DataError, match="sample_weight must have one number for each"):
        umpteen.Tagger("dismec").fit(texts, lists, sample_weight=[1.0])


def test_weights_are_routed_to_taggers(tagged):
    texts, lists = tagged
    weights = np.where(np.arange(len(texts)) < len(texts) // 2, 1.0, 0.0)
    set_config(enable_metadata_routing=True)
    try:
        tagger = umpteen.Tagger("dismec", calibration=0).set_fit_request(sample_weight=True)
        tagger.set_score_request(sample_weight=True)
        search = GridSearchCV(tagger, {"method__C": [1.0]}, cv=KFold(2, shuffle=True, random_state=0))
        search.fit(texts, lists, sample_weight=weights)
        half = len(texts) // 2
        known = umpteen.Tagger("dismec", calibration=0).fit(texts[:half], lists[:half])
        assert np.array_equal(search.best_estimator_.decision_function(texts), known.decision_function(texts))
    finally:
        set_config(enable_metadata_routing=False)


def test_threads_of_a_tagger(tagged):
    tagger = umpteen.Tagger("dismec", n_jobs=2, calibration=0).fit(*tagged)
    assert (tagger.threads, tagger.n_jobs, tagger.check().threads, tagger.model_.threads) == (2, 2, 2, 2)
    assert tagger.set_params(n_jobs=1).fitted().threads == 1
    assert umpteen.Tagger(umpteen.DiSMEC(threads=3), n_jobs=2).check().threads == 3  # the method's own goes first
    one = umpteen.Tagger("dismec", threads=1, calibration=0).fit(*tagged)
    assert np.array_equal(one.decision_function(tagged[0]), tagger.decision_function(tagged[0]))
    with pytest.raises(ParamError, match="n_jobs must be an integer of at least 1"):
        umpteen.Tagger(n_jobs=0)
    with pytest.raises(ParamError, match="threads must be an integer of at least 1"):
        umpteen.Tagger(threads=0).fit(*tagged)


@pytest.mark.parametrize("name", ["f1_micro", "f1_macro", "f1_samples", "precision_micro", "recall_macro"])
def test_measures_of_predictions_are_those_of_scikit_learn(name, texts, tagged):
    table, Y = texts
    names = [f"label {i:02}" for i in range(Y.shape[1])]
    by_lists = cross_val_score(
        umpteen.Tagger("dismec", calibration=0), *tagged, cv=2, scoring=umpteen.make_scorer(name)
    )
    frame = pd.DataFrame(Y, columns=names)
    known = cross_val_score(umpteen.Tagger("dismec", calibration=0), table["title"], frame, cv=2, scoring=name)
    assert by_lists == pytest.approx(known)
    assert known.min() > 0.05
    pipeline = Pipeline([("words", TfidfVectorizer()), ("svm", OneVsRestClassifier(LinearSVC()))])
    same = cross_validate(pipeline, table["title"], Y, cv=2, scoring={"a": name, "b": umpteen.make_scorer(name)})
    assert same["test_a"] == pytest.approx(same["test_b"])


def test_a_tagger_gives_the_form_of_labels_it_was_given(texts, tagged):
    table, Y = texts
    names = [f"label {i:02}" for i in range(Y.shape[1])]
    titles, lists = tagged
    known = umpteen.Tagger("dismec", calibration=0).fit(titles, lists)
    as_matrix = MultiLabelBinarizer(classes=names).fit_transform(known.predict(titles))
    for given in (Y, sp.csr_matrix(Y), pd.DataFrame(Y, columns=names)):
        tagger = umpteen.Tagger("dismec", calibration=0).fit(table["title"], given)
        predicted = tagger.predict(table["title"])
        assert np.array_equal(predicted.toarray() if sp.issparse(predicted) else predicted, as_matrix)
        assert tagger.score(table["title"], given) == known.score(titles, lists)
    search = GridSearchCV(
        umpteen.Tagger("dismec", calibration=0), {"method__C": [0.01, 1.0]}, cv=2, scoring="f1_micro"
    )
    assert search.fit(table["title"], Y).best_params_ == {"method__C": 1.0}


def test_a_tagger_of_classes(texts):
    table, Y = texts
    y = pd.Series(np.argmax(Y, axis=1), index=table.index)
    tagger = umpteen.Tagger("dismec", calibration=0).fit(table["title"], y)
    assert np.mean(tagger.predict(table["title"]) == y) == pytest.approx(tagger.score(table["title"], y), abs=0.02)
    assert tagger.score(table["title"], y) > 0.8


def test_no_warnings_from_scikit_learn(rows):
    X, Y = rows
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        clone(umpteen.DiSMEC(C=2)).fit(X, Y.toarray()).score(X, Y.toarray())


# --- what surrounds them: processes, pickles, types of pandas ---------------------------------------------------


@pytest.mark.process
def test_searches_in_other_processes_give_the_same(rows):
    X, Y = rows
    searches = [
        GridSearchCV(umpteen.DiSMEC(), {"C": [0.3, 1.0]}, cv=2, scoring="f1_micro", n_jobs=n_jobs).fit(X, Y)
        for n_jobs in (1, 2)
    ]
    assert np.array_equal(*(search.cv_results_["mean_test_score"] for search in searches))
    texts, labels = (
        ["red apple", "green apple", "red car", "fast car"] * 10,
        [["fruit"], ["fruit"], ["car"], ["car"]] * 10,
    )
    for model in (umpteen.Tagger("dismec"), Pipeline([("words", umpteen.Tfidf()), ("svm", umpteen.DiSMEC())])):
        found = cross_validate(model, texts, labels, cv=KFold(2), n_jobs=2, scoring=umpteen.make_scorer("P@1"))
        assert found["test_score"].tolist() == [1.0, 1.0]


def test_joblib_keeps_models_and_what_holds_them(rows, tmp_path):
    X, Y = rows
    calibrated = umpteen.DiSMEC().fit(X, Y, calibration=2)
    joblib.dump(calibrated, tmp_path / "svm")
    assert np.array_equal(joblib.load(tmp_path / "svm").predict_proba(X), calibrated.predict_proba(X))
    texts, labels = (
        ["red apple", "green apple", "red car", "fast car"] * 5,
        [["fruit"], ["fruit"], ["car"], ["car"]] * 5,
    )
    for model in (umpteen.Tagger("dismec"), Pipeline([("words", umpteen.Tfidf()), ("svm", umpteen.DiSMEC())])):
        joblib.dump(model.fit(texts, labels), tmp_path / "model")
        assert joblib.load(tmp_path / "model").predict(texts) == model.predict(texts) == labels


def test_a_setting_that_fails_is_the_searchs_to_report(rows):
    X, Y = rows
    search = GridSearchCV(umpteen.DiSMEC(), {"C": [-1.0, 1.0]}, cv=2, error_score=0.0)
    with pytest.warns(FitFailedWarning, match="C must be a finite number above 0, but is -1"):
        search.fit(X, Y)
    assert search.best_params_ == {"C": 1.0}
    with pytest.raises(ParamError, match="C must be a finite number above 0"):
        search.set_params(error_score="raise").fit(X, Y)


@pytest.mark.parametrize("kind", ["Float32", "Int64", "boolean", "int8[pyarrow]", "category"])
def test_types_of_pandas_hold_rows_and_labels(kind, rows):
    X, Y = (rows[0][:, :50] > 0).toarray().astype(int), rows[1].toarray().astype(int)
    frame, labels = (pd.DataFrame(A).astype(kind).rename(columns=str) for A in (X, Y))
    expected = umpteen.DiSMEC().fit(X.astype(np.float32), Y).predict(X)
    assert np.array_equal(umpteen.DiSMEC().fit(frame, labels).predict(frame), expected)


@pytest.mark.parametrize("kind", ["category", "string", "string[pyarrow]"])
def test_types_of_pandas_hold_classes(kind, classes):
    X, y = classes
    names = np.array([f"class {value}" for value in y])
    svm = umpteen.DiSMEC().fit(X, pd.Series(names).astype(kind))
    assert np.array_equal(svm.predict(X), umpteen.DiSMEC().fit(X, names).predict(X))
    column = umpteen.DiSMEC().fit(X, pd.DataFrame({"class": names}).astype(kind))
    assert np.array_equal(column.predict(X), svm.predict(X))
    missing = pd.Series(names).astype(kind)
    missing[3] = None
    with pytest.raises(DataError, match="row 3 of y has no class"):
        umpteen.DiSMEC().fit(X, missing)
