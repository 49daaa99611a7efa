"""A server that gives out tokens: /keys has its public keys, and a POST gets a token for the password of a client."""

import base64
import http.server
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ottla.server.tests.oauth_issuer import curve, published, rsa, signed

CLIENT, SECRET = "alice", "word-of-the-oauth-client"


def claims(**changed: Any) -> dict[str, Any]:
    now = int(time.time())
    usual = {"sub": CLIENT, "iss": "https://issuer/", "aud": "kafka", "iat": now - 60, "exp": now + 600, "scope": "all"}
    return {name: value for name, value in (usual | changed).items() if value is not None}


class Issuer(http.server.BaseHTTPRequestHandler):
    key_ids: tuple[str, ...] = ("first",)

    def do_GET(self) -> None:
        self.say(200 if self.path == "/keys" else 404, published(*map(rsa, self.key_ids), curve("P-256", "p256")))

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        expected = base64.b64encode(f"{CLIENT}:{SECRET}".encode()).decode()
        if self.headers["Authorization"] != f"Basic {expected}":
            self.say(401, b"{}")
            return
        token = {"access_token": signed(claims()), "expires_in": 600, "token_type": "Bearer"}
        self.say(200, json.dumps(token).encode())

    def say(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: Any) -> None:
        pass


@contextmanager
def token_server() -> Iterator[str]:
    """Its address."""
    for each in ("first", "second", "unknown", "new"):
        rsa(each)  # here, where one thread makes them
    curve("P-256", "p256")
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Issuer)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()
