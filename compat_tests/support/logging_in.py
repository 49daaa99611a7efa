"""Connections that log in, in Ottla's own message classes: by PLAIN, and by SCRAM with a delegation token."""

import base64

from compat_tests.support.wire_client import WireClient

from ottla.server.security.scram import ScramClient
from ottla.wire.messages.sasl import SaslAuthenticateRequest, SaslAuthenticateResponse, SaslHandshakeRequest


class Refused(Exception):
    """A login that the broker refuses."""


def by_plain(client: WireClient, name: str, password: str) -> SaslAuthenticateResponse:
    """The last answer. Raises Refused."""
    _choose(client, "PLAIN")
    return _tell(client, f"\0{name}\0{password}".encode())


def by_token(client: WireClient, mechanism: str, token_id: str, hmac: bytes) -> list[SaslAuthenticateResponse]:
    """All answers. Raises Refused."""
    _choose(client, mechanism)
    scram = ScramClient(mechanism, token_id, base64.b64encode(hmac).decode(), "nonce", with_token=True)
    answers: list[SaslAuthenticateResponse] = []
    while not scram.is_complete:
        said = scram.step(bytes(answers[-1].auth_bytes) if answers else b"")
        if said:
            answers.append(_tell(client, said))
    return answers


def _choose(client: WireClient, mechanism: str) -> None:
    assert client.ask(SaslHandshakeRequest(mechanism=mechanism), 1).error_code == 0


def _tell(client: WireClient, token: bytes) -> SaslAuthenticateResponse:
    answer: SaslAuthenticateResponse = client.ask(SaslAuthenticateRequest(auth_bytes=token), 2)
    if answer.error_code:
        raise Refused(answer.error_message)
    return answer
