"""The coordination tree as the active controller uses it: it waits out what is out of reach, and every write is fenced.

While the service cannot be reached, reads are tried again. After a write of which nobody knows whether it happened, the
nodes are read: a multi is done as a whole or not at all, so if they are as it would have left them it was done, and
otherwise it is tried again, under the same conditions.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeVar

import trio

from ottla.replication.cluster import znodes
from ottla.replication.cluster.coordination import (
    ANY_VERSION,
    BadVersion,
    Check,
    Coordination,
    CoordinationUnavailable,
    Create,
    Delete,
    Node,
    NoNode,
    NotEmpty,
    Operation,
    SetData,
    WriteRefused,
)
from ottla.replication.controller.decisions import OPERATIONS_PER_MULTI

T = TypeVar("T")

RETRY_S = 0.1


class Deposed(Exception):
    """Another controller was elected: /controller_epoch has another version."""


class ControllerTree:
    """See the module's docstring. Every method raises SessionExpired when the session is over."""

    def __init__(self, session: Coordination, epoch_version: int) -> None:
        self._session = session
        self.epoch_version = epoch_version

    # ------------------------------------------------------------------ reading

    async def get(self, path: str) -> Node | None:
        (node,) = await self.get_all([path])
        return node

    async def get_all(self, paths: Sequence[str]) -> list[Node | None]:
        return await self._patiently(lambda: self._session.get_all(paths))

    async def children(self, path: str) -> list[str]:
        """The names of a node's children; none if there is no such node."""
        try:
            return await self._patiently(lambda: self._session.children(path))
        except NoNode:
            return []

    async def children_data(self, path: str) -> Mapping[str, Node]:
        try:
            return await self._patiently(lambda: self._session.children_data(path))
        except NoNode:
            return {}

    async def _patiently(self, call: Callable[[], Awaitable[T]]) -> T:
        while True:
            try:
                return await call()
            except CoordinationUnavailable:
                await self._until_available()

    async def _until_available(self) -> None:
        await self._session.until_available()
        await trio.sleep(RETRY_S)  # a service that is back and fails again is not asked without a pause

    # ------------------------------------------------------------------ writing

    async def write(self, operations: Sequence[Operation], *, can_be_refused: bool = False) -> None:
        """Do all, if we are still the controller. Raises Deposed, and what the operations meet.

        Where there is no room for it this waits until there is some, or (`can_be_refused`) raises WriteRefused.
        """
        fenced = [Check(znodes.CONTROLLER_EPOCH, self.epoch_version), *operations]
        while operations:  # none at all: there was only something to tell
            try:
                await self._session.multi(fenced)
                return
            except CoordinationUnavailable as problem:
                if can_be_refused and isinstance(problem, WriteRefused):
                    raise
                await self._until_available()
                # The port promises that a lost write is not done after this read. If it was not done it can be tried
                # again.
                if await self._is_done(operations):
                    return
            except (BadVersion, NoNode) as error:
                if error.path == znodes.CONTROLLER_EPOCH:
                    raise Deposed from error
                raise

    async def _is_done(self, operations: Sequence[Operation]) -> bool:
        nodes = await self.get_all([operation.path for operation in operations])
        return all(map(_shows, nodes, operations))

    async def delete(self, paths: Sequence[str]) -> None:
        """Delete nodes that may be gone already."""
        # A multi fails as a whole if one of its nodes is missing.
        present = [path for path, node in zip(paths, await self.get_all(paths), strict=True) if node is not None]
        for start in range(0, len(present), OPERATIONS_PER_MULTI):
            some = present[start : start + OPERATIONS_PER_MULTI]
            try:
                await self.write([Delete(path) for path in some])
            except NoNode:
                await self.delete(some)  # somebody else has removed one of them: look again

    async def delete_below(self, path: str) -> None:
        """Delete all that is below a node."""
        for name in await self.children(path):
            child = f"{path}/{name}"
            try:
                await self.delete([child])
            except NotEmpty:
                await self.delete_below(child)
                await self.delete([child])


def _shows(node: Node | None, operation: Operation) -> bool:
    """Whether a node is as an operation leaves it."""
    match operation:
        case Create(data=data):
            return node is not None and (node.data, node.version) == (data, 0)  # nobody has written it since
        case SetData(data=data, version=version):
            return node is not None and node.data == data and version in (ANY_VERSION, node.version - 1)
        case Delete():
            return node is None
    return True  # a check leaves nothing behind
