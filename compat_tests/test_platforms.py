"""A broker on systems that lack what Linux with glibc has: each thing is taken away, and clients see no difference."""

import contextlib
import os
import textwrap

import pytest
from compat_tests.support.brokers import OttlaProcess
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaConsumer, KafkaProducer

TAKEN_AWAY = {
    "RWF_NOWAIT": "del os.RWF_NOWAIT",
    "preadv": "del os.preadv, os.RWF_NOWAIT",
    "RWF_NOWAIT on this file system": "os.preadv = refuse",
    "sendfile": "del os.sendfile",
    "sendfile from this file system": "os.sendfile = refuse",
    "MSG_MORE": "del socket.MSG_MORE; socket.__all__.remove('MSG_MORE')",
    "TCP_INFO": "del socket.TCP_INFO; socket.__all__.remove('TCP_INFO')",
    "fdatasync": "del os.fdatasync",
    "O_DIRECTORY": "del os.O_DIRECTORY",
    "CLOCK_BOOTTIME": "del time.CLOCK_BOOTTIME",
    "mallopt": "ctypes.CDLL = refuse",
    "trio's epoll": "import trio._core._io_epoll as io; io.EpollIOManager = type('Other', (), {})",
    "a limit of descriptors that is granted": "resource.getrlimit = lambda what: (1024, 1 << 62)",
}
TAKEN_AWAY["all of that"] = "; ".join(
    TAKEN_AWAY[each] for each in TAKEN_AWAY if each not in ("RWF_NOWAIT", "RWF_NOWAIT on this file system", "sendfile from this file system")
)  # fmt: skip
TAKE_AWAY = """
    import ctypes, errno, os, resource, socket, sys, time

    def refuse(*arguments):
        raise OSError(errno.EINVAL, "Invalid argument")

    if "ottla" in sys.orig_argv:
        {}
        print("taken away", flush=True)
"""


@pytest.fixture(params=list(TAKEN_AWAY))
def broker(request, tmp_path):
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(textwrap.dedent(TAKE_AWAY).format(TAKEN_AWAY[request.param]))
    broker = OttlaProcess(tmp_path, {"log.flush.interval.messages": "10"})
    path = os.pathsep.join(filter(None, [str(tmp_path / "site"), os.environ.get("PYTHONPATH")]))
    broker.inside = ["env", f"PYTHONPATH={path}"]
    broker.start()
    assert "taken away" in broker.log
    yield broker
    broker.stop()


def test_clients_see_no_difference(broker):
    values = [b"small", bytes(200_000), os.urandom(700_000), b"last"]
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    (made,) = admin.create_topics([NewTopic("t", 1, 1)]).values()
    made.result()
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for value in values:
        producer.produce("t", value, partition=0)
    assert producer.flush(60) == 0
    assert read_as_a_group(broker, len(values)) == values

    with contextlib.closing(KafkaProducer(bootstrap_servers=broker.bootstrap, acks="all")) as producer:
        producer.send("t", b"another", partition=0).get(timeout=60)
    consumer = KafkaConsumer("t", bootstrap_servers=broker.bootstrap, group_id="other", auto_offset_reset="earliest")
    with contextlib.closing(consumer):
        assert [next(consumer).value for _ in range(len(values) + 1)] == [*values, b"another"]

    broker.stop()
    broker.restart()
    assert read_as_a_group(broker, 1) == [b"another"]


def read_as_a_group(broker, count):
    settings = {"bootstrap.servers": broker.bootstrap, "group.id": "group", "auto.offset.reset": "earliest"}
    consumer = Consumer(settings | {"enable.auto.commit": False})
    with contextlib.closing(consumer):
        consumer.subscribe(["t"])
        found = []
        while len(found) < count:
            message = consumer.poll(60)
            assert message is not None
            assert not message.error(), message.error()
            found.append(message.value())
        consumer.commit(asynchronous=False)
    return found
