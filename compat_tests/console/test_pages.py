"""The console in Chromium: each view, wide and narrow, light and dark, by keyboard, and with records that mean harm.

Each test leaves pictures of what it saw in OTTLA_SCREENSHOTS, or in a temporary folder.
"""

from __future__ import annotations

import csv
import itertools
import json
import re
import urllib.request
from collections.abc import Iterator
from concurrent.futures import Future

import pytest
from compat_tests.conftest import KEEP_EVERYTHING
from compat_tests.registry.conftest import RegistryProcess
from compat_tests.support.brokers import OttlaProcess, free_port, serve_until
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

selenium = pytest.importorskip("selenium")

from compat_tests.console.browser import CHROMIUM, DRIVER, NARROW, Accessible, Browser
from compat_tests.console.pages import agree, produce
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

FOR_README = (1000, 740)
pytestmark = pytest.mark.skipif(not (CHROMIUM and DRIVER), reason="chromium and chromedriver are not on this machine")


BILL = {"type": "record", "name": "shop.Bill", "fields": [{"name": "customer", "type": "string"}]}


def asked(url: str, method: str, path: str, body: object) -> None:
    data = json.dumps(body).encode()
    kind = {"Content-Type": "application/vnd.schemaregistry.v1+json"}
    urllib.request.urlopen(urllib.request.Request(url + path, data, kind, method=method), timeout=60).close()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory, opening: Future[Browser]) -> Iterator[OttlaProcess]:
    port = free_port()
    settings = {
        "http.console.schema.registry": f"http://127.0.0.1:{port}",
        "http.listener": ":0",
        "http.console.write": "true",
        "num.partitions": "1",
        "group.initial.rebalance.delay.ms": "0",
        "offsets.topic.num.partitions": "2",
        "transaction.state.log.num.partitions": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
    }
    broker = OttlaProcess(tmp_path_factory.mktemp("console"), settings)
    broker.start()
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    for future in admin.create_topics([NewTopic("orders", 12), NewTopic("hostile", 1), NewTopic("busy", 2)]).values():
        future.result(60)
    registry = RegistryProcess(broker.bootstrap, "--listen", f"127.0.0.1:{port}", "--alone").wait()
    # Imported, because the records name schema 5.
    asked(registry.url, "PUT", "/mode/bills-value", {"mode": "IMPORT"})
    asked(registry.url, "POST", "/subjects/bills-value/versions", {"schema": json.dumps(BILL), "id": 5, "version": 1})
    asked(registry.url, "PUT", "/mode/bills-value", {"mode": "READWRITE"})
    yield broker
    registry.stop()
    broker.stop()


def test_topics_and_one_topic_as_a_picture(browser: Browser, console: str, broker: OttlaProcess) -> None:
    browser.open(console)
    browser.see("orders", "hostile", "1 broker, all partitions in sync")
    browser.picture("topics")
    browser.click("main a", "orders")
    browser.see("Replicas", "Partitions")
    assert browser.run("return document.querySelectorAll('.picture .cell.leader').length") == 12
    assert "leader is broker " in browser.run("return document.querySelector('.picture li').textContent")
    browser.picture("topic")
    produce(broker, "orders", *[f"order {number}" for number in range(20)])
    browser.until(
        lambda: browser.run("return document.querySelector('.facts').textContent").find("here20") > 0, "20 records"
    )


def test_only_the_topics_asked_for_are_listed(browser: Browser, console: str) -> None:
    browser.open(console)
    browser.see("orders", "hostile")
    browser.fill("#contains", "HOST")
    browser.until(lambda: "orders" not in browser.text and "hostile" in browser.text, "one topic is left")
    browser.fill("#contains", "no such name")
    browser.see("No such topic")


def test_brokers(browser: Browser, console: str) -> None:
    browser.open(f"{console}#/brokers")
    browser.see("controller", "this one", "Log directories", "PLAINTEXT://127.0.0.1", "Free")
    browser.picture("brokers")


# Replaces the answer to /api/history by figures of one hour: waves with a gap, no values, one value, zeros, and a disk.
HOUR = """
const ask = window.fetch;
const wave = (high) => Array.from({ length: 360 }, (_, index) => (index > 200 && index < 230 ? null : Math.round(high * (1 + Math.sin(index / 20)) / 2)));
const flat = (value) => Array(360).fill(value);
window.fetch = async (address, options) => {
  if (!address.startsWith("/api/history")) return ask(address, options);
  const figures = { recordsIn: wave(12345), bytesIn: wave(7 * 1024 ** 2), bytesOut: flat(0), lag: flat(null), loopDelayMs: wave(3.7),
    produceTimeMs: [...flat(null).slice(1), 4.25], cpuPercent: wave(87) };
  return new Response(JSON.stringify({ stepMs: 10000, endMs: 1764331200000, figures,
    directories: [{ path: "/srv/<b>ottla</b>", totalBytes: 100 * 1024 ** 3, free: wave(60 * 1024 ** 3) }] }));
};
"""
DRAWN = """
return [...document.querySelectorAll(".charts figure")].map((each) => [each.querySelector("strong").textContent,
  each.querySelectorAll("polyline").length, [...each.querySelectorAll(".grid + text")].map((tick) => tick.textContent), each.querySelector(".now").textContent]);
"""


def test_the_last_hour_is_drawn_with_axes_and_units(browser: Browser, console: str, broker: OttlaProcess) -> None:
    browser.open(console)
    browser.see("orders")
    browser.run(HOUR)
    browser.run("location.hash = '#/history'")
    browser.see("The last hour of this broker", "records/s", "−30 min", "Removed records")
    drawn = {title: rest for title, *rest in browser.run(DRAWN)}
    assert drawn["Records in"][:2] == [2, ["0", "5,000", "10,000", "15,000"]]
    assert drawn["Bytes in"][:2] == [2, ["0 B/s", "2.0 MiB/s", "4.0 MiB/s", "6.0 MiB/s", "8.0 MiB/s"]]
    assert drawn["Bytes out"] == [1, ["0 B/s", "1 B/s"], "0 B/s"]
    assert drawn["Consumer lag"][0::2] == [0, "no value"]
    assert drawn["Produce time p99"][0::2] == [1, "4.3"]
    assert drawn["Event loop delay p99"][1][-1] == "4"
    assert drawn["Free disk space"][1][-1] == "100 GiB"
    browser.see("/srv/<b>ottla</b>")
    label = "return document.querySelector('.charts svg').getAttribute('aria-label')"
    assert browser.run(label).startswith("Records in in records/s: ")
    browser.picture("history")


def test_a_topic_tells_which_records_were_removed(browser: Browser, console: str, broker: OttlaProcess) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic("trimmed", 1, config=KEEP_EVERYTHING)])["trimmed"].result(60)
    produce(broker, "trimmed", *[f"old {number}" for number in range(7)], timestamp=1_764_331_200_000)
    admin.delete_records([TopicPartition("trimmed", 0, 5)])[TopicPartition("trimmed", 0)].result(60)
    browser.open(f"{console}#/topic/trimmed")
    browser.see("Removed records", "DeleteRecords")
    browser.picture("removed")
    row = browser.run("return [...document.querySelectorAll('main table')].at(-1).querySelector('tbody').innerText")
    assert re.search(r"DeleteRecords\s+5\s+1\s+2025-11-2\d", row), row
    explain = "const done = arguments[1]; import('/console/removals.js').then(({ explained }) => done(explained(arguments[0])))"
    both = "retention.bytes=1048576 and retention.ms=604800000"
    told = browser.driver.execute_async_script(explain, both)
    assert told == "retention.bytes=1048576 (1.0 MiB) and retention.ms=604800000 (7 days)"
    admin.delete_topics(["trimmed"])["trimmed"].result(60)
    browser.run("location.hash = '#/history'")
    browser.see("deletion of the topic", "trimmed")


HOSTILE = (
    "<script>window.harmed = 1</script><img src=x onerror='window.harmed = 2'>",
    '{"html": "</pre><b>bold</b>", "number": 12345678901234567890}',
    "\x1b[31mred\x1b[0m \u202egnp.exe \u200b",
    "javascript:alert(1)",
)


def test_records_that_mean_harm_are_shown_and_never_run(browser: Browser, console: str, broker: OttlaProcess) -> None:
    produce(broker, "hostile", *HOSTILE, headers=[("<i>name</i>", b"<svg onload='window.harmed = 3'>")])
    produce(broker, "hostile", b"\xff\xfe\x00", b"v" * 100_000, key="<u>key</u>")
    browser.open(f"{console}#/records/hostile/0")
    browser.see(
        "<script>window.harmed = 1</script>", "12345678901234567890", "</pre><b>bold</b>", "<i>name</i>", "ff fe 00"
    )
    assert "\x1b" not in browser.text and "\u202e" not in browser.text
    browser.see("ESC[31mred", "U+202E", "<u>key</u>", "cut, 98 KiB in all")
    browser.picture("records")
    browser.click(".record a", "Show all of it")
    browser.see("Record 5 of hostile 0", "98 KiB")
    browser.until(lambda: browser.text.count("v" * 5000), "the value is shown whole")
    assert browser.run("return window.harmed") is None
    assert (
        browser.run(
            "return document.querySelectorAll('main b, main i, main u, main svg, main script, main img').length"
        )
        == 0
    )


def test_records_in_avro_are_decoded_or_say_why_not(browser: Browser, console: str, broker: OttlaProcess) -> None:
    produce(broker, "hostile", b"\0\0\0\0\5\x18<b>Kafka</b>", b"\0\0\0\0\5\x7f", b"\0\0\0\0\6\0")
    browser.open(f"{console}#/records/hostile/0")
    browser.see(
        '{"customer":"<b>Kafka</b>"}', "schema 5, shop.Bill", "cannot be decoded", "00 00 00 00 06 00", "status 404"
    )
    browser.picture("avro")


MONEY = 'syntax = "proto3"; package bank; message Money { int32 cents = 1; }'
PRICE = (
    'syntax = "proto3"; package shop; import "money.proto"; message Price { string article = 1; bank.Money money = 2; }'
)


def test_records_in_protobuf_and_json_schema_are_decoded(browser: Browser, console: str, broker: OttlaProcess) -> None:
    registry = broker.settings["http.console.schema.registry"]
    asked(registry, "POST", "/subjects/money/versions", {"schemaType": "PROTOBUF", "schema": MONEY})
    reference = {"name": "money.proto", "subject": "money", "version": 1}
    body = {"schemaType": "PROTOBUF", "schema": PRICE, "references": [reference]}
    asked(registry, "POST", "/subjects/prices-value/versions", body)
    titled = {"schemaType": "JSON", "schema": json.dumps({"title": "Parcel", "type": "object"})}
    asked(registry, "POST", "/subjects/parcels-value/versions", titled)

    def framed(subject: str, data: bytes) -> bytes:
        with urllib.request.urlopen(f"{registry}/subjects/{subject}/versions/1", timeout=60) as answer:
            return b"\0" + int(json.load(answer)["id"]).to_bytes(4, "big") + data

    produce(broker, "hostile", framed("prices-value", b"\0\x0a\x03pen\x12\x02\x08\x63"))
    produce(broker, "hostile", framed("parcels-value", b'{"kilos": 3}'))
    browser.open(f"{console}#/records/hostile/0")
    browser.see('{"article":"pen","money":{"cents":99}}', "shop.Price", '{"kilos": 3}', "Parcel")


FIRST = (
    "return [...document.querySelectorAll('.record')].slice(0, 3).map((each) => each.innerText.replace(/\\s+/g, ' '))"
)


def test_records_of_all_partitions_come_newest_first_and_filtered(
    browser: Browser, console: str, broker: OttlaProcess
) -> None:
    for number in range(4):
        produce(
            broker, "busy", *[f"busy {number} {each}" for each in range(30)], partition=number % 2, key=f"k{number}"
        )
    browser.open(f"{console}#/records/busy")
    browser.see("50 records, the newest first")
    assert [re.search(r"p(\d) (\d+) .*(k\d) (busy.*)", each).groups() for each in browser.run(FIRST)] == [
        ("1", str(59 - each), "k3", f"busy 3 {29 - each}") for each in range(3)
    ]  # fmt: skip
    assert "k1" not in browser.text
    browser.click("button", "More")
    browser.see("100 records, the newest first", "k1")
    browser.fill("#contains", "BUSY 11")
    browser.click("form button", "Show")
    browser.see("No match")
    browser.fill("#contains", "busy 1 1")
    browser.click("form button", "Show")
    browser.see("11 matches in 120 records")
    browser.click("summary", "More filters")
    browser.fill("#in-key", "k0")
    browser.click("form button", "Show")
    browser.see("No record that is asked for meets the conditions")
    browser.fill("#contains", "")
    browser.click("form button", "Show")
    browser.see("30 matches in 120 records")
    browser.fill("#in-key", "")
    browser.find("#from").send_keys("an offset")
    browser.find("#partition").send_keys("0")
    browser.fill("#offset", "40")
    browser.click("form button", "Show")
    browser.see("20 records, the oldest first")
    assert "busy 2 10" in browser.run(FIRST)[0]
    browser.fill("#in-key", "k2")
    browser.fill("#contains", "busy 2 1")
    browser.click("form button", "Show")
    browser.see("10 matches in 20 records")
    address = browser.run("return location.href")
    browser.open(address)
    browser.see("10 matches in 20 records")
    assert browser.run("return document.querySelector('#in-key').value") == "k2"


# Merges three partitions with interleaved timestamps; the simulated broker answers with at most 40 records at a time.
MERGED = """
const done = arguments[0];
import("/console/merge.js").then(async ({ Merge }) => {
  const asked = [];
  const ask = async ({ partition, from, until, limit }) => {
    asked.push(partition);
    const end = Math.min(Number(until), Number(from) + Math.min(limit, 40));
    const records = Array.from({ length: end - from }, (_, index) => ({ offset: Number(from) + index, timestamp: 3 * (Number(from) + index) + partition }));
    return { records, next: end, isAtEnd: end >= until, scanned: { records: records.length, bytes: 1 } };
  };
  const places = () => [0, 1, 2].map((index) => ({ index, from: 10, until: 110 }));
  const times = (page) => page.map((each) => each.timestamp);
  const found = {};
  for (const isNewestFirst of [true, false]) {
    const merge = new Merge(places(), ask, { isNewestFirst, isSearch: false });
    const pages = [await merge.next(250, 1000), await merge.next(250, 1000)];
    found[isNewestFirst] = [pages.map(times).flat(), merge.isDone, merge.scanned];
  }
  const bounded = new Merge(places(), ask, { isNewestFirst: false, isSearch: false });
  asked.length = 0;
  found.partly = [(await bounded.next(500, 2)).length, asked.length, bounded.isDone, (await bounded.next(500, 1000)).length, bounded.isDone];
  done(found);
});
"""


def test_records_of_partitions_are_merged_by_their_times_and_within_a_number_of_questions(
    browser: Browser, console: str
) -> None:
    browser.open(console)
    browser.see("orders")
    found = browser.driver.execute_async_script(MERGED)
    assert found["false"] == [list(range(30, 330)), True, 300]
    assert found["true"] == [list(range(329, 29, -1)), True, 300]
    assert found["partly"] == [80, 2, False, 220, True]


# Puts the names and contents of downloads, and copied texts, into window.saved instead of files and the clipboard.
CATCH = """
window.saved = [];
URL.createObjectURL = (blob) => { blob.text().then((text) => window.saved.push(text)); return "blob:" + location.origin + "/none"; };
HTMLAnchorElement.prototype.click = function () { window.saved.push(this.download); };
Object.defineProperty(navigator, "clipboard", { value: { writeText: async (text) => window.saved.push(text) } });
"""


def test_records_are_copied_and_saved_as_json_and_csv(browser: Browser, console: str, broker: OttlaProcess) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic("saved", 1)])["saved"].result(60)
    produce(broker, "saved", '{"number": 12345678901234567890}', "=1+1", headers=[("a", b"1"), ("b", None)])
    produce(broker, "saved", "long, " * 1000, b"\xff\0", key='a "key"')
    browser.open(f"{console}#/records/saved")
    browser.see("4 records, the newest first")
    browser.run(CATCH)
    browser.click("button", "Download JSON")
    browser.until(lambda: browser.run("return window.saved.length") == 2, "name and content are saved")
    name, text = browser.run("return window.saved.splice(0).sort()")[::-1]
    if name != "saved.json":
        name, text = text, name
    saved = json.loads(text)
    assert (name, [each["offset"] for each in saved]) == ("saved.json", [3, 2, 1, 0])
    assert saved[3]["value"] == {"number": 12345678901234567890} and saved[3]["headers"] == [["a", "1"], ["b", None]]
    assert (saved[1]["key"], saved[1]["value"] == "long, " * 1000, saved[0]["valueForm"]) == ('a "key"', True, "hex")
    browser.click("button", "Download CSV")
    browser.until(lambda: browser.run("return window.saved.length") == 2, "name and content are saved")
    [text] = [each for each in browser.run("return window.saved.splice(0)") if each != "saved.csv"]
    rows = list(csv.reader(text.splitlines()))
    assert rows[0] == ["partition", "offset", "timestamp", "key", "value", "headers"]
    assert [(each[3], each[4][:7]) for each in rows[1:]] == [
        ('a "key"', "ff 00"),
        ('a "key"', "long, l"),
        ("", "'=1+1"),
        ("", '{"numbe'),
    ]
    browser.click("button", "Copy as JSON")
    browser.see("JSON of 4 records is copied.")
    browser.click(".record a", "1")
    browser.see("Record 1 of saved 0", "=1+1", "ottla consume saved -p 0 -o 1 -n 1")
    browser.click("button", "Copy the value")
    browser.see("The value is copied.")
    assert browser.run("return window.saved.at(-1)") == "=1+1"
    browser.picture("record")
    browser.click("main a", "Next →")
    browser.see("Record 2 of saved 0")
    browser.run("location.hash = '#/record/saved/0/70'")
    browser.see("No record has this offset", "offsets 0 to 3")


def test_records_are_followed_live(browser: Browser, console: str, broker: OttlaProcess) -> None:
    browser.open(f"{console}#/records/busy/1")
    browser.click("form button", "Follow live")
    browser.see("Following partition 1")
    browser.until(lambda: browser.run("return document.querySelector('p[role=status] .live') !== null"), "it follows")

    def news() -> bool:
        # The broker may not have begun to follow when the first of these is written.
        produce(broker, "busy", "news", partition=1)
        return "news" in browser.text

    browser.until(news, "a new record is shown")
    browser.picture("live")
    browser.click("form button", "Stop following")
    browser.see("Follow live")


@pytest.fixture(scope="module")
def reader(broker: OttlaProcess) -> Iterator[Consumer]:
    """The only member of a group that is three records behind. Nobody polls it while browsers look."""
    produce(broker, "orders", "one", "two", "three", partition=0)
    patient = {"enable.auto.commit": False, "max.poll.interval.ms": 3_600_000}
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "shop <b>"} | patient)
    consumer.subscribe(["orders"])
    serve_until(consumer, consumer.assignment, "partitions are assigned", 60)
    _, end = consumer.get_watermark_offsets(TopicPartition("orders", 0), 60)
    consumer.commit(offsets=[TopicPartition("orders", 0, end - 3)], asynchronous=False)
    yield consumer
    consumer.close()


def test_a_group_with_its_lag_and_its_last_rebalance(browser: Browser, console: str, reader: Consumer) -> None:
    browser.open(f"{console}#/groups")
    browser.see("shop <b>", "Stable")
    browser.picture("groups")
    browser.click("main a", "shop <b>")
    browser.see("Last rebalance", "is new", "orders 0, 1, 2", "Records behind: 3 now")
    browser.picture("group")
    assert browser.run("return document.querySelector('svg[role=img]').getAttribute('aria-label')").startswith(
        "Records behind"
    )


def test_settings_with_what_they_mean(browser: Browser, console: str) -> None:
    browser.open(f"{console}#/settings")
    browser.fill("#contains", "num.partitions")
    browser.until(
        lambda: "offsets.topic.num.partitions" in browser.text and "log.dirs" not in browser.text, "few are left"
    )
    browser.click("summary")
    browser.see("changed by a restart")
    browser.picture("settings")
    browser.fill("#contains", "socket.request.max.bytes")
    browser.see("104857600 (100 MiB)")
    browser.find("#contains").clear()
    browser.click("#changed")
    browser.see("listeners", "log.dirs")


def test_a_record_is_produced_where_java_and_librdkafka_would_put_it(
    browser: Browser, console: str, broker: OttlaProcess
) -> None:
    placed = []
    producer = Producer({"bootstrap.servers": broker.bootstrap, "partitioner": "murmur2"})
    producer.produce(
        "orders", b"by librdkafka", key="a key", on_delivery=lambda _, message: placed.append(message.partition())
    )
    assert producer.flush(60) == 0
    browser.open(f"{console}#/records/orders/{placed[0]}")
    browser.click("#produce summary")
    browser.fill("#key", "a key")
    browser.fill("#value", "by the console <b>")
    browser.fill("#headers", "trace: 1")
    browser.picture("produce")
    browser.click("#produce button", "Produce")
    browser.see(f"Written to partition {placed[0]} at offset", "by librdkafka", "by the console <b>", "trace")


def open_retention(browser: Browser, console: str) -> None:
    browser.open(f"{console}#/settings/topic/busy")
    browser.fill("#contains", "retention.ms")
    browser.click("summary .mono", "retention.ms")


def take_back(browser: Browser) -> None:
    browser.click("details[open] button", "Back to the default")
    agree(browser)
    browser.see("retention.ms is as by default")


def test_a_setting_of_a_topic_is_changed_and_taken_back(browser: Browser, console: str) -> None:
    open_retention(browser, console)
    browser.fill("[id='set-retention.ms']", "soon")
    browser.click("details[open] button", "Set")
    agree(browser)
    browser.until(lambda: "retention.ms" in browser.find("#notice").text, "the page shows the broker's refusal")
    browser.fill("[id='set-retention.ms']", "123456")
    browser.click("details[open] button", "Set")
    assert agree(browser) == "Set retention.ms to “123456”?"
    browser.see(
        "retention.ms is changed",
        "123456 (2 min 3 s)",
        "this topic",
        "ottla configs topic busy --set retention.ms=123456",
    )
    take_back(browser)
    assert all("409" in each for each in browser.complaints())  # the refusal


@pytest.mark.parametrize("token", ["of-somebody-else", "%E0%A4%A"])
def test_a_wrong_token_in_a_link_locks_nobody_out(browser: Browser, console: str, token: str) -> None:
    browser.open("about:blank")
    browser.open(f"{console}#token={token}")
    browser.see("orders")
    assert "token" not in browser.run("return location.href")
    open_retention(browser, console)
    take_back(browser)


COMMITTED = {
    "Commit": ("__consumer_offsets", "committed"),
    "Delivery semantics": ("At most once", "their successors would begin at"),
    "Guarantees": ("min.insync.replicas", "Each partition is on one broker"),
}
"""Lessons of the Learn tab about committed offsets, with texts that each of them shows."""


def test_learning_goes_step_by_step_on_a_load_that_a_click_starts(browser: Browser, console: str) -> None:
    browser.open(f"{console}#/learn")
    browser.see("A topic is a named stream", "Here and now")
    browser.click("button", "Start a small load")
    browser.see("Writing to ottla-learn, 1 reader", "the newest record")
    browser.picture("learn-topic")
    words = (
        "Partition",
        "Offset",
        "Discovery",
        "Key",
        "Replication",
        "Leader",
        "ISR",
        "Acks",
        "Idempotence",
        "Consumer",
        "Group",
    )
    for word in words:
        browser.click(".lesson a", f"{word} →")
        browser.until(lambda word=word: browser.find("#lesson").text == word, word)
        browser.until(lambda: len(browser.find(".shown-here").text) > len("Here and now") + 10, f"{word} is shown")
        if word == "Offset":
            browser.until(
                lambda: len(browser.driver.find_elements(By.CSS_SELECTOR, ".tape .cell")) > 12, "some records"
            )
            browser.look(FOR_README)
            browser.picture("learn-offset")  # which docs/console.png is
            browser.look()
    browser.see("ottla-learn-readers")
    browser.click(".lesson a", "Rebalance →")
    browser.click("button", "Add a reader")
    browser.see("2 readers", "Stable")
    rows = "return document.querySelectorAll('.shown-here tbody tr').length"
    browser.until(lambda: browser.run(rows) == 2 and "ottla-learn 1" in browser.text, "both have their share")
    browser.see("after generation 1: member", "is new")
    browser.picture("learn-rebalance")
    browser.click("button", "Remove a reader")
    browser.see("1 reader;")
    for word, shown in COMMITTED.items():
        browser.click(".lesson a", f"{word} →")
        browser.see(*shown)
    browser.click(".lesson a", "Retention →")
    browser.see("retention.ms", "600000")
    browser.open(f"{console}#/learn/delivery-semantics")  # as lessons of the course link to it
    browser.until(lambda: browser.find("#lesson").text == "Delivery semantics", "a word is a link")
    browser.click("button", "Stop the load")
    browser.see("Start a small load")


# Lowers the high watermarks in answers about topics, as if records had been written between this answer and the next.
STALE = """
const ask = window.fetch;
window.fetch = async (address, options) => {
  const answer = await ask(address, options);
  if (!address.startsWith("/api/topic?")) return answer;
  const topic = await answer.json();
  for (const each of topic.partitions) each.highWatermark -= 3;
  return new Response(JSON.stringify(topic));
};
"""
TAPES = "return [...document.querySelectorAll('.tape')].map((each) => [...each.children].map((cell) => Number(cell.textContent)))"


def test_the_next_offset_of_a_lesson_follows_the_last_record_whatever_was_written_meanwhile(
    browser: Browser, console: str, broker: OttlaProcess
) -> None:
    produce(broker, "ottla-learn", *[f"sale {number}" for number in range(40)], partition=0)
    browser.open(console)
    browser.see("orders")
    browser.run(STALE)
    browser.run("location.hash = '#/learn/3'")
    browser.until(lambda: any(len(each) > 10 for each in browser.run(TAPES)), "offsets are shown")
    tapes = [each for each in browser.run(TAPES) if len(each) > 1]
    assert [each[-1] for each in tapes] == [each[-2] + 1 for each in tapes]
    browser.look(NARROW)
    browser.until(lambda: browser.run(IS_ON_SCREEN, ".tape .cell.next"), "the cell to watch is on a phone's screen")


IS_ON_SCREEN = """
const place = document.querySelector(arguments[0]).getBoundingClientRect();
return place.left >= 0 && place.right <= innerWidth && place.top >= 0 && place.bottom <= innerHeight;
"""
LONG = "eu.west.production.payments.authorisation.settled-transactions.v2"
# Returns the number of lines that each piece of a name takes; a piece has no place to break.
PIECES = """
const link = [...document.querySelectorAll("tbody th a")].find((each) => each.textContent === arguments[0]);
return [...link.childNodes].filter((each) => each.nodeType === Node.TEXT_NODE).map((each) => {
  const range = document.createRange();
  range.selectNodeContents(each);
  return range.getClientRects().length;
});
"""


def test_on_a_phone_names_break_at_dots_and_the_state_is_seen(
    browser: Browser, console: str, broker: OttlaProcess
) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(LONG, 1)])[LONG].result(60)
    browser.look(NARROW)
    browser.open(console)
    browser.see(LONG)
    pieces = browser.run(PIECES, LONG)
    assert len(pieces) == 8 and set(pieces) == {1}
    assert browser.run(IS_ON_SCREEN, "tbody td[data-label=State]")
    for size in (NARROW, FOR_README):
        browser.look(size)
        assert browser.run("const nav = document.querySelector('nav'); return nav.scrollWidth <= nav.clientWidth")
        assert browser.run(IS_ON_SCREEN, "#nav li:last-child a")
    admin.delete_topics([LONG])[LONG].result(60)
    browser.open(f"{console}#/topic/{LONG}")
    browser.see("Nothing is at this address", "UNKNOWN_TOPIC_OR_PARTITION", "All topics")
    assert all("404" in each for each in browser.complaints())


@pytest.mark.parametrize("address", ["no-such-view", "toString", "topic/%E0%A4%A"])
def test_a_wrong_address_says_so(browser: Browser, console: str, address: str) -> None:
    browser.open(console)
    browser.see("orders")
    browser.run("location.hash = arguments[0]", f"#/{address}")
    browser.see("Wrong address", f"The console has no view #/{address}.")
    browser.click("main a", "All topics")
    browser.see("orders")


# Draws a list again. What was scrolled or open stays so, and no change is reported while text in the list is selected.
REDRAWN = """
const done = arguments[0];
import("/console/dom.js").then(({ age, changes, h, refill }) => {
  const list = h("div"), isNew = changes(list);
  const draw = () => refill(list, h("div", { "data-key": "wide", class: "scroll" }, h("canvas", { width: 3000 })),
    h("details", { "data-key": "more" }, h("summary", {}, "more"), "text"));
  document.getElementById("main").append(list);
  draw();
  list.firstChild.scrollLeft = 70;
  list.lastChild.open = true;
  draw();
  const found = [list.firstChild.scrollLeft, list.lastChild.open, isNew(1), isNew(1)];
  getSelection().selectAllChildren(list);
  found.push(isNew(2));
  getSelection().removeAllRanges();
  found.push(isNew(2), ...[59_000, 61_000, 7_260_000, 3_600_000, 4 * 86_400_000, 90_000_000].map(age));
  list.remove();
  done(found);
});
"""


def test_nothing_jumps_when_a_list_is_drawn_again(browser: Browser, console: str) -> None:
    browser.open(console)
    browser.see("orders")
    found = browser.driver.execute_async_script(REDRAWN)
    assert found == [70, True, True, False, False, True, "59 s", "1 min 1 s", "2 h 1 min", "1 h", "4 days", "1 day 1 h"]


def test_the_log_and_the_event_loop(browser: Browser, console: str) -> None:
    browser.open(f"{console}#/log")
    browser.see("ottla.", "Microseconds late on average")
    browser.picture("log")


HEADER = [
    ("link", each)
    for each in (
        "Skip to content",
        "ottla",
        "Topics",
        "Groups",
        "Transactions",
        "Schemas",
        "Access",
        "Brokers",
        "History",
        "Settings",
        "Log",
        "Learn",
    )
]
# Heading, name and controls (role, name) of each view. The controls are in order; others may stand between them.
VIEWS = {
    "topics": ("Topics", "Topics", [("searchbox", "Name contains"), ("checkbox", "Internal topics"), ("DisclosureTriangle", "Create a topic"), ("region", "Topics"), ("link", "busy")]),
    "topic/busy": (
        "busy",
        "Topic busy",
        [
            ("link", "Records"),
            ("link", "Settings"),
            ("region", "Partitions"),
            ("link", "0, records of the partition"),
            ("link", "1, records of the partition"),
            ("link", "1 producer of partition 1"),
            ("DisclosureTriangle", "Change this topic"),
        ],
    ),
    "records/hostile/0": (
        "hostile",
        "Records of hostile",
        [
            ("link", "Partitions and replicas"),
            ("combobox", "Partition"),
            ("combobox", "Begin with"),
            ("searchbox", "Contains"),
            ("combobox", "Show as"),
            ("button", "Show"),
            ("button", "Follow live"),
            ("DisclosureTriangle", "More filters"),
            ("DisclosureTriangle", "Produce a record"),
        ],
    ),
    "record/orders/0/0": (
        "Record 0 of orders 0",
        "Record 0 of orders 0",
        [
            ("link", "Records"),
            ("link", "Topic"),
            ("combobox", "Show as"),
            ("button", "Copy the value"),
            ("button", "Copy as JSON"),
            ("button", "Download the value"),
            ("link", "Next →"),
        ],
    ),
    "groups": ("Groups", "Groups", [("searchbox", "Name contains"), ("region", "Groups"), ("link", "shop <b>")]),
    "group/classic/shop%20%3Cb%3E": (
        "shop <b>",
        "Group shop <b>",
        [
            ("region", "Members"),
            ("region", "Offsets"),
            ("link", "orders"),
            ("DisclosureTriangle", "Change this group"),
        ],
    ),
    "transactions": (
        "Transactions",
        "Transactions",
        [("searchbox", "Id contains"), ("region", "Transactions"), ("link", "busy 1, producers of the partition")],
    ),
    "producers/busy/1": (
        "Producers of busy 1",
        "Producers of busy 1",
        [("link", "Topic"), ("link", "Records"), ("region", "Producers")],
    ),
    "schemas": ("Schemas", "Schemas", [("searchbox", "Name begins with"), ("region", "Subjects"), ("link", "bills-value"), ("DisclosureTriangle", "Register a schema")]),
    "subject/bills-value": (
        "bills-value",
        "Schemas of bills-value",
        [("combobox", "Compatibility"), ("button", "Set"), ("button", "As all subjects"),
         ("DisclosureTriangle", "Register the next version"), ("button", "Delete version 1"), ("button", "Delete all versions")],
    ),
    "access": ("Access", "Access", [("link", "Users"), ("link", "Quotas"), ("searchbox", "Contains"), ("DisclosureTriangle", "Add a rule")]),
    "access/users": ("Access", "Access", [("link", "Rules"), ("searchbox", "Contains"), ("DisclosureTriangle", "Add a user, or set another password")]),
    "brokers": ("Brokers", "Brokers", [("region", "Brokers"), ("region", "Log directories"), ("link", "The last hour")]),
    "history": ("The last hour of this broker", "History", [("region", "Removed records"), ("link", "emptied")]),
    "settings": (
        "Settings of broker 0",
        "Settings",
        [("searchbox", "Name or meaning contains"), ("checkbox", "Only changed")],
    ),
    "log": ("Event loop and log", "Log", []),
    "learn/group": ("Learn", "Learn", [("button", "Start a small load"), ("link", "Topic"), ("link", "Retention"), ("link", "← Consumer")]),
}  # fmt: skip
TABS_PRESSED_MAX = 26


def test_each_view_is_for_phones_the_dark_keyboards_and_screen_readers(
    browser: Browser, console: str, reader: Consumer, transaction: Producer, emptied: None
) -> None:
    browser.look(NARROW, "dark")
    browser.open(console)
    for view, (heading, name, controls) in VIEWS.items():
        browser.run("location.hash = arguments[0]", f"#/{view}")
        browser.until(lambda view=view: browser.run(IS_SHOWN, f"#/{view}"), "the view is there")
        browser.until(lambda heading=heading: browser.find("h1").text == heading, heading)
        for _, control in controls[-1:]:
            browser.until(lambda control=control: control in [each.name for each in browser.accessible()], control)
        browser.picture(f"narrow-dark-{re.sub('[^a-z]+', '-', view)}")
        check_layout(browser)
        check_tree(browser.accessible(), heading, name, controls)
        order, steps = browser.focus_order(TABS_PRESSED_MAX)
        # Long keys and values can be scrolled, so the focus stays there for a press.
        assert order == list(range(len(order))), view
        assert len(order) == steps + 1 or view.startswith("records"), view


# `innerText` of a view that is being left may still be there.
IS_SHOWN = "return location.hash === arguments[0] && document.querySelector('main').innerText.length > 100"


TOO_WIDE = """
if (document.documentElement.scrollWidth <= arguments[0]) return [];
const all = [...document.querySelectorAll("body *")];
return ["too wide on " + location.hash, document.documentElement.scrollWidth, ...all.filter((each) => each.getBoundingClientRect().right > arguments[0]).map((each) => each.outerHTML.slice(0, 300))];
"""


def check_layout(browser: Browser) -> None:
    assert browser.run(TOO_WIDE, NARROW[0]) == []
    colour = browser.run("return getComputedStyle(document.body).backgroundColor")
    assert max(map(int, re.findall(r"\d+", colour)[:3])) < 60
    assert browser.run("return document.querySelectorAll('header, header nav[aria-label], main, footer').length") == 4
    assert browser.run("return document.querySelectorAll('nav [aria-current=page]').length") == 1
    assert (
        browser.run('return document.querySelectorAll(\'[tabindex]:not([tabindex="0"], [tabindex="-1"])\').length') == 0
    )
    unnamed = (
        "return [...document.querySelectorAll('input, select, textarea')].filter(each => !each.labels.length)"
        ".concat([...document.querySelectorAll('button, a')].filter(each => !each.textContent.trim()))"
        ".map(each => each.outerHTML)"
    )
    assert browser.run(unnamed) == []


def check_tree(tree: list[Accessible], heading: str, name: str, controls: list[tuple[str, str]]) -> None:
    """Check what a screen reader gets: landmarks, headings in order, live regions, and a name for each control."""
    roles = [each.role for each in tree]
    for landmark in ("banner", "main", "contentinfo"):
        assert roles.count(landmark) == 1
    assert next(each.name for each in tree if each.role == "main") == name
    levels = [each.more["level"] for each in tree if each.role == "heading"]
    assert levels[:1] == [1] and levels.count(1) == 1
    assert all(after <= before + 1 for before, after in itertools.pairwise(levels))
    assert next(each.name for each in tree if each.role == "heading") == heading
    live = {(each.role, each.more["live"]) for each in tree if "live" in each.more}
    assert {("status", "polite"), ("alert", "assertive")} <= live
    focusable = [(each.role, each.name) for each in tree if each.more.get("focusable") and each.role not in NO_CONTROLS]
    assert [each for each in focusable if not each[1]] == []
    assert focusable[: len(HEADER)] == HEADER
    # Each control is found after the one before it.
    left = iter(focusable[len(HEADER) :])
    assert [each for each in controls if each not in left] == []
    assert all(each.name for each in tree if each.role in ("table", "image", "navigation", "log", "region"))


# The page, its main part, which a new view focuses, and long texts that can be scrolled.
NO_CONTROLS = ("RootWebArea", "main", "generic", "Pre", "option", "log")


@pytest.fixture(scope="module")
def emptied(broker: OttlaProcess) -> None:
    """A topic that has had records and was deleted."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic("emptied", 1)])["emptied"].result(60)
    produce(broker, "emptied", "gone")
    admin.delete_topics(["emptied"])["emptied"].result(60)


@pytest.fixture(scope="module")
def transaction(broker: OttlaProcess) -> Iterator[Producer]:
    """An open transaction in partition 1 of busy."""
    patient = {"transaction.timeout.ms": 900_000}
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": "till <b>"} | patient)
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce("busy", b"nobody knows yet", partition=1)
    producer.flush(60)
    yield producer
    producer.abort_transaction(60)


def test_transactions_and_the_producers_of_a_partition(browser: Browser, console: str, transaction: Producer) -> None:
    browser.open(f"{console}#/transactions")
    browser.see("till <b>", "Ongoing", "busy 1", "Open for")
    browser.until(
        lambda: re.match(r"\d+ (s|min|h)\b", browser.find("td[data-label='Open for']").text),
        "the transaction has an age",
    )
    browser.picture("transactions")
    browser.open(f"{console}#/topic/busy")
    browser.click("main a", "open transaction")
    browser.see("Producers of busy 1", "Open since offset")
    browser.open(f"{console}#/transactions")
    browser.fill("#contains", "TILL")
    browser.until(
        lambda: browser.find("main [role=status]").get_property("textContent") == "1 id listed",
        "the number of ids is announced",
    )
    browser.fill("#contains", "no such id")
    browser.see("No such transactional id")
    browser.fill("#contains", "")
    browser.click("main a", "busy 1")
    browser.see("Producers of busy 1", "Open transactions", "open")
    browser.picture("producers")


def test_a_schema_is_checked_registered_and_deleted(browser: Browser, console: str) -> None:
    browser.open(f"{console}#/schemas")
    browser.see("bills-value")
    browser.fill("#prefix", "nothing begins so")
    browser.see("No such subject")
    browser.fill("#prefix", "bill")
    browser.click("main a", "bills-value")
    browser.see("Compatibility", "BACKWARD (of all subjects)", "Version 1 · id 5 · AVRO", '"namespace": "shop"')
    browser.picture("schema")
    browser.click("summary span", "Register the next version")
    fields = [*BILL["fields"], {"name": "due", "type": "string"}]
    browser.fill("#schema-text", json.dumps({**BILL, "fields": fields}))
    browser.click("button", "Check")
    browser.see("It does not fit", "READER_FIELD_MISSING_DEFAULT_VALUE")
    fields[1]["default"] = "now"
    browser.fill("#schema-text", json.dumps({**BILL, "fields": fields}))
    browser.click("button", "Check")
    browser.see("It fits the latest version")
    browser.click("button", "Register")
    browser.see("Version 2 · id ", "due")
    browser.click("button", "Set")
    browser.until(lambda: "BACKWARD (of all subjects)" not in browser.text, "the subject has a level of its own")
    browser.click("button", "Delete version 2")
    agree(browser)
    browser.see("bills-value", "Register a schema")
    browser.click("main a", "bills-value")
    browser.see("Version 1 · id 5 · AVRO")


# Delays the answer to a request with this parameter until `release` is called, as a slow network would.
HOLD = """
const [parameter] = arguments, ask = window.fetch;
window.fetch = async (address, options) => {
  const answer = await ask(address, options);
  if (!`${address}&`.includes(`${parameter}&`)) return answer;
  return new Promise((resolve, reject) => {
    options.signal.addEventListener("abort", () => reject(options.signal.reason));
    window.release = () => resolve(answer);
    if (options.signal.aborted) reject(options.signal.reason);
  });
};
"""
# Delivers the delayed answer, and waits for the answer to a later request: by then the page has had time to show it.
RELEASE = (
    "const done = arguments[0]; window.release(); fetch('/').then((each) => each.text()).then(() => setTimeout(done));"
)


@pytest.mark.parametrize(
    ("path", "field", "found", "nothing"),
    [("topics", "contains", "hostile", "No such topic"), ("schemas", "prefix", "bills-value", "No such subject")],
)
def test_an_older_answer_does_not_replace_a_newer_one(
    browser: Browser, console: str, path: str, field: str, found: str, nothing: str
) -> None:
    browser.open(f"{console}#/{path}")
    browser.see(found)
    browser.run(HOLD, f"{field}={found}")
    browser.fill(f"#{field}", found)
    browser.until(lambda: browser.run("return !!window.release"), "the delayed answer has arrived")
    browser.fill(f"#{field}", "none")
    browser.see(nothing, "“none”")
    browser.driver.execute_async_script(RELEASE)
    assert nothing in browser.text
    assert found not in browser.text


def test_a_keyboard_is_enough(browser: Browser, console: str) -> None:
    browser.open(console)
    browser.see("orders")

    def press_until(text: str) -> None:
        for _ in range(40):
            browser.driver.switch_to.active_element.send_keys(Keys.TAB)
            if browser.run("return document.activeElement.textContent").strip() == text:
                return
        raise AssertionError(f"no way to {text!r} by keyboard")

    press_until("Skip to content")
    press_until("Brokers")
    browser.driver.switch_to.active_element.send_keys(Keys.ENTER)
    browser.see("Log directories")
    assert browser.run("return document.activeElement.id") == "main"
