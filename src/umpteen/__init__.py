"""Tag anything with umpteen labels: extreme multi-label classification.

train, test = umpteen.read_xc("train.txt"), umpteen.read_xc("test.txt")
model = umpteen.Centroid().fit(train.X, train.Y)
labels, scores = model.predict_topk(test.X, top_k=5)
print(umpteen.evaluate(test.Y, labels, train_Y=train.Y))
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from umpteen import errors as errors

__version__ = "0.1.0"

# Public name -> its module, imported on first use, so that `import umpteen` and `umpteen --help` are fast.
_HOMES = {
    "Blend": "umpteen.methods.blend",
    "Centroid": "umpteen.methods.centroid",
    "Corpus": "umpteen.data.corpus",
    "Dataset": "umpteen.data.dataset",
    "DiSMEC": "umpteen.methods.dismec",
    "FastXML": "umpteen.methods.fastxml",
    "LabelText": "umpteen.methods.label_text",
    "LabelTree": "umpteen.methods.label_tree",
    "LexicalMatcher": "umpteen.lexical.matcher",
    "Method": "umpteen.methods.base",
    "Metrics": "umpteen.evaluation.metrics",
    "PDSparse": "umpteen.methods.pdsparse",
    "PPDSparse": "umpteen.methods.ppdsparse",
    "PfastreXML": "umpteen.methods.pfastrexml",
    "RXML": "umpteen.methods.rxml",
    "RXMLGlobal": "umpteen.methods.rxml_global",
    "RayEngine": "umpteen.engines.ray",
    "SLEEC": "umpteen.methods.rxml",
    "Tagger": "umpteen.tagger",
    "Tfidf": "umpteen.text.tfidf",
    "TfidfUnion": "umpteen.text.union",
    "TrainedModel": "umpteen.trained.model",
    "Vocabulary": "umpteen.vocabulary.concepts",
    "choose_method": "umpteen.choosing.auto",
    "evaluate": "umpteen.evaluation.metrics",
    "iter_corpus": "umpteen.data.corpus",
    "label_file": "umpteen.labelling.files",
    "load": "umpteen.tagger",
    "make_scorer": "umpteen.evaluation.scorers",
    "make_synthetic": "umpteen.data.synthetic",
    "propensities": "umpteen.data.propensity",
    "read": "umpteen.data.reading",
    "read_corpus": "umpteen.data.corpus",
    "read_npz": "umpteen.data.npz",
    "read_split": "umpteen.data.xc_text",
    "read_svmlight": "umpteen.data.svmlight",
    "read_vocabulary": "umpteen.vocabulary.reading",
    "read_xc": "umpteen.data.xc_text",
    "read_xc_split": "umpteen.data.xc_text",
    "tune": "umpteen.tuning",
    "train_test_split": "umpteen.data.split",
    "update_vocabulary": "umpteen.learning",
    "write_npz": "umpteen.data.npz",
    "write_svmlight": "umpteen.data.svmlight",
    "write_vocabulary": "umpteen.vocabulary.writing",
    "write_xc": "umpteen.data.xc_text",
}

__all__ = [*_HOMES, "__version__"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'umpteen' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)


if TYPE_CHECKING:
    from umpteen.choosing.auto import choose_method as choose_method
    from umpteen.data.corpus import Corpus as Corpus
    from umpteen.data.corpus import iter_corpus as iter_corpus
    from umpteen.data.corpus import read_corpus as read_corpus
    from umpteen.data.dataset import Dataset as Dataset
    from umpteen.data.npz import read_npz as read_npz
    from umpteen.data.npz import write_npz as write_npz
    from umpteen.data.propensity import propensities as propensities
    from umpteen.data.reading import read as read
    from umpteen.data.split import train_test_split as train_test_split
    from umpteen.data.svmlight import read_svmlight as read_svmlight
    from umpteen.data.svmlight import write_svmlight as write_svmlight
    from umpteen.data.synthetic import make_synthetic as make_synthetic
    from umpteen.data.xc_text import read_split as read_split
    from umpteen.data.xc_text import read_xc as read_xc
    from umpteen.data.xc_text import read_xc_split as read_xc_split
    from umpteen.data.xc_text import write_xc as write_xc
    from umpteen.engines.ray import RayEngine as RayEngine
    from umpteen.evaluation.metrics import Metrics as Metrics
    from umpteen.evaluation.metrics import evaluate as evaluate
    from umpteen.evaluation.scorers import make_scorer as make_scorer
    from umpteen.labelling.files import label_file as label_file
    from umpteen.learning import update_vocabulary as update_vocabulary
    from umpteen.lexical.matcher import LexicalMatcher as LexicalMatcher
    from umpteen.methods.base import Method as Method
    from umpteen.methods.blend import Blend as Blend
    from umpteen.methods.centroid import Centroid as Centroid
    from umpteen.methods.dismec import DiSMEC as DiSMEC
    from umpteen.methods.fastxml import FastXML as FastXML
    from umpteen.methods.label_text import LabelText as LabelText
    from umpteen.methods.label_tree import LabelTree as LabelTree
    from umpteen.methods.pdsparse import PDSparse as PDSparse
    from umpteen.methods.pfastrexml import PfastreXML as PfastreXML
    from umpteen.methods.ppdsparse import PPDSparse as PPDSparse
    from umpteen.methods.rxml import RXML as RXML
    from umpteen.methods.rxml import SLEEC as SLEEC
    from umpteen.methods.rxml_global import RXMLGlobal as RXMLGlobal
    from umpteen.tagger import Tagger as Tagger
    from umpteen.tagger import load as load
    from umpteen.text.tfidf import Tfidf as Tfidf
    from umpteen.text.union import TfidfUnion as TfidfUnion
    from umpteen.trained.model import TrainedModel as TrainedModel
    from umpteen.tuning import tune as tune
    from umpteen.vocabulary.concepts import Vocabulary as Vocabulary
    from umpteen.vocabulary.reading import read_vocabulary as read_vocabulary
    from umpteen.vocabulary.writing import write_vocabulary as write_vocabulary
