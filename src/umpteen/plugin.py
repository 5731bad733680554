"""What a method of your own needs, in one place. Names here stay as they are while `API_VERSION` does; a package says
which version it is written for (see `umpteen.extensions`), and one written for another is refused.

A method derives from `Method`, or from `OneVsRest` if it ends in one weight vector per label;
`umpteen.checks.check_model` checks what it promises. `examples/plugin` is a package with one: install it, and every
command knows it.
"""

from __future__ import annotations

from umpteen.data.matrix import Csr
from umpteen.engines.base import Engine, Resources, Task
from umpteen.errors import DataError, ParamError
from umpteen.extensions import API_VERSION
from umpteen.memory import Estimate
from umpteen.methods.base import Method
from umpteen.methods.one_vs_rest import LabelWeights, OneVsRest, count_weights_bound
from umpteen.methods.training_data import TrainingData
from umpteen.models.scorer import Scorer
from umpteen.params import check_count, check_flag, check_number, check_share
from umpteen.storage.store import Part
from umpteen.tuning import Between, OneOf, Space

__all__ = [
    "API_VERSION",
    "Between",
    "Csr",
    "DataError",
    "Engine",
    "Estimate",
    "LabelWeights",
    "Method",
    "OneOf",
    "OneVsRest",
    "ParamError",
    "Part",
    "Resources",
    "Scorer",
    "Space",
    "Task",
    "TrainingData",
    "check_count",
    "check_flag",
    "check_number",
    "check_share",
    "count_weights_bound",
]
