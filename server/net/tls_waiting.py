"""What an encrypted connection waits for: the direction that OpenSSL names, and not what it holds decrypted already."""

from __future__ import annotations

import socket
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import trio

from ottla.server.net.readiness import WAIT_READABLE, WAIT_WRITABLE, Step, Wait

if TYPE_CHECKING:
    from ottla.server.net.readiness import Readiness


class TlsWaiting(ABC):
    """The part of a transport of TLS that waits. A subclass says what a refused receive and a refused send wait for."""

    __slots__ = ()

    socket: socket.socket
    _receive_waits_for: Wait
    _send_waits_for: Wait

    @property
    @abstractmethod
    def holds_input(self) -> bool:
        """Whether there is something to receive that the socket does not tell of."""

    @property
    def _may_receive(self) -> bool:
        # What is held while a receive waits for room to send would be asked for in vain, again and again.
        return self._receive_waits_for is WAIT_READABLE and self.holds_input

    def expect(self, count: int) -> None:  # noqa: B027 - there is nothing to be done
        """Encrypted bytes are more than those of the frame, and `serving` asks what is missing."""

    def _expect(self, count: int) -> None:  # noqa: B027 - most transports cannot do anything about it
        """Whoever receives has no use for fewer bytes than `count`."""

    def serving(
        self, readiness: Readiness, missing: Callable[[], int] | None = None
    ) -> Callable[[Step], Awaitable[Any]]:
        """What serves a step; see `Transport`."""

        async def serve(step: Step) -> Any:
            if not readiness.is_inside_the_wait:
                return await self.serve_in_task(step)

            def encrypted_step() -> Any:
                result = step()
                if result is WAIT_READABLE:
                    if self._may_receive:
                        readiness.poke(self.socket)  # not called at once: others have their turn, too
                    elif missing is not None:
                        self._expect(missing())
                    return self._receive_waits_for
                return self._send_waits_for if result is WAIT_WRITABLE else result

            self._expect(0 if missing is None else missing())
            # What was left while nobody looked.
            if self.holds_input:
                readiness.poke(self.socket)
            return await readiness.serve(self.socket, encrypted_step)

        return serve

    async def serve_in_task(self, step: Step) -> Any:
        """The same in a task that is woken each time."""
        result: Any = WAIT_READABLE
        while type(result) is Wait:
            if result is WAIT_READABLE and self._may_receive:
                await trio.lowlevel.checkpoint()
            else:
                await self._until(self._receive_waits_for if result is WAIT_READABLE else self._send_waits_for)
            result = step()
        return result

    async def until_sendable(self) -> None:
        """Return when a send that was refused may go on."""
        await self._until(self._send_waits_for)

    @property
    def send_waits_for(self) -> Wait:
        """What a send that was refused waits for."""
        return self._send_waits_for

    async def _until(self, direction: Wait) -> None:
        readable = direction is WAIT_READABLE
        await (trio.lowlevel.wait_readable if readable else trio.lowlevel.wait_writable)(self.socket)
