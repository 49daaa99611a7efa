"""In a process of `python -m ottla`: whatever only Linux has raises if it is called, and says so on stderr.

Python imports this at its start where this folder is on PYTHONPATH. `compat_tests/support/portable.py` puts it there.
"""

import ctypes
import os
import select
import socket
import sys
import time

FORBIDDEN = "called what only Linux has: "
CALLS = (
    "copy_file_range",
    "eventfd",
    "fdatasync",
    "getrandom",
    "memfd_create",
    "pidfd_open",
    "posix_fadvise",
    "posix_fallocate",
    "posix_spawn",
    "sched_getaffinity",
    "sched_setaffinity",
    "sendfile",
    "setns",
    "splice",
    "sync",
    "unshare",
)
"""Of os. sendfile is elsewhere, too, and is another function there. preadv and pwritev are, without flags."""

OPTIONS = frozenset(
    getattr(socket, name)
    for name in ("TCP_CORK", "TCP_DEFER_ACCEPT", "TCP_INFO", "TCP_QUICKACK", "TCP_USER_TIMEOUT")
    if hasattr(socket, name)
)
OF_C_LIBRARY = ("connect", "mallopt", "malloc_trim", "prctl", "syscall")
SOL_TLS = 282


def forbid(what):
    print(f"{FORBIDDEN}{what}", file=sys.stderr, flush=True)
    raise AssertionError(FORBIDDEN + what)


def forbid_calls():
    for name in CALLS:
        if hasattr(os, name):
            setattr(os, name, lambda *arguments, name=name, **options: forbid(f"os.{name}"))
    for name in ("preadv", "pwritev"):
        setattr(os, name, without_flags(f"os.{name}", getattr(os, name)))
    clock_gettime = time.clock_gettime
    time.clock_gettime = lambda clock: (
        forbid("CLOCK_BOOTTIME") if clock == time.CLOCK_BOOTTIME else clock_gettime(clock)
    )
    time.pthread_getcpuclockid = lambda thread: forbid("pthread_getcpuclockid")


def without_flags(name, function):
    return lambda descriptor, data, position, flags=0: forbid(name) if flags else function(descriptor, data, position)


def forbid_names_and_symbols():
    """/proc, /sys, and functions of the C library."""

    def look(event, arguments):
        if event == "open" and isinstance(arguments[0], str) and arguments[0].startswith(("/proc/", "/sys/")):
            forbid(arguments[0])
        if event == "ctypes.dlsym" and arguments[1] in OF_C_LIBRARY:
            forbid(f"C's {arguments[1]}")
        if event == "socket.connect" and isinstance(arguments[1], (str, bytes)) and arguments[1][:1] in ("\0", b"\0"):
            forbid("an abstract socket")

    sys.addaudithook(look)
    assert ctypes  # it looks up some symbols itself, when it is imported


def forbid_options_of_sockets():
    kind = socket.socket

    def guarded(method):
        def call(self, level, option, *rest):
            if level == SOL_TLS or (level == socket.IPPROTO_TCP and option in OPTIONS):
                forbid(f"the option {option} of sockets")
            return method(self, level, option, *rest)

        return call

    def send(self, data, flags=0):
        if flags & socket.MSG_MORE:
            forbid("MSG_MORE")
        return plain_send(self, data, flags)

    plain_send = kind.send
    kind.send = send
    kind.getsockopt, kind.setsockopt = guarded(kind.getsockopt), guarded(kind.setsockopt)


def forbid_epoll():
    """Trio may have its own, because on Linux it has nothing else."""
    epoll = select.epoll

    def for_trio(*arguments, **options):
        # Of trio's file, or of what attrs has written for it.
        if "trio" not in sys._getframe(1).f_code.co_filename:
            forbid("epoll")
        return epoll(*arguments, **options)

    select.epoll = for_trio
    import trio._core._io_epoll as trio_epoll

    trio_epoll.EpollIOManager.__init_subclass__ = classmethod(lambda kind: forbid("trio's epoll"))


# OTTLA_GUARDED=1: a broker that is not portable, which shows that the guard works.
if "ottla" in sys.orig_argv and "1" in (os.environ.get("OTTLA_PORTABLE"), os.environ.get("OTTLA_GUARDED")):
    forbid_calls()
    forbid_names_and_symbols()
    forbid_options_of_sockets()
    forbid_epoll()
    print("guarded against what only Linux has", file=sys.stderr, flush=True)
