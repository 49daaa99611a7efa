"""Connections of brokers whose files are in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.server.network.transport import PlainTransport
from ottla.server.testing.memory.storage import MemoryFile

if TYPE_CHECKING:
    from ottla.replication.log.storage import FileRegion

PIECE_BYTES = 256 * 1024  # offered at a time, because a socket rarely takes more at once


class MemoryTransport(PlainTransport):
    """Unencrypted connection that sends regions of files without descriptors."""

    __slots__ = ()

    def is_in_memory(self, region: FileRegion, position: int, length: int) -> bool:
        return True

    def read_in_memory(self, region: FileRegion) -> bytearray | None:
        return bytearray(region.read())

    def send_region(self, region: FileRegion, position: int, length: int) -> int:
        assert isinstance(region.file, MemoryFile)
        # Released before this returns: a log cannot grow while a view of it exists.
        with region.file.view_at(position, min(length, PIECE_BYTES)) as view:
            return self.send(view) if view else 0
