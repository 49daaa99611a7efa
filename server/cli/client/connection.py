"""Blocking connection of a command to one broker: requests out, answers back in their order.

It is made in four steps: TCP, TLS and a login where the settings have them, and ApiVersions, which says in which versions requests
may be sent. All four have one deadline, so that a peer that hangs or is no broker is reported within seconds. A peer that speaks
another protocol is named (`other_protocol`).

A frame may have FRAME_BYTES_MAX bytes, and its buffer grows with the bytes that have arrived, not with the length field. An
unauthenticated peer may send FIRST_BYTES_MAX bytes, because an answer may become many objects.
"""

from __future__ import annotations

import secrets
import socket
import struct
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla import __version__
from ottla.server.cli.client.output import ConnectionLost, NoResponse, RequestFailed, UsageError, say
from ottla.server.config.endpoint import host_and_port
from ottla.server.dispatch.dispatch import response_class_of
from ottla.wire.errors import ErrorCode, KafkaError, ProtocolViolation
from ottla.wire.headers import (
    RequestHeader,
    decode_response_header,
    encode_request_header,
    request_header_version,
    response_header_version,
)
from ottla.wire.limits import FRAME_BYTES_MAX
from ottla.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.wire.schema import Message, VersionRange

if TYPE_CHECKING:
    import ssl

    from ottla.server.cli.client.oauth import TokenLogin
    from ottla.server.cli.client.security import Security
    from ottla.server.config.sasl_rules import PeerLoginConfig
    from ottla.server.security.mechanism import ClientMechanism

CLIENT_ID = "ottla"
ANSWER_TIMEOUT_S = 30.0
"""Time for an answer of a broker that has answered before; Kafka's request.timeout.ms."""

PATIENCE_S = 2.5
"""Time after which a command says that it is still waiting."""

HTTP_PROBE_S = 0.3
HTTP_PROBE = b"\0\0\r\n\r\n"
"""A malformed request to a server of HTTP, which it answers; to a broker the length of a frame, and two bytes of it."""

FIRST_BYTES_MAX = 256 * 1024
_BUFFER_BYTES = 64 * 1024
_API_VERSIONS = 3  # understood by all brokers since Kafka 2.4; older ones say what they understand
_size = struct.Struct(">i")


class Address(NamedTuple):
    """Host and port of a broker."""

    host: str
    port: int

    def __str__(self) -> str:
        return host_and_port(self.host, self.port)


class BrokerConnection:
    """Connection to a broker, opened by `connect`. All methods raise ConnectionLost if the connection is broken."""

    def __init__(self, sock: socket.socket, address: Address, client_id: str = CLIENT_ID) -> None:
        """`client_id`: name of this client in its requests; quotas and logs of brokers know it by that."""
        self.address, self._client_id = address, client_id
        self.socket = sock
        self.versions: dict[int, VersionRange] = {}
        """Versions of requests that the broker takes, by api key."""

        self.frame_bytes_max = FRAME_BYTES_MAX
        self.patience_s = PATIENCE_S
        """Seconds without an answer after which the user gets a message."""

        self._buffer = bytearray(_BUFFER_BYTES)
        self._last_id = 0
        self._waiting: deque[tuple[int, type[Message], int]] = deque()
        self._answers = 0

    @property
    def is_closed(self) -> bool:
        return self.socket.fileno() < 0

    def version_of(self, request_class: type[Message], at_most: int = 1000) -> int:
        """Return the newest common version of a request, up to `at_most`. Raises RequestFailed if there is none."""
        ours, theirs = request_class.versions, self.versions.get(request_class.api_key)
        newest = ours.newest_common(theirs, at_most)
        if newest is not None:
            return newest
        name = request_class.__name__.removesuffix("Request")
        served = "none" if theirs is None else f"{theirs.first}-{theirs.last}"
        wanted = f"{ours.first}-{min(ours.last, at_most)}"
        raise RequestFailed(
            f"the broker at {self.address} serves no version of {name} that is needed: {served}, not {wanted}"
        )

    def ask(self, request: Message, *, at_most: int = 1000, timeout_s: float = ANSWER_TIMEOUT_S) -> Any:
        """Send a request and return the response."""
        self.send(request, at_most=at_most)
        return self.receive(timeout_s)

    def send(self, request: Message, *, at_most: int = 1000, has_answer: bool = True) -> None:
        """Send a request; a later `receive` returns the response."""
        version = self.version_of(type(request), at_most)
        self._send(request, version, has_answer=has_answer)

    def receive(self, timeout_s: float = ANSWER_TIMEOUT_S) -> Any:
        """Receive the response to the oldest open request. Its records are views, valid until the next `receive`."""
        correlation_id, response_class, version = self._waiting.popleft()
        end = self._frame(time.monotonic() + timeout_s)
        try:
            answered, body = decode_response_header(
                self._buffer, 0, end, response_header_version(response_class, version)
            )
            if answered != correlation_id:
                raise ConnectionLost(
                    f"{self.address} answers another request than the one that was sent; is it a Kafka broker?"
                )
            return self._decoded(response_class, version, body, end)
        except (ProtocolViolation, KafkaError, ValueError, IndexError, struct.error) as error:
            raise ConnectionLost(
                f"{self.address} answers what cannot be read ({error}); is it a Kafka broker?"
            ) from None

    def close(self) -> None:
        self.socket.close()

    # --- frames

    def _decoded(self, response_class: type[Message], version: int, body: int, end: int) -> Any:
        if response_class is ApiVersionsResponse and end - body >= 2:
            # Whoever does not know our version answers in the layout of the first one.
            (code,) = struct.unpack_from(">h", self._buffer, body)
            version = 0 if code == ErrorCode.UNSUPPORTED_VERSION else version
        return response_class.decode(self._buffer, version, body, end)

    def _send(self, request: Message, version: int, *, has_answer: bool = True) -> None:
        cls = type(request)
        self._last_id = (self._last_id + 1) & 0x7FFFFFFF
        header = RequestHeader(cls.api_key, version, self._last_id, self._client_id)
        parts: list[Any] = [b"", encode_request_header(header, request_header_version(cls, version))]
        try:
            parts += request.encode_parts(version)
        except (ValueError, OverflowError, struct.error, KafkaError) as error:  # ValueError: UnicodeEncodeError, too
            name = cls.__name__.removesuffix("Request")
            raise UsageError(
                f"what was given cannot be put into {name}: too long, too large, or no text ({error})"
            ) from None
        parts[0] = _size.pack(sum(map(len, parts)))
        try:
            self.socket.settimeout(ANSWER_TIMEOUT_S)
            self.socket.sendall(b"".join(parts))
        except OSError as error:
            raise self._lost(error) from None
        if has_answer:
            self._waiting.append((self._last_id, response_class_of(cls), version))

    def _frame(self, deadline_s: float) -> int:
        """Receive one frame into the buffer, from position 0 on; return the frame's length."""
        self._receive(0, _size.size, deadline_s)
        (size,) = _size.unpack_from(self._buffer)
        if not 4 <= size <= self.frame_bytes_max:
            raise ConnectionLost(self.other_protocol(bytes(self._buffer[: _size.size])))
        self._receive(0, size, deadline_s)
        self._answers += 1
        return int(size)

    def _receive(self, start: int, end: int, deadline_s: float) -> None:
        position = start
        while position < end:
            if position == len(self._buffer):
                # Twice of what has really come, so that a large length costs nobody memory.
                # A new one, because records of the answer before may still be views of this one.
                grown = bytearray(min(end, 2 * position))
                grown[:position] = self._buffer
                self._buffer = grown
            view = memoryview(self._buffer)[position : min(end, len(self._buffer))]
            position += self._received(view, deadline_s)
            view.release()

    def _received(self, view: memoryview, deadline_s: float) -> int:
        patience_s = time.monotonic() + self.patience_s if self._answers else deadline_s
        while True:
            now_s = time.monotonic()
            until_s = min(deadline_s, patience_s if patience_s > now_s else deadline_s)
            try:
                self.socket.settimeout(max(0.001, until_s - now_s))
                count = self.socket.recv_into(view)
            except TimeoutError:
                if time.monotonic() < deadline_s:
                    # A wait may also end a moment before the deadline, of which there is nothing to say.
                    if until_s < deadline_s:
                        say(f"still waiting for {self.address} ...")
                    continue
                raise NoResponse(
                    f"{self.address} takes connections and does not answer: is it a Kafka broker, is it stopped or busy?"
                ) from None
            except OSError as error:
                raise self._lost(error) from None
            if not count:
                raise self._lost(None)
            return count

    def _lost(self, error: OSError | None) -> ConnectionLost:
        how = "hung up" if error is None else f"is lost ({error.strerror or error})"
        if self._answers > 1:
            return ConnectionLost(f"{self.address} {how}; its log may say why")
        if self._answers:
            return ConnectionLost(
                f"{self.address} {how}: does this listener want a login (--command-config client.properties)?"
            )
        return ConnectionLost(
            f"{self.address} {how} without an answer: is it a Kafka broker, and does this listener want TLS or a login"
            " (--command-config client.properties)?"
        )

    def other_protocol(self, begun: bytes) -> str:
        """Return a description of a peer that does not speak Kafka's protocol. `begun`: its first bytes."""
        if begun == b"HTTP":
            return f"{self.address} speaks HTTP, not Kafka's protocol: give the port of a broker's listener"
        if begun[0] == 0x15 and begun[1] == 3:
            return f"{self.address} speaks TLS: set security.protocol=SSL or SASL_SSL in --command-config client.properties"
        return (
            f"{self.address} does not speak Kafka's protocol (it says {begun!r}): give the port of a broker's listener"
        )


def connect(address: Address, security: Security, timeout_s: float, client_id: str = CLIENT_ID) -> BrokerConnection:
    """Open a connection as client `client_id` and log in. Raises RequestFailed with the reason, within `timeout_s`."""
    deadline_s = time.monotonic() + timeout_s
    sock = _opened(address, security, deadline_s, timeout_s)
    try:
        connection = BrokerConnection(sock, address, client_id)
        connection.frame_bytes_max = FIRST_BYTES_MAX
        try:
            _learn_versions(connection, deadline_s)
        except NoResponse as failure:
            is_http = _speaks_http(address, security)
            raise (ConnectionLost(connection.other_protocol(b"HTTP")) if is_http else failure) from None
        if security.login is not None:
            _log_in(connection, security.login, deadline_s, is_token=security.is_token)
        connection.frame_bytes_max = FRAME_BYTES_MAX
        return connection
    except BaseException:
        sock.close()
        raise


def _speaks_http(address: Address, security: Security) -> bool:
    """Return True if a server that has not answered ApiVersions is one of HTTP. It gets a connection of its own.

    A slow broker takes HTTP_PROBE for the beginning of a frame, and logs nothing when the connection is closed.
    """
    deadline_s = time.monotonic() + HTTP_PROBE_S
    try:
        with _opened(address, security, deadline_s, HTTP_PROBE_S) as sock:
            sock.sendall(HTTP_PROBE)
            sock.settimeout(max(0.001, deadline_s - time.monotonic()))
            return sock.recv(4)[:4] in (b"HTTP", b"<!DO", b"<htm", b"<HTM")
    except (OSError, RequestFailed):
        return False


def _opened(address: Address, security: Security, deadline_s: float, timeout_s: float) -> socket.socket:
    """Open a TCP connection, and TLS where `security` has it. Raises RequestFailed with the reason."""
    sock = _connected(address, deadline_s, timeout_s)
    if security.encryption is None:
        return sock
    try:
        return _encrypted(sock, security.encryption, address, deadline_s)
    except BaseException:
        sock.close()
        raise


def _connected(address: Address, deadline_s: float, timeout_s: float) -> socket.socket:
    error: OSError | None = None
    for family, kind, protocol, _, place in _looked_up(address, deadline_s):
        sock = socket.socket(family, kind, protocol)
        try:
            sock.settimeout(max(0.001, deadline_s - time.monotonic()))
            sock.connect(place)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return sock
        except OSError as failure:
            sock.close()
            error = failure
    if isinstance(error, ConnectionRefusedError):
        raise RequestFailed(
            f"no broker listens on {address}: start one with `ottla start`, or name another with -b HOST:PORT"
        )
    if isinstance(error, TimeoutError):
        raise RequestFailed(
            f"no connection to {address} within {timeout_s:g} s: is the address right, and no firewall between?"
        )
    raise RequestFailed(f"cannot connect to {address}: {error.strerror or error if error else 'it has no address'}")


def _looked_up(address: Address, deadline_s: float) -> list[Any]:
    """Resolve a host name in a daemon thread, because a lookup cannot be interrupted. Raises RequestFailed."""
    found: list[Any] = []
    failed: list[Exception] = []

    def look_up() -> None:
        try:
            found.extend(socket.getaddrinfo(*address, type=socket.SOCK_STREAM))
        except (OSError, UnicodeError) as error:
            failed.append(error)

    thread = threading.Thread(target=look_up, daemon=True)
    thread.start()
    thread.join(max(0.0, deadline_s - time.monotonic()))
    if failed:
        reason = failed[0].strerror if isinstance(failed[0], OSError) else "it is no host name"
        raise RequestFailed(f"the host of {address} is not known: {reason}")
    if not found:
        raise RequestFailed(f"nobody says in time where {address.host} is: use its address, or ask the name server")
    return found


def _encrypted(sock: socket.socket, context: ssl.SSLContext, address: Address, deadline_s: float) -> socket.socket:
    import ssl

    try:
        sock.settimeout(max(0.001, deadline_s - time.monotonic()))
        return context.wrap_socket(sock, server_hostname=address.host)
    except ssl.SSLCertVerificationError as error:
        reason = f"its certificate is refused ({error.verify_message}); ssl.truststore.* names the authority to trust"
    except ssl.SSLError as error:
        reason = f"its listener speaks no TLS, or refuses this client's certificate ({error.reason or error})"
    except TimeoutError:
        reason = "it does not answer; does this listener speak TLS?"
    except OSError as error:
        reason = f"it hung up ({error.strerror or error}); does this listener speak TLS?"
    except ValueError:
        reason = "its host is no name that a certificate can have"
    raise ConnectionLost(f"no TLS connection to {address}: {reason}")


def _learn_versions(connection: BrokerConnection, deadline_s: float) -> None:
    version = _API_VERSIONS
    for _ in range(2):
        connection._send(ApiVersionsRequest(client_software_name="ottla", client_software_version=__version__), version)
        answer = connection.receive(deadline_s - time.monotonic())
        if answer.error_code != ErrorCode.UNSUPPORTED_VERSION:
            break
        known = [each.max_version for each in answer.api_keys if each.api_key == ApiVersionsRequest.api_key]
        version = min(known[0], _API_VERSIONS) if known and known[0] >= 0 else 0
    if answer.error_code:
        raise ConnectionLost(
            f"{connection.address} refuses to say its versions: {ErrorCode.of(answer.error_code).name}"
        )
    connection.versions = {each.api_key: VersionRange(each.min_version, each.max_version) for each in answer.api_keys}


def _log_in(
    connection: BrokerConnection, login: PeerLoginConfig | TokenLogin, deadline_s: float, *, is_token: bool
) -> None:
    """Log in by SaslHandshake (chooses the mechanism) and SaslAuthenticate (carries tokens). Raises RequestFailed."""
    from ottla.server.security.mechanism import LoginFailed
    from ottla.wire.messages.sasl import SaslAuthenticateRequest, SaslHandshakeRequest

    name = login.mechanism
    chosen = connection.ask(SaslHandshakeRequest(mechanism=name), timeout_s=deadline_s - time.monotonic())
    if chosen.error_code:
        offered = ", ".join(chosen.mechanisms) or "no login at all"
        raise RequestFailed(f"{connection.address} does not take sasl.mechanism={name}; it offers {offered}")
    mechanism = _mechanism(login, deadline_s - time.monotonic(), is_token=is_token)
    try:
        token = mechanism.step(b"")
        while not mechanism.is_complete:
            request = SaslAuthenticateRequest(auth_bytes=token)
            answer = connection.ask(request, timeout_s=deadline_s - time.monotonic())
            if answer.error_code:
                raise RequestFailed(f"{connection.address} refuses the login by {name}: {answer.error_message}")
            token = mechanism.step(bytes(answer.auth_bytes))
    except LoginFailed as error:
        raise RequestFailed(f"the login at {connection.address} by {name} failed: {error}") from None


def _mechanism(login: PeerLoginConfig | TokenLogin, timeout_s: float, *, is_token: bool) -> ClientMechanism:
    from ottla.server.config.sasl_rules import PeerLoginConfig

    if not isinstance(login, PeerLoginConfig):
        return login.client(timeout_s)
    if login.mechanism == "PLAIN":
        from ottla.server.security.mechanism import PlainClient

        return PlainClient(login.name, login.password)
    from ottla.server.security.scram import ScramClient

    nonce = secrets.token_urlsafe(24)
    return ScramClient(login.mechanism, login.name, login.password, nonce, with_token=is_token)
