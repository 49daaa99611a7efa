"""A broker with TLS, logins and rules for clients that know nothing of all that: `OTTLA_COMPAT_GUARDED=1`.

They speak plaintext to a port of ours, which the broker advertises as its own. We encrypt, log in as a user, and hand on what
either side says. The user may do everything because rules say so, of every type of resource; it is no super user.
"""

import asyncio
import contextlib
import ssl
import struct
import threading
from pathlib import Path

from compat_tests.support.brokers import BrokerProcess, free_port
from compat_tests.support.guarded import ADMIN, GuardedOttla, password_of
from compat_tests.support.wire_client import WireClient, encode_frame

from ottla.server.dispatch.access import CLUSTER_NAME, AclOperation, ResourceType
from ottla.wire.messages.acls import AclCreation, CreateAclsRequest
from ottla.wire.messages.sasl import SaslAuthenticateRequest, SaslHandshakeRequest

USER = "kcat"  # one of those who have a password for PLAIN
PIECE = 65536
LITERAL, ALLOW = 3, 3
Place = tuple[str, int]


class GuardedForAll(GuardedOttla):
    """`port` is ours. Rules are made at a listener of their own, on which nobody logs in."""

    def __init__(self, directory: Path, settings: dict[str, str]) -> None:
        super().__init__(directory, {"auto.create.topics.enable": "true"} | settings)
        self._own, self._for_rules = free_port(), free_port()
        self._way: Way | None = None

    def command(self) -> list[str]:
        self.port = self.port or free_port()
        rules = f"RULES://{self.host}:{self._for_rules}"
        self.settings |= {
            "listeners": f"SASL_SSL://{self.host}:{self._own},{rules}",
            "advertised.listeners": f"SASL_SSL://{self.host}:{self.port},{rules}",
            "listener.security.protocol.map": "SASL_SSL:SASL_SSL,RULES:PLAINTEXT",
            "super.users": f"User:{ADMIN};User:ANONYMOUS",
        }
        return super().command()

    def address(self, log: str) -> Place | None:
        return (self.host, self.port) if super().address(log) is not None else None

    def wait_until_serving(self) -> BrokerProcess:
        super().wait_until_serving()
        if self._way is None:
            self._allow_everything()
            self._way = Way((self.host, self.port), (self.host, self._own), self.authority)
        return self

    def _allow_everything(self) -> None:
        rules = [
            AclCreation(
                resource_type=kind,
                resource_name=CLUSTER_NAME if kind is ResourceType.CLUSTER else "*",
                resource_pattern_type=LITERAL,
                principal=f"User:{USER}",
                host="*",
                operation=AclOperation.ALL,
                permission_type=ALLOW,
            )
            for kind in ResourceType
            if kind > ResourceType.ANY
        ]
        with WireClient((self.host, self._for_rules), client_id="rules") as client:
            answer = client.ask(CreateAclsRequest(creations=rules), 3)
        assert not any(each.error_code for each in answer.results), answer


class Way:
    """From a port of ours to a broker, as long as this process lives."""

    def __init__(self, ours: Place, target: Place, authority: str) -> None:
        self._ours, self._target = ours, target
        self._context = ssl.create_default_context(cafile=authority)
        self._is_open = threading.Event()
        threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True).start()
        assert self._is_open.wait(30)

    async def _run(self) -> None:
        async with await asyncio.start_server(self._serve, *self._ours, backlog=200) as server:
            self._is_open.set()
            await server.serve_forever()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Until either side ends; a broker that is not there is one that hangs up."""
        with contextlib.closing(writer), contextlib.suppress(OSError, asyncio.IncompleteReadError):
            inner_reader, inner_writer = await asyncio.open_connection(
                *self._target, ssl=self._context, server_hostname="localhost"
            )
            with contextlib.closing(inner_writer):
                await self._log_in(inner_reader, inner_writer)
                ways = [self._pump(reader, inner_writer), self._pump(inner_reader, writer)]
                pumps = [asyncio.ensure_future(each) for each in ways]
                await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
                for each in pumps:
                    each.cancel()

    async def _log_in(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        token = f"\0{USER}\0{password_of(USER)}".encode()
        for request, version in (
            (SaslHandshakeRequest(mechanism="PLAIN"), 1),
            (SaslAuthenticateRequest(auth_bytes=token), 2),
        ):
            writer.write(encode_frame(request, version, 0, "guarding"))
            (length,) = struct.unpack(">i", await reader.readexactly(4))
            await reader.readexactly(length)

    @staticmethod
    async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(PIECE):
                writer.write(data)
                await writer.drain()
