"""scikit-learn's metadata routing: which arguments of `fit` and `score` a meta-estimator passes on."""

from __future__ import annotations

from typing import Any, ClassVar, Self


class RoutesMetadata:
    """Requests, as scikit-learn keeps them: `clone` copies `_metadata_request`."""

    #: The arguments of `fit` and of `score` that can be requested.
    fit_metadata: ClassVar[tuple[str, ...]] = ("sample_weight", "label_names", "calibration")
    score_metadata: ClassVar[tuple[str, ...]] = ("sample_weight",)

    def get_metadata_routing(self) -> Any:
        """What is requested of meta-estimators."""
        from sklearn.utils.metadata_routing import MetadataRequest

        known = self.__dict__.get("_metadata_request")
        if known is not None:
            return known
        request = MetadataRequest(owner=type(self).__name__)
        for name in self.fit_metadata:
            request.fit.add_request(param=name, alias=None)
        for name in self.score_metadata:
            request.score.add_request(param=name, alias=None)
        return request

    def set_fit_request(self, **requests: bool | str | None) -> Self:
        """Asks meta-estimators to pass arguments of theirs on to `fit`, such as ``sample_weight=True``."""
        return self._request("fit", self.fit_metadata, requests)

    def set_score_request(self, **requests: bool | str | None) -> Self:
        """The same for `score`."""
        return self._request("score", self.score_metadata, requests)

    def _request(self, method: str, known: tuple[str, ...], requests: dict[str, Any]) -> Self:
        for name in requests:
            if name not in known:
                raise TypeError(f"{method} of {type(self).__name__} takes {', '.join(known)}, but not {name!r}")
        request = self.get_metadata_routing()
        for name, alias in requests.items():
            getattr(request, method).add_request(param=name, alias=alias)
        self._metadata_request = request
        return self
