"""What this operating system offers, looked up once, and what stands in for the rest.

    preadv with RWF_NOWAIT      a read that would have to wait for the disk says so (Linux 4.14; musl has the flag since 1.2.5).
                                Without it every page counts as being in memory, and the kernel may wait for some.
    sendfile                    from the page cache to a socket. Without it pieces are read and sent.
    MSG_MORE                    joins a header and the records after it in one packet. Without it they may be two.
    TCP_INFO                    tells that a peer has closed its side although there are unread bytes of it. Without it such a
                                peer is an idle one.
"""

from __future__ import annotations

import os
import socket

CLOSE_WAIT_AND_LATER = frozenset((7, 8, 9, 11))  # Linux's TCP_CLOSE, TCP_CLOSE_WAIT, TCP_LAST_ACK, TCP_CLOSING

RWF_NOWAIT: int | None = getattr(os, "RWF_NOWAIT", None) if hasattr(os, "preadv") else None
SENDFILE = getattr(os, "sendfile", None)
MSG_MORE: int = getattr(socket, "MSG_MORE", 0)
_TCP_INFO: int | None = getattr(socket, "TCP_INFO", None)


def has_closed_its_side(sock: socket.socket) -> bool:
    """Whether the peer of a TCP connection will send nothing more; False if the system does not tell."""
    if _TCP_INFO is None:
        return False
    try:
        return sock.getsockopt(socket.IPPROTO_TCP, _TCP_INFO, 1)[0] in CLOSE_WAIT_AND_LATER
    except OSError:
        return False  # no TCP connection
