"""Pictures of each view of the console, wide and narrow, light and dark: `python -m compat_tests.console.pictures FOLDER`."""

from __future__ import annotations

import re
import sys
import tempfile
from pathlib import Path

from compat_tests.console.browser import NARROW, Browser
from compat_tests.support.brokers import OttlaProcess
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

SIZES = {"wide": (1280, 900), "narrow": NARROW}
SETTINGS = {
    "http.listener": ":0",
    "http.console.write": "true",
    "num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}
LONG = "eu.west.production.payments.authorisation.settled-transactions.v2"
VIEWS = (
    "topics", f"topic/{LONG}", f"records/{LONG}", "records/orders/0", "record/orders/0/1", "groups", "group/classic/shop", "transactions",
    "producers/orders/1", "access", "access/users", "access/quotas", "brokers", "history", "settings", "log", "learn/3", "learn/9", "no-such-view",
)  # fmt: skip


def fill(broker: OttlaProcess) -> tuple[Producer, Consumer]:
    """Make topics, records, a group and a transaction that stays open while the returned clients live."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    for future in admin.create_topics([NewTopic("orders", 3), NewTopic(LONG, 12), NewTopic("a.short-one", 1)]).values():
        future.result(60)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": "till.of.the-shop"})
    producer.init_transactions(60)
    for topic in (LONG, "orders"):
        producer.begin_transaction()
        for number in range(120):
            value = f'{{"order": {number}, "customer": "c-{number % 7}", "lines": [{{"article": "pen", "count": 2}}]}}'
            producer.produce(topic, value, key=f"c-{number % 7}", headers=[("trace", f"00-{number:032x}")])
        producer.commit_transaction(60)
    producer.begin_transaction()
    producer.produce("orders", b"nobody knows yet", partition=1)
    producer.flush(60)
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "shop", "auto.offset.reset": "earliest"})
    consumer.subscribe(["orders"])
    for message in consumer.consume(50, 20):
        consumer.commit(message, asynchronous=False)
    return producer, consumer


def main(folder: Path) -> None:
    """Start a broker and a browser, and write the pictures into `folder`."""
    with tempfile.TemporaryDirectory() as data:
        broker = OttlaProcess(Path(data), SETTINGS)
        broker.start()
        browser = Browser(folder)
        try:
            clients = fill(broker)
            take(browser, re.findall(r"console +(http://\S+)", broker.log)[0])
            del clients
        finally:
            browser.close()
            broker.stop()


def take(browser: Browser, console: str) -> None:
    """Open each view in each size and colour scheme, and keep a picture of it."""
    browser.open(console)
    browser.see("orders")
    browser.run(ACCESS)
    browser.run("location.hash = '#/learn'")
    browser.click("button", "Start a small load")
    for view in VIEWS:
        browser.run("location.hash = arguments[0]", f"#/{view}")
        browser.until(lambda view=view: browser.run(SETTLED, f"#/{view}"), view)
        browser.quiet()
        for name, size in SIZES.items():
            for scheme in ("light", "dark"):
                browser.look(size, scheme)
                browser.run("window.scrollTo(0, 0)")
                browser.picture(f"{re.sub('[^a-z0-9]+', '-', view)}-{name}-{scheme}")


# A user, a rule and a quota, set as the page does it.
ACCESS = """
import("/console/api.js").then(({ post }) => Promise.all([
  post("set-user", { name: "alice", mechanism: "SCRAM-SHA-512", password: "secret" }),
  post("set-quota", { entity: { user: "alice" }, quota: "producer_byte_rate", value: 1048576 }),
  post("add-acl", { resource: "topic", name: "eu.west.production.", pattern: "prefixed", principal: "User:alice", host: "*", operation: "describe-configs", permission: "allow" }),
]));
"""
SETTLED = "return location.hash === arguments[0] && document.querySelector('main').innerText.length > 90"

if __name__ == "__main__":
    main(Path(sys.argv[1]))
