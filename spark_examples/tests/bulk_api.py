"""A stand-in for OpenSearch: an index that takes bulk requests, checks their form, and has troubles on demand."""

import json
import threading
from collections.abc import Callable
from datetime import datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

FIELDS = {"id", "author", "text", "tags", "lang", "time"}
"""A strict mapping refuses others."""


class BulkApi(ThreadingHTTPServer):
    """One index. Each trouble is for one bulk request, in their order:

    "unanswered": the connection ends before anything is written; "lost": after all of it; "busy": 503; "full": 429;
    "half": every other document has no room.
    """

    daemon_threads = True

    def __init__(self, *troubles: str, on_written: Callable[[int], None] = lambda number: None) -> None:
        super().__init__(("127.0.0.1", 0), Request)
        self.troubles, self.on_written = list(troubles), on_written
        self.documents: dict[str, dict[str, Any]] = {}
        self.versions: dict[str, int] = {}
        self.is_created = False
        self.requests = 0
        self.wrong: list[str] = []
        """Requests that OpenSearch would not understand."""
        self._thread = threading.Thread(target=self.serve_forever, args=(0.05,))

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.shutdown()
        self._thread.join()
        self.server_close()

    def write(self, body: bytes, has_room: Callable[[int], bool]) -> list[dict[str, Any]]:
        lines = body.split(b"\n")
        assert lines.pop() == b"" and len(lines) % 2 == 0, "a bulk request has pairs of lines, all of which end"
        pairs = zip(map(json.loads, lines[::2]), map(json.loads, lines[1::2]), strict=True)
        return [
            {
                "index": self._answer(place["index"], document)
                if has_room(number)
                else refusal(429, "rejected_execution")
            }
            for number, (place, document) in enumerate(pairs)
        ]

    def _answer(self, place: dict[str, Any], document: dict[str, Any]) -> dict[str, Any]:
        assert place.keys() == {"_id", "version", "version_type"} and place["version_type"] == "external_gte", place
        identity, version = place["_id"], place["version"]
        if version < self.versions.get(identity, -1):
            return refusal(409, "version_conflict_engine_exception")
        if not document.keys() <= FIELDS:
            return refusal(400, "strict_dynamic_mapping_exception")
        datetime.fromisoformat(document["time"])
        is_new = identity not in self.documents
        self.documents[identity], self.versions[identity] = document, version
        return {"_id": identity, "status": 201 if is_new else 200}


class Request(BaseHTTPRequestHandler):
    server: BulkApi
    protocol_version = "HTTP/1.1"

    def do_PUT(self) -> None:
        self._read()
        if self.server.is_created:
            kind = "resource_already_exists_exception"
            self._answer(400, {"error": {"type": kind, "reason": kind, "root_cause": []}, "status": 400})
            return
        self.server.is_created = True
        self._answer(200, {"acknowledged": True})

    def do_POST(self) -> None:
        body, server = self._read(), self.server
        trouble = server.troubles.pop(0) if server.troubles else ""
        if trouble in ("busy", "full"):
            self._answer({"busy": 503, "full": 429}[trouble], {"error": trouble})
            return
        if trouble != "unanswered":
            try:
                items = server.write(body, lambda number: trouble != "half" or number % 2 == 0)
            except (AssertionError, ValueError, KeyError) as error:
                server.wrong.append(repr(error))
                self._answer(400, {"error": "malformed"})
                return
            server.requests += 1
            server.on_written(server.requests)
        if trouble in ("unanswered", "lost"):
            self.close_connection = True
            return
        self._answer(200, {"errors": any("error" in each["index"] for each in items), "items": items})

    def _read(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def _answer(self, status: int, body: Any) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *arguments: object) -> None:
        """Nothing."""


def refusal(status: int, kind: str) -> dict[str, Any]:
    return {"status": status, "error": {"type": kind, "reason": "as told"}}
