"""Parameters of methods, and shared checks, so that a bad value gets the same message everywhere."""

from __future__ import annotations

import functools
import html
import inspect
import math
import numbers
from collections.abc import Iterable
from typing import Any, ClassVar, Self, TypeVar

from umpteen.errors import ParamError
from umpteen.nearest import did_you_mean

#: More than any kernel's 32-bit counters hold.
LARGEST_COUNT = 2**31 - 1


_P = TypeVar("_P", bound="Parameters")


class Parameters:
    """Parameters by scikit-learn's rules: in the constructor, kept under their own names, checked when used."""

    name: ClassVar[str]

    @classmethod
    def param_defaults(cls) -> dict[str, Any]:
        """Every parameter and its default, read from the constructor, the one place that has them."""
        return {parameter.name: parameter.default for parameter in _parameters(cls)}

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.param_defaults()}

    def set_params(self, **params: Any) -> Self:
        self.check_param_names(params)
        for name, value in params.items():
            setattr(self, name, value)
        return self

    @classmethod
    def check_param_names(cls, names: Any) -> None:
        known = cls.param_defaults()
        for name in names:
            if name not in known:
                hint = did_you_mean(str(name), known)
                raise ParamError(f"{cls.name} has no parameter {name!r}; its parameters are {', '.join(known)}{hint}")

    def _repr_html_(self) -> str:
        """The parameters as a table, those that were changed in bold, for notebooks."""
        defaults = self.param_defaults()
        rows = []
        for name, value in self.get_params().items():
            tag = "td" if value is defaults[name] or value == defaults[name] else "th"
            shown = html.escape(repr(value)[:200])
            rows.append(
                f'<tr><td style="text-align:left">{name}</td><{tag} style="text-align:left">{shown}</{tag}></tr>'
            )
        return f"<p><code>{type(self).__name__}</code></p><table><tbody>{''.join(rows)}</tbody></table>"

    def __repr__(self) -> str:
        values = {name: (getattr(self, name), default) for name, default in self.param_defaults().items()}
        changed = {
            name: value for name, (value, default) in values.items() if value is not default and value != default
        }
        return f"{type(self).__name__}({', '.join(f'{k}={v!r}' for k, v in changed.items())})"


class Threaded(Parameters):
    """Parameters with `threads`, which scikit-learn calls `n_jobs`."""

    threads: int | None

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "__init__" in cls.__dict__:
            cls.__init__ = _accept_n_jobs(cls.__init__)  # type: ignore[method-assign]

    @property
    def n_jobs(self) -> int | None:
        """scikit-learn's name for `threads`; -1 means all cores, which is the default."""
        return self.threads

    @n_jobs.setter
    def n_jobs(self, value: int | None) -> None:
        self.threads = _threads_of(value)

    def set_params(self, **params: Any) -> Self:
        if "n_jobs" in params:
            params["threads"] = _threads_of(params.pop("n_jobs"))
        return super().set_params(**params)


def _threads_of(n_jobs: Any) -> int | None:
    if n_jobs is None or n_jobs == -1:
        return None
    return check_count("n_jobs", n_jobs, high=4096)


def _accept_n_jobs(init: Any) -> Any:
    """A constructor that also takes `n_jobs` in place of `threads`."""

    @functools.wraps(init)
    def with_n_jobs(self: Any, *args: Any, **params: Any) -> None:
        if "n_jobs" in params:
            if "threads" in params:
                raise ParamError("threads and n_jobs are one parameter, but both are given")
            params["threads"] = _threads_of(params.pop("n_jobs"))
        init(self, *args, **params)

    return with_n_jobs


def inherits_parameters(cls: type[_P]) -> type[_P]:
    """For a class whose constructor takes its own parameters and passes the others, ``**more``, to its parent: makes
    its signature list them all, so that a default is written in one place. A parameter that both have keeps the
    parent's place in the order and takes the class's own default."""
    own = {p.name: p for p in _parameters(cls) if p.kind is not inspect.Parameter.VAR_KEYWORD}
    inherited = [own.get(p.name, p).replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in _parameters(cls.__mro__[1])]
    known = {p.name for p in inherited}
    listed = [*(p for p in own.values() if p.name not in known), *inherited]
    first = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    cls.__init__.__signature__ = inspect.Signature([first, *listed])  # type: ignore[attr-defined]
    return cls


def _parameters(cls: type[Any]) -> list[inspect.Parameter]:
    return list(inspect.signature(cls.__init__).parameters.values())[1:]


def _is_finite(value: Any) -> bool:
    try:
        return isinstance(value, numbers.Real) and not isinstance(value, bool) and math.isfinite(value)
    except OverflowError:  # an integer that no float can hold
        return False


def check_count(name: str, value: Any, low: int = 1, high: int = LARGEST_COUNT) -> int:
    """Checks that a value is a whole number in a range, and returns it."""
    if not _is_finite(value) or int(value) != value or value < low:
        raise ParamError(f"{name} must be an integer of at least {low}, but is {value!r}")
    if value > high:
        raise ParamError(f"{name} must be at most {high}, but is {value!r}")
    return int(value)


def check_number(name: str, value: Any, low: float, *, above: bool = False) -> float:
    """Checks that a value is a finite number of at least `low`, or above it, and returns it."""
    if not _is_finite(value) or value < low or (above and value == low):
        raise ParamError(
            f"{name} must be a finite number {'above' if above else 'of at least'} {low:g}, but is {value!r}"
        )
    return float(value)


def check_share(name: str, value: Any) -> float:
    """Checks that a value is a number from 0 to 1, and returns it."""
    if not _is_finite(value) or not 0 <= value <= 1:
        raise ParamError(f"{name} must be a share from 0 to 1, but is {value!r}")
    return float(value)


def check_choice(name: str, value: Any, choices: Iterable[str], others: str = "") -> Any:
    """Checks that a value is one of some, and returns it; a message names those that resemble it. `others` says what
    else there may be."""
    known = list(choices)
    if isinstance(value, str) and value in known:
        return value
    hint = did_you_mean(value, known) if isinstance(value, str) else ""
    raise ParamError(f"{name} must be one of {', '.join(known)}{others}, but is {value!r:.200}{hint}")


def check_flag(name: str, value: Any) -> bool:
    """Checks that a value is True or False, not merely truthy, and returns it."""
    if not isinstance(value, bool) and type(value).__name__ not in ("bool", "bool_"):
        raise ParamError(f"{name} must be true or false, but is {value!r}")
    return bool(value)
