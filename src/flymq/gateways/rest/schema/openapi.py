"""The OpenAPI 3.1 document, generated from the operations and their shapes; and a page that shows it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, get_type_hints

import msgspec

from flymq import __version__
from flymq.gateways.rest.http.bodies import JSON, NDJSON
from flymq.gateways.rest.http.problems import PROBLEM_JSON, Problem, status_of
from flymq.gateways.rest.schema.operations import Operation
from flymq.gateways.rest.schema.shapes import NewRecord, RecordShape
from flymq.model import errors
from flymq.model.errors import FlyMQError

_REF = "#/components/schemas/{name}"
_PARAMETER = re.compile(r"{(\w+)(:int)?}")
_TEXTS = {207: "Some records were not written; see `error`", 503: "Not yet"}

_TAGS = {
    "producing": "records",
    "reading": "records",
    "consumers": "groups",
    "observing": "observing",
    "api": "observing",
}


def describe_api(operations: Sequence[Operation]) -> bytes:
    """Return the document."""
    shapes = {shape for operation in operations for shape in _shapes(operation)} | {Problem, NewRecord, RecordShape}
    _, components = msgspec.json.schema_components(sorted(shapes, key=lambda s: s.__name__), ref_template=_REF)
    paths: dict[str, dict[str, Any]] = {}
    for operation in operations:
        path = _PARAMETER.sub(r"{\1}", operation.path)
        paths.setdefault(path, {})[operation.method.lower()] = _describe(operation)
    document = {
        "openapi": "3.1.0",
        "info": {
            "title": "FlyMQ",
            "version": __version__,
            "description": "Administration and records of a FlyMQ broker. Errors are RFC 9457 problems.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"login": {"type": "http", "scheme": "basic"}},
        },
    }
    return msgspec.json.format(msgspec.json.encode(document), indent=2)


def _shapes(operation: Operation) -> Iterable[type[msgspec.Struct]]:
    for shape in (operation.takes, operation.gives):
        if isinstance(shape, type):
            yield shape


def _describe(operation: Operation) -> dict[str, Any]:
    tag = _TAGS.get(operation.tag, operation.tag)
    described: dict[str, Any] = {
        "operationId": operation.name,
        "tags": [tag],
        "summary": operation.summary,
        "parameters": [*_path_parameters(operation), *_query_parameters(operation), *_header_parameters(operation)],
        "responses": _responses(operation),
    }
    if operation.takes is not None:
        described["requestBody"] = {"required": True, "content": _content_taken(operation)}
    # Authentication is only required if the broker is configured so.
    described["security"] = [{"login": []}, {}] if operation.needs_login else []
    return described


def _path_parameters(operation: Operation) -> list[dict[str, Any]]:
    schemas = {
        True: {"type": "integer", "minimum": 0, "maximum": (1 << 31) - 1},
        False: {"type": "string", "minLength": 1},
    }
    return [
        {"name": match[1], "in": "path", "required": True, "schema": schemas[bool(match[2])]}
        for match in _PARAMETER.finditer(operation.path)
    ]


def _query_parameters(operation: Operation) -> list[dict[str, Any]]:
    if operation.query is None:
        return []
    hints = get_type_hints(operation.query, include_extras=True)
    found = []
    for field in msgspec.structs.fields(operation.query):
        (schema,), components = msgspec.json.schema_components([hints[field.name]], ref_template=_REF)
        schema = _inline(_without_null(_inline(schema, components)), components)
        description = schema.pop("description", None)
        if field.default not in (None, msgspec.NODEFAULT):
            schema["default"] = getattr(field.default, "value", field.default)
        parameter = {"name": field.name, "in": "query", "required": field.required, "schema": schema}
        found.append(parameter if description is None else parameter | {"description": description})
    return found


def _inline(schema: dict[str, Any], components: dict[str, Any]) -> dict[str, Any]:
    """Inline the schemas that a parameter refers to."""
    if "$ref" in schema:
        named = components[schema["$ref"].rpartition("/")[2]]
        return {**named, **{key: value for key, value in schema.items() if key != "$ref"}}
    return schema


def _without_null(schema: dict[str, Any]) -> dict[str, Any]:
    """A parameter that is not set is omitted; it is never null."""
    if "anyOf" not in schema:
        return dict(schema)
    rest = {key: value for key, value in schema.items() if key != "anyOf"}
    (kind,) = (each for each in schema["anyOf"] if each != {"type": "null"})
    return {**kind, **rest}


def _header_parameters(operation: Operation) -> list[dict[str, Any]]:
    if not operation.reads_lines:
        return []
    text = "Makes the request safe to retry: its records are written once."
    schema = {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[!-~]+$"}
    return [{"name": "Idempotency-Key", "in": "header", "required": False, "description": text, "schema": schema}]


def _content_taken(operation: Operation) -> dict[str, Any]:
    assert operation.takes is not None
    content: dict[str, Any] = {JSON: {"schema": _ref(operation.takes)}}
    if operation.reads_lines:
        content[NDJSON] = {"schema": _ref(NewRecord)}
    return content


def _responses(operation: Operation) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for status in (operation.status, *operation.other_statuses):
        found[str(status)] = {"description": _TEXTS.get(status, "Done")} | _content_given(operation)
    if operation.gives is None:
        found = {"204": {"description": "Done"}}
    for name, text in _headers_given(operation):
        headers = found[str(operation.status)].setdefault("headers", {})
        headers[name] = {"description": text, "schema": {"type": "string"}}
    by_status: dict[int, list[str]] = {}
    for error in _errors(operation):
        by_status.setdefault(status_of(error), []).append(error.code)
    for status, codes in sorted(by_status.items()):
        content = {PROBLEM_JSON: {"schema": _ref(Problem)}}
        documented = found.setdefault(str(status), {"description": ", ".join(dict.fromkeys(codes)), "content": {}})
        documented["content"] = documented["content"] | content
    return found


def _headers_given(operation: Operation) -> Iterable[tuple[str, str]]:
    if operation.status == 201:
        yield "Location", "URL of the created resource"
    if operation.reads_lines:
        yield "Idempotency-Replayed", "`true` if everything was written before with the same key"
    if operation.gives_lines:
        yield "Next-Offset", "The next offset to read, in an NDJSON response"


def _content_given(operation: Operation) -> dict[str, Any]:
    if operation.gives is None:
        return {}
    if isinstance(operation.gives, str):
        schema = {} if operation.gives == JSON else {"type": "string"}
        return {"content": {operation.gives: {"schema": schema}}}
    content: dict[str, Any] = {JSON: {"schema": _ref(operation.gives)}}
    if operation.gives_lines:
        content[NDJSON] = {"schema": _ref(RecordShape)}
    return {"content": content}


def _errors(operation: Operation) -> Iterable[type[FlyMQError]]:
    yield from operation.errors
    if operation.query is not None or operation.takes is not None:
        yield errors.InvalidRequest
    if operation.takes is not None:
        yield from (errors.RequestTooLarge, errors.UnsupportedMediaType, errors.BodyTooSlow)
    if "{" in operation.path:
        yield errors.NoSuchResource
    if operation.needs_login:
        yield from (errors.Unauthenticated, errors.AuthenticationFailed, errors.PlaintextLogin, errors.TooManyLogins)
    if operation.needs_broker:
        yield from (errors.BrokerStarting, errors.StorageError)


def _ref(shape: type[msgspec.Struct]) -> dict[str, str]:
    return {"$ref": _REF.format(name=shape.__name__)}


DOCS_HTML = """\
<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>FlyMQ API</title>
<style>
  body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
  summary { cursor: pointer; padding: .2rem 0; }
  code, pre, b { font-family: ui-monospace, monospace; }
  pre { background: #8881; padding: .7rem; overflow: auto; }
  td { padding-right: 1rem; vertical-align: top; }
  b { display: inline-block; width: 4.5rem; }
  @media (prefers-color-scheme: dark) { body { background: #111; color: #ddd; } }
</style>
<h1>FlyMQ API</h1>
<p>As an OpenAPI document: <a href="openapi.json">openapi.json</a>.</p>
<main></main>
<script>
const make = (tag, text, ...children) => {
  const made = document.createElement(tag);
  if (text) made.textContent = text;
  made.append(...children);
  return made;
};
const resolve = (schema, all, depth = 0) => {
  if (!schema || typeof schema !== "object" || depth > 6) return schema;
  if (schema.$ref) return resolve(all[schema.$ref.split("/").pop()], all, depth + 1);
  if (Array.isArray(schema)) return schema.map(each => resolve(each, all, depth + 1));
  return Object.fromEntries(Object.entries(schema).map(([key, value]) => [key, resolve(value, all, depth + 1)]));
};
const shown = (content, all) => Object.entries(content || {}).map(([type, {schema}]) =>
  make("details", "", make("summary", type), make("pre", JSON.stringify(resolve(schema, all), null, 2))));
fetch("openapi.json").then(answer => answer.json()).then(api => {
  const all = api.components.schemas, groups = {};
  for (const [path, methods] of Object.entries(api.paths))
    for (const [method, operation] of Object.entries(methods))
      (groups[operation.tags[0]] ||= []).push([method, path, operation]);
  for (const [tag, operations] of Object.entries(groups)) {
    document.querySelector("main").append(make("h2", tag));
    for (const [method, path, operation] of operations) {
      const summary = make("summary", "", make("b", method.toUpperCase()), make("code", path), " " + operation.summary);
      const entry = make("details", "", summary);
      const rows = operation.parameters.map(({name, in: where, schema, description}) => make("tr", "",
        make("td", name), make("td", where), make("td", schema.type || ""), make("td", description || "")));
      if (rows.length) entry.append(make("table", "", ...rows));
      if (operation.requestBody) entry.append(make("p", "Body"), ...shown(operation.requestBody.content, all));
      for (const [status, {description, content}] of Object.entries(operation.responses))
        entry.append(make("p", status + " " + description), ...shown(content, all));
      document.querySelector("main").append(entry);
    }
  }
});
</script>
</html>
"""
