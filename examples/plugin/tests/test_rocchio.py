"""What umpteen promises of every method, and what Rocchio's is for."""

from umpteen_rocchio import Rocchio

import umpteen
from umpteen.checks import check_model


def test_it_keeps_what_methods_promise():
    check_model(Rocchio, many_shards={"labels_per_shard": 10})


def test_it_is_no_worse_than_centroids():
    train = umpteen.make_synthetic(1000, 300, 20, seed=1)
    test = umpteen.make_synthetic(300, 300, 20, seed=1, part="test")
    scores = {cls: cls().fit(train.X, train.Y).score(test.X, test.Y) for cls in (Rocchio, umpteen.Centroid)}
    assert scores[Rocchio] >= scores[umpteen.Centroid]
