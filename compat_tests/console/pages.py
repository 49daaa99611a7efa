"""Helpers that several tests of pages share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compat_tests.support.brokers import OttlaProcess
from confluent_kafka import Producer

if TYPE_CHECKING:
    from compat_tests.console.browser import Browser


def produce(broker: OttlaProcess, topic: str, *values: str | bytes, **more: object) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for each in values:
        producer.produce(topic, each, **more)
    assert producer.flush(60) == 0


def agree(browser: Browser) -> str:
    """Confirm the page's question, and return its text."""
    alert = browser.until(lambda: browser.driver.switch_to.alert, "the page asks")
    text = str(alert.text)
    alert.accept()
    return text
