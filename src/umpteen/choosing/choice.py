"""What was chosen, why, and what else was possible; as a model's manifest keeps it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from umpteen.choosing.budget import format_seconds
from umpteen.data.files import PathLike
from umpteen.errors import ModelCorruptError, ParamError
from umpteen.memory import format_bytes
from umpteen.methods import METHODS, method_class
from umpteen.methods.base import COMPUTE_PARAMS, Method
from umpteen.storage.manifest import read_manifest
from umpteen.storage.remote import is_url
from umpteen.storage.store import is_model
from umpteen.text.features import TextFeatures, describe

#: The name on the command line, and in `Tagger`, of choosing; and the manifest's entry for what was chosen.
AUTO = "auto"
ENTRY = "chosen"


def describe_method(method: Method) -> str:
    """A method's name and the settings that are not its defaults, as the command line takes them."""
    return " ".join([method.name, *(f"{name}={value}" for name, value in settings_of(method).items())])


def settings_of(method: Method) -> dict[str, Any]:
    """The parameters that are not the method's defaults, without how to compute."""
    defaults = method.param_defaults()
    return {k: v for k, v in method.get_params().items() if v != defaults[k] and k not in COMPUTE_PARAMS}


@dataclass(frozen=True)
class Option:
    """A method that was considered.

    Attributes
    ----------
    name : str
        The method and its settings.
    seconds : float or None
        How long training on all rows would take on this machine, doing nothing else; None if that was not estimated.
    peak_bytes : int
        The memory that training would take at most.
    value : float or None
        nDCG@5 in percent on held-out rows; None if it was not compared.
    note : str
        What became of it.
    """

    name: str
    seconds: float | None
    peak_bytes: int
    value: float | None = None
    note: str = ""

    def __str__(self) -> str:
        time = "" if self.seconds is None else f"about {format_seconds(self.seconds)}, "
        value = "" if self.value is None else f", nDCG@5 {self.value:.1f} held out"
        return f"{self.name}: {time}at most {format_bytes(self.peak_bytes)}{value}; {self.note}"


@dataclass(frozen=True)
class Choice:
    """The method to train.

    Attributes
    ----------
    methods : list of Method
        The method; several to be blended.
    reason : str
        Why, in a sentence.
    options : list of Option
        All that was considered, the chosen first.
    budget : float
        Seconds.
    features : dict
        Settings of the text features that are not the defaults; empty for rows of numbers.
    blend : Blend or None
        What blends the methods, fitted on held-out rows.
    """

    methods: list[Method]
    reason: str
    options: list[Option]
    budget: float
    features: dict[str, Any] = field(default_factory=dict)
    blend: Any = field(default=None, compare=False)

    @property
    def method(self) -> Method:
        return self.methods[0]

    @property
    def name(self) -> str:
        return " + ".join(describe_method(method) for method in self.methods)

    def as_header(self) -> dict[str, Any]:
        """The manifest's entry."""
        return {
            "methods": [{"method": method.name, "params": settings_of(method)} for method in self.methods],
            "reason": self.reason,
            "budget": round(self.budget, 3),
            "features": self.features,
            "options": [_rounded(option) for option in self.options],
        }

    @classmethod
    def from_header(cls, entry: Any, path: object) -> Choice:
        try:
            methods = [_make(**record) for record in entry["methods"]]
            if not methods:
                raise ValueError("methods is empty")
            options = [Option(**option) for option in entry["options"]]
            return cls(methods, str(entry["reason"]), options, float(entry["budget"]), dict(entry["features"]))
        except (KeyError, TypeError, ValueError, ParamError) as error:
            raise ModelCorruptError(f"{path}: the manifest's {ENTRY!r} cannot be used ({error})"[:300]) from error

    def with_features(self, features: TextFeatures | None) -> Choice:
        """The same choice for texts that become rows in this way."""
        if features is None:
            return self
        return replace(self, features=describe(features))

    def computing(self, **params: Any) -> Choice:
        """The same choice, computed elsewhere: `threads` and `engine` of its methods set."""
        for method in self.methods:
            method.set_params(**params)
        return self

    def __str__(self) -> str:
        lines = [f"chosen     {self.name}: {self.reason}"]
        return "\n".join([*lines, *(f"           {option}" for option in self.options)])


def read_choice(*places: PathLike | None) -> Choice | None:
    """The choice of an interrupted run, from the first of these directories that has an unfinished or finished model;
    None if none has. A run that was begun with a named method is refused."""
    for place in places:
        if place is None or is_url(place) or not is_model(place):
            continue
        manifest = read_manifest(Path(place))
        if ENTRY in manifest:
            return Choice.from_header(manifest[ENTRY], place)
        raise ParamError(
            f"{place}: the model there was begun with method {manifest.get('method')!r:.100}, not with {AUTO}; name "
            "that method to resume it, or choose another directory"
        )
    return None


def _rounded(option: Option) -> Mapping[str, Any]:
    seconds = None if option.seconds is None else float(f"{option.seconds:.3g}")
    return vars(option) | {"seconds": seconds, "value": None if option.value is None else round(option.value, 2)}


def _make(method: str, params: Mapping[str, Any]) -> Method:
    if method not in METHODS:
        raise ValueError(f"there is no method {method!r:.100}")
    cls = method_class(method)
    cls.check_param_names(params)
    made: Method = cls(**params)
    made.validate()
    return made
