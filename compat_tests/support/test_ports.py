"""Ports that tests choose stay theirs while a broker is away, and few descriptors are spent on that."""

import contextlib
import os
import socket
import sys

import pytest
from compat_tests.support import brokers
from compat_tests.support.brokers import free_port

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere ports are not kept")


@pytest.fixture(autouse=True)
def held(monkeypatch):
    with contextlib.ExitStack() as all_of_them:
        ports = {}
        monkeypatch.setattr(brokers, "_held", ports)
        all_of_them.callback(lambda: [each.close() for each in ports.values()])
        yield ports


def test_a_port_is_kept_from_all_but_servers():
    port = free_port()
    with pytest.raises(OSError), socket.socket() as other:
        other.bind(("127.0.0.1", port))
    for _ in range(2):  # the second is a broker that starts again
        with socket.create_server(("127.0.0.1", port)) as listener, socket.create_connection(("127.0.0.1", port)):
            assert listener.getsockname()[1] == port


def test_no_more_descriptors_are_spent_than_a_process_has(held, monkeypatch):
    monkeypatch.setattr(brokers, "HELD_MAX", 5)
    before = len(os.listdir("/proc/self/fd"))
    ports = [free_port() for _ in range(20)]
    assert list(held) == ports[-5:]
    assert len(os.listdir("/proc/self/fd")) <= before + 5
    with socket.socket() as other:
        other.bind(("127.0.0.1", ports[0]))
