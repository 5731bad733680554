"""A tagger's parameters by scikit-learn's rules, and what they must be."""

from __future__ import annotations

from typing import Any, ClassVar, Self

from umpteen.choosing.budget import parse_budget
from umpteen.choosing.choice import AUTO
from umpteen.choosing.contestants import exact_methods
from umpteen.errors import ParamError
from umpteen.methods import method_class
from umpteen.methods.base import Method
from umpteen.methods.foreign import ForeignClassifier, is_classifier
from umpteen.methods.held_out import check_calibration
from umpteen.methods.training import check_keep_rows
from umpteen.params import Threaded, check_count, check_flag
from umpteen.tagging.channels import CHANNELS, LEXICAL, ROWS, TERMS, check_channels
from umpteen.tagging.storage import PRECOMPUTED, Untrainable
from umpteen.text.features import TextFeatures, make_features
from umpteen.text.union import NAMED

#: Used where no features are given: words, of which one that occurs ten times counts more than one that occurs once,
#: but not ten times more.
DEFAULT_FEATURES = "word"


class TaggerParameters(Threaded):
    """The parameters that `Tagger` takes and documents; those of its method and its features are inside them."""

    name: ClassVar[str] = "Tagger"

    method: Any  # a Method, a classifier of scikit-learn, a name, Untrainable or None
    features: Any
    calibration: float | str
    seed: int
    budget: float | str | None
    tune: bool
    keep_rows: int
    vocabulary: Any
    threads: int | None
    channels: Any

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        params = super().get_params()
        if deep:
            for name in ("method", "features"):
                if hasattr(params[name], "get_params"):
                    params |= {f"{name}__{key}": value for key, value in params[name].get_params().items()}
        return params

    def set_params(self, **params: Any) -> Self:
        if "n_jobs" in params:
            return super().set_params(**params)  # calls this method again, with threads
        own = {name: value for name, value in params.items() if "__" not in name}
        self.check_param_names(own)
        for name, value in own.items():
            setattr(self, name, value)
        if any(name.startswith("method__") for name in params):
            self._name_method([name.partition("__")[2] for name in params if name.startswith("method__")])
        if any(name.startswith("features__") for name in params):
            self._name_features()
        known = self.get_params()
        for name in [name for name in params if name not in own]:
            if name not in known:
                raise ParamError(f"Tagger has no parameter {name!r}; its parameters are {', '.join(known)}")
            owner, _, inner = name.partition("__")
            getattr(self, owner).set_params(**{inner: params[name]})
        return self

    def _name_method(self, settings: list[str]) -> None:
        """Turns a method's name into the method, so that its parameters can be set; "auto" into the method that it
        starts from."""
        if self.method is None or (isinstance(self.method, str) and self.method == AUTO):
            first, _ = exact_methods(None)
            if unknown := [name for name in settings if name not in first.param_defaults()]:
                raise ParamError(
                    f'method__{unknown[0]} must be a parameter of the method, which is {first.name} where "auto" is '
                    "given settings; for another name it first, such as Tagger('fastxml')"
                )
            self.method = first
        elif isinstance(self.method, str):
            self.method = method_class(self.method)()

    def _name_features(self) -> None:
        """The same for features that are given by name."""
        if self.features is None or (isinstance(self.features, str) and self.features in NAMED):
            self.features = make_features(self.features or DEFAULT_FEATURES)

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import InputTags, Tags, TargetTags

        return Tags(
            estimator_type=None,  # a classifier's labels may not be lists of names, says scikit-learn
            target_tags=TargetTags(required=True, multi_output=True, single_output=False),
            input_tags=InputTags(string=self.features != PRECOMPUTED, two_d_array=self.features == PRECOMPUTED),
        )

    # --- checks --------------------------------------------------------------------------------------------------

    def check(self) -> Method | None:
        """The method, None if it is to be chosen or not needed, checked like all parameters."""
        method = self.method
        parse_budget(self.budget)
        check_flag("tune", self.tune)
        self.check_held_out()
        check_count("keep_rows", self.keep_rows, low=0)
        if self.threads is not None:
            check_count("threads", self.threads, high=4096)
        self.find_channels()
        if method is None or (isinstance(method, str) and method in (AUTO, LEXICAL)):
            return None
        if self.budget is not None or self.tune:
            raise ParamError('budget and tune go with method="auto", but another method is given')
        if isinstance(method, str):
            method = method_class(method)()
        if isinstance(method, Untrainable):
            raise ParamError(f"this tagger was loaded and cannot be trained: {method.reason}; give it a method first")
        if not isinstance(method, Method) and is_classifier(method):
            if self.find_channels():
                raise ParamError(
                    f"channels need one of this package's methods, but method is a {type(method).__name__}"
                )
            method = ForeignClassifier(method)
        if not isinstance(method, Method):
            raise ParamError(
                f"method must be one of this package's methods or a classifier by scikit-learn's rules, but is "
                f"{method!r:.200}"
            )
        check_keep_rows(method, self.keep_rows)
        method.validate()
        if self.threads is not None and method.get_params().get("threads", 0) is None:
            return type(method)(**method.get_params() | {"threads": self.threads})
        return method

    def find_channels(self) -> tuple[str, ...]:
        """The channels to train and blend; none if the method is trained alone."""
        given = check_channels(self.channels)
        named = self.method is not None and not (isinstance(self.method, str) and self.method == AUTO)
        precomputed = isinstance(self.features, str) and self.features == PRECOMPUTED
        shown = ", ".join(given or ())
        if isinstance(self.method, str) and self.method == LEXICAL:
            if given not in (None, (TERMS,)):
                raise ParamError(
                    f"channels must be left out with method {LEXICAL!r}, which is {TERMS!r}, but are {shown}"
                )
            given, named = (TERMS,), False
        if given is None:
            plain = self.vocabulary is None or self.tune or self.keep_rows or self.calibration == 0
            return () if plain or named or precomputed else CHANNELS
        if given == (ROWS,):
            return ()
        if self.vocabulary is None:
            raise ParamError(
                f"channels must go with a vocabulary, but there is none, and they are {', '.join(given)}"
            )
        if precomputed:
            raise ParamError(f"channels must be of texts, but features is {PRECOMPUTED!r}, and they are {shown}")
        if self.tune or self.keep_rows:
            raise ParamError("channels must be without tune and keep_rows, which are for one method")
        if len(given) > 1 and self.calibration == 0:
            raise ParamError("channels must have held-out texts to learn when to trust which, but calibration is 0")
        if named and ROWS not in given:
            method = getattr(self.method, "name", self.method)
            raise ParamError(f"channels must have {ROWS!r}, which method {method} trains, but are {shown}")
        return given

    def check_held_out(self) -> None:
        check_calibration(self.calibration)
        check_count("seed", self.seed, low=0)

    def make_features(self) -> TextFeatures | None:
        """The features to fit; None if rows are precomputed."""
        if isinstance(self.features, str) and self.features == PRECOMPUTED:
            return None
        return make_features(DEFAULT_FEATURES if self.features is None else self.features, self.threads)
