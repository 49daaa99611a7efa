"""Which handler answers a path. The docstring of the package says how a module adds one."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ottla.server.http.messages import Handler, Refused, Request

Check = Callable[[Request], None]
"""Raises Refused for a request without what it needs to be answered. It has no body yet."""


def anybody(request: Request) -> None:
    """Whoever reaches the endpoint may ask."""


class Route(NamedTuple):
    """A handler, how long the body of a request may be that it gets, and who may ask."""

    handler: Handler
    body_bytes_max: int
    check: Check


class Routes:
    """The table. A path that ends with a slash stands for all paths that begin with it, the longest of them first."""

    def __init__(self) -> None:
        self._exact: dict[str, dict[str, Route]] = {}
        self._below: dict[str, dict[str, Route]] = {}

    def get(self, path: str, handler: Handler, *, check: Check = anybody) -> None:
        """Answer GET and HEAD of a path; the handler changes nothing."""
        self._add(path, "GET", Route(handler, 0, check))

    def post(self, path: str, handler: Handler, *, body_bytes_max: int, check: Check = anybody) -> None:
        """Answer POST of a path; the handler gets bodies of up to so many bytes, of those that `check` lets pass."""
        self._add(path, "POST", Route(handler, body_bytes_max, check))

    def _add(self, path: str, method: str, route: Route) -> None:
        assert path.startswith("/"), path
        table = self._below if path.endswith("/") and path != "/" else self._exact
        methods = table.setdefault(path, {})
        assert method not in methods, f"two handlers for {method} {path}"
        methods[method] = route

    def find(self, method: str, path: str) -> Route:
        """Who answers. Raises Refused: nobody."""
        methods = self._exact.get(path) or self._longest(path)
        if methods is None:
            raise Refused(404, f"There is nothing at this path. There is {', '.join(sorted(self._exact))}.")
        route = methods.get("GET" if method == "HEAD" else method)
        if route is None:
            allowed = ", ".join(sorted({*methods, *(("HEAD",) if "GET" in methods else ())}))
            raise Refused(405, f"This path answers {allowed} only.", (("Allow", allowed),))
        return route

    def _longest(self, path: str) -> dict[str, Route] | None:
        beginnings = [each for each in self._below if path.startswith(each)]
        return self._below[max(beginnings, key=len)] if beginnings else None
