"""A proxy in front of a server, which can lose what one side says, cut connections and refuse new ones."""

import contextlib

import trio


class Proxy:
    """Passes bytes on; `run` in a nursery, then use `address`."""

    def __init__(self, port: int) -> None:
        self._server_port = port
        self._open: set[trio.SocketStream] = set()
        self._is_refusing = False
        self.loses_answers = False
        self.address = ""

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        async with trio.open_nursery() as nursery:
            listeners = await nursery.start(trio.serve_tcp, self._serve, 0)
            self.address = f"127.0.0.1:{listeners[0].socket.getsockname()[1]}"
            task_status.started()

    def cut(self) -> None:
        """Connections break, and new ones break at once, until `mend`."""
        self._is_refusing = True
        self.break_connections()

    def mend(self) -> None:
        self._is_refusing = self.loses_answers = False

    def break_connections(self) -> None:
        for stream in self._open:
            with contextlib.suppress(OSError):
                stream.socket.shutdown(trio.socket.SHUT_RDWR)

    async def _serve(self, client: trio.SocketStream) -> None:
        if self._is_refusing:
            return
        with contextlib.suppress(OSError):
            server = await trio.open_tcp_stream("127.0.0.1", self._server_port)
            self._open |= {client, server}
            async with client, server, trio.open_nursery() as nursery:
                nursery.start_soon(self._pass_on, client, server, nursery.cancel_scope)
                await self._pass_on(server, client, nursery.cancel_scope, answers=True)
            self._open -= {client, server}

    async def _pass_on(
        self, source: trio.SocketStream, sink: trio.SocketStream, scope: trio.CancelScope, answers: bool = False
    ) -> None:
        with contextlib.suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            async for chunk in source:
                if not (answers and self.loses_answers):
                    await sink.send_all(chunk)
        scope.cancel()
