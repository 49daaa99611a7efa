"""The files of the page. A browser keeps them and asks by ETag whether they are still the same."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import trio

from ottla.server.http.routes import HTML, Refused, Request, Response

if TYPE_CHECKING:
    from ottla.server.http.routes import Routes

FOLDER = Path(__file__).parent / "static"
_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": HTML,
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)


class _File(NamedTuple):
    content: bytes
    content_type: str
    etag: str


class Pages:
    """All files, read when the first of them is asked for. Other names do not exist."""

    def __init__(self) -> None:
        self._files: dict[str, _File] = {}

    def add_to(self, routes: Routes) -> None:
        """The page is at the root, what it loads is below."""
        routes.get("/", self._index)
        routes.get("/console/", self._below)

    async def _index(self, request: Request) -> Response:
        return await self._answer("index.html", request)

    async def _below(self, request: Request) -> Response:
        return await self._answer(request.path.removeprefix("/console/"), request)

    async def _answer(self, name: str, request: Request) -> Response:
        if not self._files:
            self._files = await trio.to_thread.run_sync(_read_all)
        if (file := self._files.get(name)) is None:
            raise Refused(404, "The console has no such file.")
        known = {each.strip().removeprefix("W/") for each in request.headers.get("if-none-match", "").split(",")}
        headers = (("Content-Security-Policy", _POLICY), ("ETag", file.etag), ("Cache-Control", "no-cache"))
        if file.etag in known or "*" in known:
            length = ("Content-Length", str(len(file.content)))
            return Response(b"", status=304, content_type=file.content_type, headers=(*headers, length))
        return Response(file.content, content_type=file.content_type, headers=headers)


def _read_all() -> dict[str, _File]:
    files = {}
    for path in FOLDER.iterdir():
        if path.suffix in _TYPES:
            content = path.read_bytes()
            files[path.name] = _File(content, _TYPES[path.suffix], f'"{sha256(content).hexdigest()[:32]}"')
    return files
