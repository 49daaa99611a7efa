"""Schemas of the registry that the console knows (`http.console.schema.registry`): subjects, versions, settings and changes.

The broker asks the registry as the user of its own settings (`http.console.schema.registry.user.info`). That user's rights decide which
schemas the console shows. They also decide what the console may change, if `http.console.write` allows changes at all, and the principal
of the console's user may alter the cluster. Answers of the registry are bounded in bytes and time.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

from ottla.server.admin.console import requests
from ottla.server.admin.http.routes import Refused

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ottla.server.admin.console.avro.registry import Registry
    from ottla.server.admin.http.routes import Request

SUBJECTS_PER_PAGE = 50
VERSIONS_SHOWN = 1_000
ALL_CONTEXTS = ":*:"
TYPES = ("AVRO", "JSON", "PROTOBUF")
_NOT_CONFIGURED = "The console knows no schema registry: http.console.schema.registry names it."
_NOT_FOUND = 404


class SchemasView:
    """Handlers of the console's requests for schemas. Without a configured registry they refuse."""

    def __init__(self, registry: Registry | None) -> None:
        self._registry = registry

    async def subjects(self, request: Request) -> dict[str, Any]:
        """Return a page of the subjects that begin with `prefix`, of all contexts. `from`: number of subjects to skip."""
        prefix, start = requests.text(request, "prefix", ""), requests.number(request, "from", 0, maximum=1 << 30)
        wanted = prefix if prefix.startswith(":") else ALL_CONTEXTS + prefix
        query = {"subjectPrefix": wanted, "offset": start, "limit": SUBJECTS_PER_PAGE + 1}
        found = await self._asked("GET", f"/subjects?{urlencode(query)}")
        names = [each for each in found if isinstance(each, str)] if isinstance(found, list) else []
        # Some registries know neither pages nor prefixes.
        if len(names) > SUBJECTS_PER_PAGE + 1:
            names = sorted(each for each in names if each.startswith(prefix))[start:]
        return {
            "subjects": names[:SUBJECTS_PER_PAGE],
            "next": start + SUBJECTS_PER_PAGE if len(names) > SUBJECTS_PER_PAGE else None,
        }

    async def subject(self, request: Request) -> dict[str, Any]:
        """Return the versions, the compatibility level and the mode of the subject `name`."""
        name = requests.text(request, "name")
        versions = await self._asked("GET", f"/subjects/{_quoted(name)}/versions")
        config = await self._asked("GET", f"/config/{_quoted(name)}?defaultToGlobal=true")
        own = await self._asked("GET", f"/config/{_quoted(name)}", may_be_missing=True)
        mode = await self._asked("GET", f"/mode/{_quoted(name)}?defaultToGlobal=true")
        numbers = sorted(each for each in versions if type(each) is int) if isinstance(versions, list) else []
        return {
            "name": name,
            "versions": numbers[-VERSIONS_SHOWN:],
            "versionCount": len(numbers),
            "level": _member(config, "compatibilityLevel"),
            "isOwnLevel": own is not None,
            "mode": _member(mode, "mode"),
        }

    async def schema(self, request: Request) -> dict[str, Any]:
        """Return the version `version` of the subject `subject`."""
        subject, version = requests.text(request, "subject"), requests.number(request, "version", None, 1)
        found = await self._asked("GET", f"/subjects/{_quoted(subject)}/versions/{version}")
        references = found.get("references") if isinstance(found, dict) else None
        return {
            "subject": subject,
            "version": version,
            "id": _member(found, "id"),
            "type": _member(found, "schemaType") or "AVRO",
            "text": _member(found, "schema") or "",
            "references": references if isinstance(references, list) else [],
        }

    # --- changes, with `http.console.write`

    async def check(self, request: Request) -> dict[str, Any]:
        """Check whether a schema is compatible with the latest version. Reads `subject`, `type`, `text`, `references`."""
        subject, body = self._schema(request)
        path = f"/compatibility/subjects/{_quoted(subject)}/versions/latest?verbose=true"
        found = await self._asked("POST", path, body, may_be_missing=True)
        messages = found.get("messages") if isinstance(found, dict) else None
        return {
            "isCompatible": found is None or _member(found, "is_compatible") is True,
            "messages": messages if isinstance(messages, list) else [],
        }

    async def register(self, request: Request) -> dict[str, Any]:
        """Register a schema. Parameters: as in `check`."""
        subject, body = self._schema(request)
        found = await self._asked("POST", f"/subjects/{_quoted(subject)}/versions", body)
        known = await self._asked("POST", f"/subjects/{_quoted(subject)}", body)
        return {"subject": subject, "id": _member(found, "id"), "version": _member(known, "version")}

    async def set_level(self, request: Request) -> dict[str, Any]:
        """Set a subject's compatibility level. `level` null removes it; then the global level applies."""
        given = requests.posted(request)
        subject, level = _text(given, "subject"), given.get("level")
        if level is None:
            await self._asked("DELETE", f"/config/{_quoted(subject)}", may_be_missing=True)
        else:
            await self._asked("PUT", f"/config/{_quoted(subject)}", {"compatibility": _text(given, "level")})
        return {"subject": subject, "level": level}

    async def delete(self, request: Request) -> dict[str, Any]:
        """Soft-delete one version; if `version` is null, the whole subject."""
        given = requests.posted(request)
        subject, version = _text(given, "subject"), given.get("version")
        if version is not None and (type(version) is not int or not 0 < version < 1 << 31):
            raise Refused(400, "version must be a number or null.")
        path = f"/subjects/{_quoted(subject)}" + ("" if version is None else f"/versions/{version}")
        await self._asked("DELETE", path)
        return {"subject": subject, "version": version}

    def _schema(self, request: Request) -> tuple[str, dict[str, Any]]:
        given = requests.posted(request)
        kind, references = _text(given, "type"), given.get("references") or []
        if kind not in TYPES or not isinstance(references, list):
            raise Refused(400, f"type must be one of {', '.join(TYPES)}, and references a list.")
        # AVRO is what a registry takes a schema without a type for, and the only type that old ones know.
        more = {} if kind == "AVRO" else {"schemaType": kind}
        return _text(given, "subject"), {"schema": _text(given, "text"), "references": references, **more}

    async def _asked(self, method: str, path: str, body: Any = None, *, may_be_missing: bool = False) -> Any:
        """Send a request to the registry. Returns None for status 404 if `may_be_missing`. Raises Refused for errors."""
        if self._registry is None:
            raise Refused(404, _NOT_CONFIGURED)
        status, found = await self._registry.ask(method, path, b"" if body is None else json.dumps(body).encode())
        if status == _NOT_FOUND and may_be_missing:
            return None
        if not 200 <= status < 300:
            message, code = _member(found, "message"), _member(found, "error_code")
            said = f"{code}: {message}" if code and message else f"it answers with status {status}"
            raise Refused(404 if status == _NOT_FOUND else 409, f"The registry refuses: {said[:2_000]}")
        return found


def _quoted(name: str) -> str:
    return quote(name.encode("utf-8", "surrogatepass"), safe="")


def _member(found: Any, name: str) -> Any:
    """Return a text or number from an answer of the registry; None if it is missing or has another type."""
    value = found.get(name) if isinstance(found, dict) else None
    return value if isinstance(value, (str, int)) else None


def _text(given: Mapping[str, Any], name: str) -> str:
    value = given.get(name)
    if not isinstance(value, str) or not value.strip():
        raise Refused(400, f"{name} must be a text.")
    return value
