"""scikit-learn's own checks, over everything that calls itself an estimator."""

from __future__ import annotations

import re
import warnings

import pytest
from sklearn.utils.estimator_checks import check_estimator
from sklearn.utils.validation import check_is_fitted

import umpteen
from umpteen.methods import METHODS, method_class

from .conftest import ROOT

pytestmark = pytest.mark.slow

#: What the page says we deviate in.
DEVIATIONS = set(re.findall(r"^\* `(check_\w+)`", (ROOT / "docs" / "scikit_learn.md").read_text(), re.MULTILINE))
#: Of these, what methods that have weights of rows and a solver that stops near the optimum deviate in.
OF_SOLVERS = {name for name in DEVIATIONS if name.startswith("check_sample_weight_equivalence")}


def failures(estimator) -> set[str]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # some checks warn on purpose
        results = check_estimator(estimator, on_fail=None, on_skip=None)
    assert any(result["status"] == "passed" for result in results)
    return {result["check_name"] for result in results if result["status"] == "failed"}


def test_the_page_lists_at_most_five():
    assert len(DEVIATIONS) == 5
    assert len(OF_SOLVERS) == 2


@pytest.mark.parametrize("name", METHODS)
def test_methods_deviate_where_the_page_says(name):
    method = method_class(name)
    solves = method.weighs_rows and name != "centroid"
    assert failures(method(threads=1)) == (DEVIATIONS if solves else DEVIATIONS - OF_SOLVERS)


OF_TEXT = [umpteen.Tagger(), umpteen.Tagger("dismec"), umpteen.Tfidf(), umpteen.TfidfUnion()]


@pytest.mark.parametrize("estimator", OF_TEXT, ids=repr)
def test_estimators_of_text_pass(estimator):
    assert failures(estimator) == set()


def test_a_parameter_with_an_underscore_is_not_a_fit():
    with pytest.raises(ValueError, match="not fitted"):
        check_is_fitted(umpteen.PPDSparse(lambda_=0.1))
