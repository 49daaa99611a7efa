"""Where delegation tokens are in the coordination tree, and what their nodes hold, as Kafka 3.9 has it (DelegationTokenManagerZk).

    /delegation_token/tokens/<id>                 a token, as JSON
    /delegation_token/token_changes/token_change_<seq>   which token has changed, or is gone: its id

A token is {"version":3,"owner":"User%3Aalice","tokenRequester":...,"renewers":[...],"issueTimestamp":...,"maxTimestamp":...,
"expiryTimestamp":...,"tokenId":...}, with principals encoded as in addresses of the web. Before version 3 the owner was the
one who asked. `decode_token` raises MalformedNode.
"""

from __future__ import annotations

import json
import re
from typing import Any
from urllib.parse import quote, unquote_plus

from ottla.replication.cluster.znodes import MalformedNode
from ottla.server.auth.tokens.token import DelegationToken
from ottla.wire.settings import LONG_MAX

ABOVE = "/delegation_token"
TOKENS = f"{ABOVE}/tokens"
CHANGES = f"{ABOVE}/token_changes"
CHANGE_PREFIX = "token_change_"
PATHS = (ABOVE, TOKENS, CHANGES)
"""The nodes that have to be there, parents first."""

PRINCIPAL_CHARACTERS_MAX = 4_096
_VERSION, _VERSION_WITH_REQUESTER = 3, 3
_TIMES = ("issueTimestamp", "maxTimestamp", "expiryTimestamp")
_ID = re.compile(r"[A-Za-z0-9_-]{1,100}")
_DATA_BYTES_MAX = 1 << 20  # as much as ZooKeeper takes
_SHOWN_MAX = 100


def token_path(token_id: str) -> str:
    return f"{TOKENS}/{token_id}"


def is_token_id(name: str) -> bool:
    """Whether a token can have this id: Kafka's have 22 characters of URL-safe base64."""
    return _ID.fullmatch(name) is not None


def encode_token(token: DelegationToken) -> bytes:
    node: dict[str, Any] = {
        "version": _VERSION,
        "owner": _sanitized(token.owner),
        "tokenRequester": _sanitized(token.requester),
        "renewers": [_sanitized(each) for each in token.renewers],
        **dict(zip(_TIMES, (token.issued_ms, token.max_ms, token.expires_ms), strict=True)),
        "tokenId": token.token_id,
    }
    return json.dumps(node, separators=(",", ":")).encode()


def decode_token(token_id: str, data: bytes) -> DelegationToken:
    """The token of a node of that name."""
    if not is_token_id(token_id) or len(data) > _DATA_BYTES_MAX:
        raise MalformedNode(f"no token: {len(data)} bytes of {token_id[:_SHOWN_MAX]!r}")
    try:
        node = json.loads(data)
        version = _number(node["version"])
        if not 0 < version <= _VERSION:
            raise MalformedNode(f"version {version} of tokens is not known")
        if node["tokenId"] != token_id:
            raise MalformedNode("the token has another id than its node")
        owner = _principal(node["owner"])
        requester = _principal(node["tokenRequester"]) if version >= _VERSION_WITH_REQUESTER else owner
        if not isinstance(node["renewers"], list):
            raise MalformedNode("renewers are no list")
        renewers = tuple(_principal(each) for each in node["renewers"])
        issued_ms, max_ms, expires_ms = (_number(node[name]) for name in _TIMES)
    except MalformedNode:
        raise
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        # Not what the node holds, which may be anything and of any length.
        raise MalformedNode(f"no token: {type(error).__name__}") from None
    return DelegationToken(token_id, owner, requester, renewers, issued_ms, max_ms, expires_ms)


def _number(value: Any) -> int:
    if type(value) is not int or not -LONG_MAX <= value <= LONG_MAX:
        raise MalformedNode("a number is missing")
    return value


def _principal(value: Any) -> str:
    if not isinstance(value, str):
        raise MalformedNode("a principal is missing")
    principal = unquote_plus(value, errors="replace")
    if ":" not in principal or len(principal) > PRINCIPAL_CHARACTERS_MAX:
        raise MalformedNode("a principal has no type, or is too long")
    principal.encode()  # half of a pair of surrogates could be told to nobody
    return principal


def _sanitized(principal: str) -> str:
    return quote(principal, safe="", errors="replace").replace("~", "%7E")
