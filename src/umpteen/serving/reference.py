"""The API reference for people: a page made from the OpenAPI document, without scripts or external files."""

from __future__ import annotations

import json
from html import escape
from typing import Any

Schema = dict[str, Any]

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title} API</title>
<link rel="icon" href="page/icon.svg" type="image/svg+xml">
<link rel="stylesheet" href="page/style.css">
<link rel="stylesheet" href="page/docs.css">
</head>
<body>
<header>
  <h1><img src="page/icon.svg" alt="" width="28" height="28"> {title} API</h1>
  <nav aria-label="Views"><a href=".">Tag a text</a> <a href="openapi.json">openapi.json</a></nav>
</header>
<main class="docs">
<nav class="contents" aria-label="Contents"><ul>{contents}</ul></nav>
<div>
<section><p>{about}</p>{token}<p class="hint">Version {version}.</p></section>
{operations}
</div>
</main>
</body>
</html>
"""
_TOKEN = """<p>This server requires a token with every request under <code>/v1/</code> and to <code>/metrics</code>:
<code>Authorization: Bearer …</code></p>"""


def render_reference(document: Schema) -> bytes:
    """The page for our OpenAPI document."""
    operations = [
        (method, path, operation, entry.get("parameters", []))
        for path, entry in document["paths"].items()
        for method, operation in entry.items()
        if method in ("get", "post")
    ]
    schemas = document["components"]["schemas"]
    page = _PAGE.format(
        title=escape(document["info"]["title"]),
        version=escape(document["info"]["version"]),
        about=_code(document["info"]["description"]),
        token=_TOKEN if "security" in document else "",
        contents="".join(
            f'<li><a href="#{operation["operationId"]}">{method.upper()} {escape(path)}</a></li>'
            for method, path, operation, _ in operations
        ),
        operations="".join(
            _operation(method, path, operation, [*more, *operation.get("parameters", [])], schemas)
            for method, path, operation, more in operations
        ),
    )
    return page.encode()


def _operation(method: str, path: str, operation: Schema, parameters: list[Schema], schemas: Schema) -> str:
    parts = [
        f'<section id="{operation["operationId"]}" aria-label="{escape(operation["summary"])}">',
        f'<h2><span class="method">{method.upper()}</span> <code>{escape(path)}</code></h2>',
        f"<p>{escape(operation['summary'])}.</p>",
    ]
    if parameters:
        rows = [
            _field(p["name"], p["schema"] | {"description": p.get("description", "")}, p["required"], schemas)
            for p in parameters
        ]
        parts.append(_table("Parameters", rows))
    if "requestBody" in operation:
        kind, content = next(iter(operation["requestBody"]["content"].items()))
        schema = _follow(content["schema"], schemas)
        if "properties" in schema:
            parts += [_fields("Body", schema, schemas, asked=True), _example(path, schema, schemas)]
        else:
            parts.append(f"<p>Body: <code>{escape(kind)}</code></p>")
    kind, content = next(iter(operation["responses"]["200"]["content"].items()))
    answer = content["schema"]
    inner = _follow(answer.get("items", answer), schemas)
    if "properties" in inner:
        title = "Answer: a list of objects" if answer.get("type") == "array" else "Answer"
        parts.append(_fields(title, inner, schemas, asked=False))
    else:
        parts.append(f"<p>Answer: <code>{escape(kind)}</code></p>")
    refusals = "".join(
        f"<tr><td>{status}</td><td>{escape(response['description'])}</td></tr>"
        for status, response in operation["responses"].items()
        if status != "200"
    )
    parts.append(f"<details><summary>Errors</summary><table>{refusals}</table></details></section>")
    return "\n".join(parts)


def _fields(title: str, schema: Schema, schemas: Schema, *, asked: bool) -> str:
    """A table of an object's fields, and of those of the objects in it."""
    required = schema.get("required", []) if asked else []
    rows = []
    for name, each in sorted(schema["properties"].items(), key=lambda item: item[0] not in required):
        rows.append(_field(name, each, name in required, schemas))
        inner = each.get("items", each)
        if "$ref" in inner:
            mark = f"{name}[]." if "items" in each else f"{name}."
            rows += [
                _field(mark + below, entry, False, schemas)
                for below, entry in _follow(inner, schemas)["properties"].items()
            ]
    return _table(title, rows)


def _table(title: str, rows: list[str]) -> str:
    return f"<h3>{escape(title)}</h3><table>{''.join(rows)}</table>"


def _field(name: str, schema: Schema, required: bool, schemas: Schema) -> str:
    choices = [schema, *schema.get("anyOf", [])]
    notes = [_code(next((each["description"] for each in choices if "description" in each), ""))]
    if required:
        notes.append("Required.")
    elif schema.get("default") not in (None, []):
        notes.append(f"Default: <code>{escape(json.dumps(schema['default']))}</code>.")
    return (
        f"<tr><td><code>{escape(name)}</code></td><td>{escape(_type(schema, schemas))}</td>"
        f"<td>{' '.join(note for note in notes if note)}</td></tr>"
    )


def _type(schema: Schema, schemas: Schema) -> str:
    """A type in words."""
    if "$ref" in schema:
        return "object"
    if "anyOf" in schema:
        kinds = [_type(each, schemas) for each in schema["anyOf"] if each.get("type") != "null"]
        return " or ".join(dict.fromkeys(kinds))
    if "enum" in schema:
        return " or ".join(json.dumps(value) for value in schema["enum"])
    kind = str(schema.get("type", "any"))
    if kind == "array":
        return f"list of {_type(schema.get('items', {}), schemas)}s"
    limits = [f"from {schema['minimum']}"] if "minimum" in schema else []
    limits += [f"to {schema['maximum']}"] if "maximum" in schema else []
    limits += [f"up to {schema['maxLength']:,} characters"] if "maxLength" in schema else []
    return " ".join([kind, *limits])


def _example(path: str, schema: Schema, schemas: Schema) -> str:
    properties = schema.get("properties", {})
    body: Schema = {}
    if "documents" in properties:
        document = _follow(properties["documents"]["items"], schemas)["properties"]
        body["documents"] = [_input(document) | {"document_id": "1"}, _input(document) | {"document_id": "2"}]
    else:
        body |= _input(properties)
    if "top_k" in properties:
        body["top_k"] = 3
    shown = escape(
        f"curl -H 'Content-Type: application/json' http://127.0.0.1:8000{path} \\\n     -d '{json.dumps(body)}'"
    )
    return f'<h3>Example</h3><pre tabindex="0">{shown}</pre>'


def _input(properties: Schema) -> Schema:
    """A text, or a row of numbers if the server's models do not take texts."""
    return {"text": "Herring quotas in the North Sea"} if "text" in properties else {"features": {"17": 0.5}}


def _follow(schema: Schema, schemas: Schema) -> Schema:
    found: Schema = schemas[_name(schema)] if "$ref" in schema else schema
    return found


def _name(schema: Schema) -> str:
    return str(schema["$ref"]).rpartition("/")[2]


def _code(text: str) -> str:
    """HTML of a text; what is between backquotes becomes code."""
    parts = escape(text).split("`")
    return "".join(f"<code>{part}</code>" if i % 2 else part for i, part in enumerate(parts))
