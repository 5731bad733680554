"""The API as an OpenAPI document, from the same types that requests are checked with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from umpteen import __version__
from umpteen.serving import schema
from umpteen.serving.served import OpenModel
from umpteen.serving.settings import Settings
from umpteen.serving.tables import describe_parameters

_REFUSALS = {
    "400": "The body is not JSON, or the request is not HTTP.",
    "401": "The server requires a token.",
    "403": "The server was started without --learn.",
    "404": "There is no such model or label.",
    "408": "The request took too long to arrive.",
    "413": "The body, a text or the batch is too large.",
    "415": "The body is not sent as the type it must have.",
    "421": "The server does not accept the name in the Host header.",
    "422": "The request breaks a rule, which the message names.",
    "500": "The server failed.",
    "503": "The server is overloaded, or took too long; try again after Retry-After seconds.",
}
_ALWAYS = ("400", "421", "500", "503")
_QUESTIONS = ("401", "404", "408", "413", "415", "422", *_ALWAYS)
_LOOKS = ("401", "404", "422", *_ALWAYS)
_HEADERS = {
    "X-Request-ID": {"description": "The request's id, or a new one.", "schema": {"type": "string"}},
    "X-Model-Version": {"description": "The version of the model that answered.", "schema": {"type": "string"}},
}

_TYPES = (
    schema.SuggestRequest, schema.SuggestResponse, schema.BatchRequest, schema.BatchResult, schema.ExplainRequest,
    schema.ExplainResponse, schema.TableResponse, schema.LearnRequest, schema.LearnResponse, schema.LabelsResponse,
    schema.ModelsResponse, schema.ModelFacts, schema.Status, schema.ErrorResponse,
)  # fmt: skip


def describe_api(settings: Settings, models: Sequence[OpenModel], *, private: bool) -> dict[str, Any]:
    """The document of a server with these settings.

    Parameters
    ----------
    models
        Those it serves.
    private
        Whether it requires a token.
    """
    _, components = msgspec.json.schema_components(_TYPES, ref_template="#/components/schemas/{name}")
    _write_limits(components, settings)
    _write_inputs(components, models)
    document: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {
            "title": "umpteen",
            "version": __version__,
            "description": "Labels for texts, with probabilities and reasons. Errors are "
            '`{"error": {"type", "message", "field"}}` with a fitting status. A request may have an id, '
            "`X-Request-ID`, which is returned; every answer of a model has its version, `X-Model-Version`.",
        },
        "paths": _describe_paths(settings),
        "components": {"schemas": components},
    }
    if private:
        components_all = document["components"]
        components_all["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        document["security"] = [{"token": []}]
    return document


def _describe_paths(settings: Settings) -> dict[str, Any]:
    """All routes."""
    example = next(iter(settings.models))
    model_id = {
        "name": "model_id", "in": "path", "required": True, "schema": {"type": "string"},
        "description": "Id of a model, from /v1/models.", "example": example,
    }  # fmt: skip
    paths: dict[str, Any] = {
        "/v1/suggest": {
            "post": _post("suggest", "Labels of one text, best first", "SuggestRequest", _ref("SuggestResponse"))
        },
        "/v1/suggest-batch": {
            "post": _post(
                "suggestBatch",
                "Labels of several texts, in their order",
                "BatchRequest",
                {"type": "array", "items": _ref("BatchResult")},
            )
        },
        "/v1/explain": {
            "post": _post("explain", "What counts for and against a label", "ExplainRequest", _ref("ExplainResponse"))
        },
        "/v1/label-table": {
            "post": _post(
                "labelTable",
                "A piece of a table, with labels. The first begins with the header; later ones have the bytes of the "
                "header, then those after what was consumed",
                {"type": "string"},
                _ref("TableResponse"),
                "text/csv",
            )
        },
        "/v1/learn": {
            "post": _post(
                "learn",
                "Improves a model by corrections, which stays improved",
                "LearnRequest",
                _ref("LearnResponse"),
                refusals=("403", *_QUESTIONS),
            )
        },
        "/v1/labels": {
            "get": _get("findLabels", "Labels whose names contain a text", _LOOKS, _ref("LabelsResponse"))
        },
        "/v1/models": {
            "get": _get(
                "listModels", "The models served, the default one first", ("401", *_ALWAYS), _ref("ModelsResponse")
            )
        },
        "/v1/models/{model_id}": {
            "get": _get("showModel", "All facts about a model", _LOOKS, _ref("ModelFacts")),
            "parameters": [model_id],
        },
        "/v1/models/{model_id}/label-frequencies.svg": {
            "get": _get("drawFrequencies", "A chart of how often each label occurs", _LOOKS, None, "image/svg+xml"),
            "parameters": [model_id],
        },
        "/healthz": {"get": _get("healthz", "Whether the process is alive", _ALWAYS, _ref("Status"), private=False)},
        "/readyz": {
            "get": _get("readyz", "Whether requests will be answered", _ALWAYS, _ref("Status"), private=False)
        },
        "/metrics": {"get": _get("metrics", "Counts for Prometheus", ("401", *_ALWAYS), None, "text/plain")},
    }
    paths["/v1/labels"]["get"]["parameters"] = [
        _query("query", {"type": "string", "maxLength": 200}, "Part of a name; by default the most frequent labels."),
        _query("model", {"type": "string"}, "Id of the model; by default the server's first."),
        _query("limit", {"type": "integer", "minimum": 1, "maximum": 100, "default": 20}, "Most labels to list."),
    ]
    paths["/v1/label-table"]["post"]["parameters"] = describe_parameters(settings, [example])
    return paths


def _write_inputs(components: dict[str, Any], models: Sequence[OpenModel]) -> None:
    """Adds what the models take, text, record or features, and that these exclude each other."""
    known = [model.fields for model in models if model.fields is not None]
    inputs = sorted({model.takes for model in models}) + (["record"] if known else [])
    for name in ("SuggestRequest", "ExplainRequest", "Document"):
        properties = components[name]["properties"]
        for other in {"text", "record", "features"} - set(inputs):
            del properties[other]
        if len(inputs) > 1:
            components[name]["oneOf"] = [{"required": [each]} for each in inputs]
        else:
            components[name].setdefault("required", []).extend(inputs)
        if len(known) == 1:
            texts = list(known[0].texts)
            value = {"type": "string"} if len(texts) == 1 else {"type": ["string", "null"]}
            properties["record"] |= {"properties": dict.fromkeys(texts, value), "required": texts}


def _write_limits(components: dict[str, Any], settings: Settings) -> None:
    """Adds this server's limits, which the types cannot express."""
    for name in ("SuggestRequest", "ExplainRequest", "Document"):
        properties = components[name]["properties"]
        properties["text"]["maxLength"] = settings.max_characters
        for kind in properties["features"]["anyOf"]:
            if kind.get("type") == "object":
                kind["propertyNames"] = {"pattern": "^(0|[1-9][0-9]{0,8})$"}
    components["BatchRequest"]["properties"]["documents"]["maxItems"] = settings.max_documents
    components["LearnRequest"]["properties"]["corrections"] |= {"minItems": 1, "maxItems": settings.max_documents}
    correction = components["Correction"]["properties"]
    correction["text"]["maxLength"] = settings.max_characters
    for name in ("labels", "accepted", "rejected", "added"):
        correction[name]["maxItems"] = schema.MOST_NAMES
    for name in ("SuggestRequest", "BatchRequest"):
        top_k = components[name]["properties"]["top_k"]["anyOf"][0]  # beside null; it has the description
        top_k["anyOf"] = [{"type": "integer", "minimum": 1, "maximum": settings.max_top_k}, {"enum": ["auto"]}]
    for name in ("SuggestRequest", "BatchRequest", "ExplainRequest", "LearnRequest"):
        components[name]["properties"]["model"]["examples"] = [next(iter(settings.models))]


def _ref(name: str) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{name}"}


def _post(
    operation: str, summary: str, request: str | dict[str, Any], response: dict[str, Any],
    kind: str = "application/json", refusals: tuple[str, ...] = _QUESTIONS,
) -> dict[str, Any]:  # fmt: skip
    described = _get(operation, summary, refusals, response)
    described["requestBody"] = {
        "required": True,
        "content": {kind: {"schema": _ref(request) if isinstance(request, str) else request}},
    }
    return described


def _get(
    operation: str, summary: str, refusals: tuple[str, ...], response: dict[str, Any] | None,
    kind: str = "application/json", *, private: bool = True,
) -> dict[str, Any]:  # fmt: skip
    error = {"application/json": {"schema": _ref("ErrorResponse")}}
    answers: dict[str, Any] = {
        "200": {
            "description": "The answer.",
            "headers": _HEADERS if private else {"X-Request-ID": _HEADERS["X-Request-ID"]},
            "content": {kind: {"schema": response or {"type": "string"}}},
        }
    }
    answers |= {status: {"description": _REFUSALS[status], "content": error} for status in sorted(refusals)}
    described: dict[str, Any] = {"operationId": operation, "summary": summary, "responses": answers}
    if not private:
        described["security"] = []
    return described


def _query(name: str, schema: dict[str, Any], description: str) -> dict[str, Any]:
    return {"name": name, "in": "query", "required": False, "schema": schema, "description": description}
