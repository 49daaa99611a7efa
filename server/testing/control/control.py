"""The control port: a test's Kafka by HTTP and JSON, for tests in any language.

GET /openapi.json describes every operation; it is made from the functions of `operations.py`. A refusal is JSON, too:
{"error": "one sentence"}, with 400 for wrong use, 409 for an error of Kafka's, 404 for a path that is none.

Whoever reaches the port does what they like with the brokers. So it listens on loopback alone, unless a token is given, which
each request then has to bring (Authorization: Bearer TOKEN).
"""

from __future__ import annotations

import hmac
import inspect
import json
import types
import typing
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

import trio

from ottla import __version__
from ottla.replication.log.descriptors import Descriptors
from ottla.server.admin.http.routes import JSON, Refused, Request, Response, Routes, is_loopback
from ottla.server.admin.http.server import HttpServer
from ottla.server.admin.http.standalone import LIMITS, ApiGuard, FreePace
from ottla.server.config.server_config import token_problem
from ottla.server.serving import StartupError
from ottla.server.testing.control.operations import OPERATIONS, Operation
from ottla.server.testing.errors import LabError, nearest
from ottla.server.testing.kafka import Kafka
from ottla.server.testing.service import Service
from ottla.wire.errors import KafkaError
from ottla.wire.foreign_json import parse_json
from ottla.wire.happenings import cut

LONG_LIMIT = 2**63
SCHEMAS: Final[Mapping[Any, Any]] = {
    str: {"type": "string"},
    int: {"type": "integer"},
    float: {"type": "number"},
    bool: {"type": "boolean"},
    list[int]: {"type": "array", "items": {"type": "integer"}},
    list[str]: {"type": "array", "items": {"type": "string"}},
    dict[str, Any]: {"type": "object"},
    dict[str, str]: {"type": "object", "additionalProperties": {"type": "string"}},
}
"""JSON schemas of the types that parameters have."""


class Control(Service):
    """Server of the control port."""

    def __init__(self, kafka: Kafka, host: str, port: int, token: str | None = None) -> None:
        """Listen on HOST:PORT. Raises LabError for an address beyond loopback without a token, and OSError."""
        if (problem := token_problem(token)) is not None:
            raise LabError(f"The token of the control port {problem}.")
        if token is None and not is_loopback(host):
            raise LabError(
                f"The control port would be open to everybody at {host}; give a token, or listen on 127.0.0.1."
            )
        super().__init__("control port", host, port)
        self._kafka, self._token = kafka, token
        self._begin(self._serve)

    async def _serve(self, on_ready: Callable[[], None], stopping: trio.Event) -> None:
        server = HttpServer(self._routes(), _ControlGuard(self._host), Descriptors(), FreePace(), LIMITS)
        on_ready()
        await server.run_until(stopping, self._socket)

    def _routes(self) -> Routes:
        routes = _JsonRoutes()

        def check(request: Request) -> None:
            scheme, _, given = request.headers.get("authorization", "").partition(" ")
            is_right = self._token is None or hmac.compare_digest(given.strip().encode(), self._token.encode())
            if self._token is not None and not (is_right and scheme.lower() == "bearer"):
                raise Refused(401, "The token is missing or wrong: Authorization: Bearer TOKEN.", _CHALLENGE)

        async def described(_: Request) -> Response:
            return _json(openapi())

        routes.get("/openapi.json", described, check=check)
        for operation in OPERATIONS:
            handler = self._handler(operation)
            if operation.method == "GET":
                routes.get(operation.path, handler, check=check)
            else:
                routes.post(operation.path, handler, body_bytes_max=operation.body_bytes_max, check=check)
        return routes

    def _handler(self, operation: Operation) -> Callable[[Request], Any]:
        async def handle(request: Request) -> Response:
            given = request.query if operation.method == "GET" else _body(request)
            arguments = arguments_of(operation, given, are_texts=operation.method == "GET")
            try:
                # In a thread, because each waits for the brokers' own. The port ends without those that take long.
                run = partial(operation.run, self._kafka, **arguments)
                return await trio.to_thread.run_sync(lambda: _json(run()), abandon_on_cancel=True)
            except LabError as error:
                raise Refused(400, str(error)) from None
            except (KafkaError, StartupError) as error:
                raise Refused(409, str(error)) from None

        return handle


class _ControlGuard(ApiGuard):
    """Guard of a port at which any body would be taken for JSON, also that of a form."""

    def check_change(self, headers: Mapping[str, str]) -> None:
        super().check_change(headers)
        if headers.get("content-type", JSON).partition(";")[0].strip().lower() != JSON:
            raise Refused(415, f"The Content-Type has to be {JSON}.")


_CHALLENGE = (("WWW-Authenticate", "Bearer"),)


class _JsonRoutes(Routes):
    """Routes whose refusals are JSON."""

    def refusal(self, refused: Refused) -> Response:
        body = json.dumps({"error": str(refused)}).encode()
        return Response(body, status=refused.status, content_type=JSON, headers=refused.headers)


def _json(answer: Any) -> Response:
    # Piece by piece: the brokers' thread gets the interpreter lock between the records of a long topic.
    if isinstance(answer, list):
        return Response(b"[%b]" % b", ".join([json.dumps(each).encode() for each in answer]), content_type=JSON)
    return Response(json.dumps(answer).encode(), content_type=JSON)


def _body(request: Request) -> Mapping[str, Any]:
    try:
        given = parse_json(request.body or b"{}")
    except (ValueError, RecursionError) as error:
        raise Refused(400, f"The body is no JSON that can be read: {error}.") from None
    if not isinstance(given, dict):
        raise Refused(400, 'The body has to be a JSON object, such as {"name": "orders"}.')
    return given


def arguments_of(operation: Operation, given: Mapping[str, Any], *, are_texts: bool) -> dict[str, Any]:
    """Return an operation's arguments from JSON, or from the texts of a query. Raises Refused."""
    parameters = _parameters(operation)
    for name in given:
        if name not in parameters:
            name = cut(name)
            hint = nearest(name, parameters, f"; it takes {', '.join(parameters) or 'nothing'}.")
            raise Refused(400, f"{operation.path} has no parameter {name}{hint}")
    arguments = {}
    for name, parameter in parameters.items():
        if name in given:
            arguments[name] = _converted(name, given[name], parameter.annotation, are_texts=are_texts)
        elif parameter.default is inspect.Parameter.empty:
            raise Refused(400, f"{operation.path} needs {name}.")
    return arguments


def _parameters(operation: Operation) -> dict[str, inspect.Parameter]:
    signature = inspect.signature(operation.run, eval_str=True)
    return dict(list(signature.parameters.items())[1:])  # without the Kafka


def _required(annotation: Any) -> Any:
    """Return the type of a value that is not None."""
    if isinstance(annotation, types.UnionType):
        return next(each for each in typing.get_args(annotation) if each is not types.NoneType)
    return annotation


def _converted(name: str, value: Any, annotation: Any, *, are_texts: bool) -> Any:
    wanted = _required(annotation)
    if value is None and wanted is not annotation:
        return None
    if are_texts and wanted in (int, bool):
        try:
            value = int(value) if wanted is int else {"true": True, "false": False}[value]
        except (ValueError, KeyError):
            raise Refused(400, f"{name} has to be {_told(wanted)}.") from None
    if not _fits(value, wanted):
        raise Refused(400, f"{name} has to be {_told(wanted)}.")
    return value


def _fits(value: Any, wanted: Any) -> bool:
    inner = typing.get_args(wanted)
    kind = typing.get_origin(wanted) or wanted
    if isinstance(value, int) and kind in (int, float):
        return not isinstance(value, bool) and abs(value) < LONG_LIMIT  # no field of Kafka's holds more
    if not isinstance(value, kind):
        return False
    if kind is str:
        return _is_unicode(value)
    if kind is list:
        return all(_fits(each, inner[0]) for each in value)
    if kind is not dict:
        return True
    return all(_is_unicode(name) and (inner[1] is Any or _fits(each, inner[1])) for name, each in value.items())


def _is_unicode(text: str) -> bool:
    """Return False for a text with half a surrogate pair, which JSON can say and UTF-8 cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _told(wanted: Any) -> str:
    names = {str: "a string", int: "a whole number", float: "a number", bool: "true or false"}
    if wanted in names:
        return names[wanted]
    return "an object" if typing.get_origin(wanted) is dict else "an array"


def openapi() -> dict[str, Any]:
    """Return the description of all operations as an OpenAPI 3.1 document."""
    paths: dict[str, dict[str, Any]] = {}
    for operation in OPERATIONS:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _described(operation)
    info = {"title": "Ottla: Kafka inside a test", "version": __version__}
    return {"openapi": "3.1.0", "info": info, "paths": paths}


def _described(operation: Operation) -> dict[str, Any]:
    properties, required = {}, []
    for name, parameter in _parameters(operation).items():
        schema = dict(SCHEMAS[_required(parameter.annotation)])
        if parameter.default is inspect.Parameter.empty:
            required.append(name)
        elif parameter.default is not None:
            schema["default"] = parameter.default
        properties[name] = schema
    summary = (inspect.getdoc(operation.run) or "").partition("\n")[0]
    refusal = {"description": "one sentence", "content": {JSON: {"schema": _ERROR}}}
    answers = {"200": {"description": "done", "content": {JSON: {}}}, "400": refusal, "409": refusal}
    told: dict[str, Any] = {"operationId": operation.run.__name__, "summary": summary, "responses": answers}
    if operation.method == "GET":
        told["parameters"] = [
            {"name": name, "in": "query", "required": name in required, "schema": schema}
            for name, schema in properties.items()
        ]
    else:
        schema = {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
        told["requestBody"] = {"required": bool(required), "content": {JSON: {"schema": schema}}}
    return told


_ERROR = {"type": "object", "properties": {"error": {"type": "string"}}, "required": ["error"]}
