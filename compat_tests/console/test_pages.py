"""The console in Chromium: each view, wide and narrow, light and dark, by keyboard, and with records that mean harm.

Each test leaves pictures of what it saw in OTTLA_SCREENSHOTS, or in a temporary folder.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from compat_tests.support.brokers import OttlaProcess, wait_until
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

selenium = pytest.importorskip("selenium")

from compat_tests.console.browser import CHROMIUM, DRIVER, NARROW, Browser
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

FOR_README = (1000, 740)
pytestmark = pytest.mark.skipif(not (CHROMIUM and DRIVER), reason="chromium and chromedriver are not on this machine")


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OttlaProcess]:
    settings = {
        "http.listener": ":0",
        "http.console.write": "true",
        "num.partitions": "1",
        "group.initial.rebalance.delay.ms": "0",
        "offsets.topic.num.partitions": "2",
    }
    broker = OttlaProcess(tmp_path_factory.mktemp("console"), settings)
    broker.start()
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    for future in admin.create_topics([NewTopic("orders", 12), NewTopic("hostile", 1), NewTopic("busy", 2)]).values():
        future.result(60)
    yield broker
    broker.stop()


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    browser = Browser(Path(os.environ.get("OTTLA_SCREENSHOTS") or tmp_path_factory.mktemp("screenshots")))
    yield browser
    browser.close()


@pytest.fixture
def browser(chromium: Browser) -> Iterator[Browser]:
    chromium.look()
    chromium.complaints()
    yield chromium
    assert chromium.complaints() == []


@pytest.fixture(scope="module")
def console(broker: OttlaProcess) -> str:
    found = re.search(r"console +(http://\S+)", broker.log)
    assert found is not None
    return found[1]


def produce(broker: OttlaProcess, topic: str, *values: str | bytes, **more: object) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for each in values:
        producer.produce(topic, each, **more)
    assert producer.flush(60) == 0


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
    browser.until(lambda: browser.run("return document.querySelector('.facts').textContent").find("here20") > 0, "20 records")


def test_only_the_topics_asked_for_are_listed(browser: Browser, console: str) -> None:
    browser.open(console)
    browser.see("orders", "hostile")
    browser.fill("#contains", "HOST")
    browser.until(lambda: "orders" not in browser.text and "hostile" in browser.text, "one topic is left")
    browser.fill("#contains", "no such name")
    browser.see("No such topic")


def test_brokers(browser: Browser, console: str) -> None:
    browser.open(f"{console}#/brokers")
    browser.see("controller", "this one", "Log directories", "PLAINTEXT://127.0.0.1")
    browser.picture("brokers")


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
    browser.see("<script>window.harmed = 1</script>", "12345678901234567890", "</pre><b>bold</b>", "<i>name</i>", "ff fe 00")
    assert "\x1b" not in browser.text and "\u202e" not in browser.text
    browser.see("ESC[31mred", "U+202E", "<u>key</u>", "cut, 98 KiB in all")
    browser.picture("records")
    browser.click(".record button", "Show more")
    browser.until(lambda: browser.text.count("v" * 5000), "the value is shown whole")
    assert browser.run("return window.harmed") is None
    assert browser.run("return document.querySelectorAll('main b, main i, main u, main svg, main script, main img').length") == 0


def test_records_by_offset_search_and_page(browser: Browser, console: str, broker: OttlaProcess) -> None:
    produce(broker, "busy", *[f"busy {number}" for number in range(120)], partition=0)
    browser.open(f"{console}#/records/busy/0")
    browser.see("busy 119", "Offsets 70 to 119")
    browser.click(".bar button", "Older")
    browser.see("busy 20", "Offsets 20 to 69")
    browser.fill("#contains", "BUSY 11")
    browser.click("form button", "Show")
    browser.see("No match")
    browser.fill("#contains", "busy 11")
    browser.click("form button", "Show")
    browser.see("11 matches in 120 records")
    browser.fill("#contains", "")
    browser.find("#from").send_keys("an offset")
    browser.fill("#offset", "100")
    browser.click("form button", "Show")
    browser.see("Offsets 100 to 119")


def test_records_are_followed_live(browser: Browser, console: str, broker: OttlaProcess) -> None:
    browser.open(f"{console}#/records/busy/1")
    browser.click("form button", "Follow live")
    browser.see("Following all partitions")
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
    """The only member of a group that is three records behind."""
    produce(broker, "orders", "one", "two", "three", partition=0)
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "shop <b>", "enable.auto.commit": False})
    consumer.subscribe(["orders"])
    wait_until(lambda: consumer.poll(0.1) or consumer.assignment(), "partitions are assigned", 60)
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
    assert browser.run("return document.querySelector('svg[role=img]').getAttribute('aria-label')").startswith("Records behind")


def test_settings_with_what_they_mean(browser: Browser, console: str) -> None:
    browser.open(f"{console}#/settings")
    browser.fill("#contains", "num.partitions")
    browser.until(lambda: "offsets.topic.num.partitions" in browser.text and "log.dirs" not in browser.text, "few are left")
    browser.click("summary")
    browser.see("changed by a restart")
    browser.picture("settings")
    browser.find("#contains").clear()
    browser.click("#changed")
    browser.see("listeners", "log.dirs")


def test_a_record_is_produced_where_java_and_librdkafka_would_put_it(
    browser: Browser, console: str, broker: OttlaProcess
) -> None:
    placed = []
    producer = Producer({"bootstrap.servers": broker.bootstrap, "partitioner": "murmur2"})
    producer.produce("orders", b"by librdkafka", key="a key", on_delivery=lambda _, message: placed.append(message.partition()))
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
    browser.see("retention.ms is as by default")


def test_a_setting_of_a_topic_is_changed_and_taken_back(browser: Browser, console: str) -> None:
    open_retention(browser, console)
    browser.fill("[id='set-retention.ms']", "soon")
    browser.click("details[open] button", "Set")
    browser.until(lambda: "retention.ms" in browser.find("#notice").text, "the broker's refusal is told")
    browser.fill("[id='set-retention.ms']", "123456")
    browser.click("details[open] button", "Set")
    browser.see("retention.ms is changed", "123456", "this topic")
    browser.click("summary .mono", "retention.ms")
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


def test_learning_goes_step_by_step_on_a_load_that_a_click_starts(browser: Browser, console: str) -> None:
    browser.open(f"{console}#/learn")
    browser.see("A topic is a named stream", "Here and now")
    browser.click("button", "Start a small load")
    browser.see("Writing to ottla-learn, 1 reader", "the newest record")
    browser.picture("learn-topic")
    for word in ("Partition", "Offset", "Key", "Replication", "Leader", "ISR", "Acks", "Group"):
        browser.click(".lesson a", f"{word} →")
        browser.until(lambda word=word: browser.find("#lesson").text == word, word)
        browser.until(lambda: len(browser.find(".shown-here").text) > len("Here and now") + 10, f"{word} is shown")
        if word == "Offset":
            browser.until(lambda: len(browser.driver.find_elements(By.CSS_SELECTOR, ".tape .cell")) > 12, "some records")
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
    browser.click(".lesson a", "Retention →")
    browser.see("retention.ms", "600000")
    browser.click("button", "Stop the load")
    browser.see("Start a small load")


def test_the_log_and_the_event_loop(browser: Browser, console: str) -> None:
    browser.open(f"{console}#/log")
    browser.see("ottla.", "Microseconds late on average")
    browser.picture("log")


VIEWS = ("topics", "topic/orders", "records/hostile/0", "groups", "brokers", "settings", "log", "learn/9")


@pytest.mark.parametrize("view", VIEWS)
def test_each_view_is_for_phones_the_dark_and_screen_readers(browser: Browser, console: str, view: str) -> None:
    browser.look(NARROW, "dark")
    browser.open(f"{console}#/{view}")
    browser.until(lambda: browser.run("return document.querySelector('main').innerText.length") > 120, "the view is there")
    browser.picture(f"narrow-dark-{view.replace('/', '-')}")
    assert browser.run("return document.documentElement.scrollWidth") <= NARROW[0]
    colour = browser.run("return getComputedStyle(document.body).backgroundColor")
    assert max(map(int, re.findall(r"\d+", colour)[:3])) < 60
    assert browser.run("return document.querySelectorAll('header, header nav[aria-label], main, footer').length") == 4
    assert browser.run("return document.querySelectorAll('nav [aria-current=page]').length") == 1
    assert browser.run("return document.querySelectorAll('h1').length") == 1
    unnamed = (
        "return [...document.querySelectorAll('input, select, textarea')].filter(each => !each.labels.length)"
        ".concat([...document.querySelectorAll('button, a')].filter(each => !each.textContent.trim()))"
        ".map(each => each.outerHTML)"
    )
    assert browser.run(unnamed) == []


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
