"""Changes by the console in Chromium: the page asks for confirmation, and then shows the equivalent command."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from compat_tests.support.brokers import OttlaProcess
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

selenium = pytest.importorskip("selenium")

from compat_tests.console.browser import CHROMIUM, DRIVER, Browser
from compat_tests.console.pages import agree, produce
from selenium.webdriver.common.by import By

pytestmark = pytest.mark.skipif(not (CHROMIUM and DRIVER), reason="chromium and chromedriver are not on this machine")


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory, opening: object) -> Iterator[OttlaProcess]:
    settings = {"http.listener": ":0", "http.console.write": "true", "offsets.topic.num.partitions": "1"}
    broker = OttlaProcess(tmp_path_factory.mktemp("changes"), settings)
    broker.start()
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    for future in admin.create_topics([NewTopic("orders", 1), NewTopic("busy", 1)]).values():
        future.result(60)
    yield broker
    broker.stop()


def test_a_topic_is_created_changed_and_deleted(browser: Browser, console: str, broker: OttlaProcess) -> None:
    browser.open(console)
    browser.click("summary span", "Create a topic")
    browser.fill("#topic-name", "made.here")
    browser.fill("#topic-partitions", "2")
    browser.fill("#topic-configs", "retention.ms=60000")
    browser.click("button", "Create")
    browser.until(lambda: browser.driver.switch_to.alert, "the page asks").dismiss()
    browser.click("button", "Create")
    assert agree(browser) == "Create the topic made.here?"
    where = f"-b {broker.bootstrap}"
    browser.see(
        "Topic made.here is created.", f"ottla topics create made.here -p 2 -c retention.ms=60000 {where}", "Replicas"
    )
    browser.click("summary span", "Change this topic")
    browser.fill("#more-partitions", "5")
    browser.click("button", "Add partitions")
    assert "cannot be taken away" in agree(browser)
    browser.see(f"ottla topics alter made.here -p 5 {where}")
    browser.until(lambda: len(browser.driver.find_elements(By.CSS_SELECTOR, ".picture li")) == 5, "5 partitions")
    browser.picture("changed-topic")
    produce(broker, "made.here", "a", "b", partition=0)
    browser.click("button", "Delete records")
    assert "all records of made.here" in agree(browser)
    browser.see("begin now: 0 at 2", f"ottla topics trim made.here --to-latest {where}")
    browser.click("#done button", "Close")
    browser.until(lambda: "by a command" not in browser.text, "the message is closed")
    browser.fill("#trim-partition", "7")
    browser.click("button", "Delete records")
    agree(browser)
    browser.see("UNKNOWN_TOPIC_OR_PARTITION")
    # The refusal stays while the page polls the broker.
    looks = "return performance.getEntriesByType('resource').filter((each) => each.name.includes('/api/topic?')).length"
    before = browser.run(looks)
    browser.until(lambda: browser.run(looks) > before + 1, "the page polls again")
    browser.see("UNKNOWN_TOPIC_OR_PARTITION")
    browser.click("#notice button", "Close")
    browser.until(lambda: "UNKNOWN_TOPIC" not in browser.text, "the message is closed")
    assert all("404" in each for each in browser.complaints())  # the refusal
    browser.click("button", "Delete this topic")
    assert "with all its records" in agree(browser)
    browser.see("Topic made.here is deleted.", "orders")
    assert browser.driver.find_elements(By.LINK_TEXT, "made.here") == []


def test_a_group_without_members_is_reset_and_deleted(browser: Browser, console: str, broker: OttlaProcess) -> None:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "left", "enable.auto.commit": False})
    consumer.commit(offsets=[TopicPartition("busy", 0, 5)], asynchronous=False)
    consumer.close()
    browser.open(f"{console}#/group/classic/left")
    browser.see("Nobody is in the group")
    browser.click("summary span", "Change this group")
    browser.click("button", "Reset")
    assert "from the first record" in agree(browser)
    browser.see("Group left goes on from busy 0 at 0.", "ottla groups reset left --all-topics --to-earliest --execute")
    browser.picture("changed-group")
    browser.click("button", "Delete this group")
    agree(browser)
    browser.see("Group left is deleted.", "Listed are the groups")


def test_a_user_logs_in_and_has_the_rights_that_the_rules_give(browser: Browser, tmp_path: Path) -> None:
    broker = OttlaProcess(
        tmp_path,
        {
            "http.listener": ":0",
            "http.console.write": "true",
            "http.console.users": "al\u00efce:a secret",
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS",
        },
    )
    broker.start()
    address = re.findall(r"console +(http://[^#\s]+)", broker.log)[-1]
    browser.open(address)
    browser.see("This console is locked")
    browser.picture("locked")
    browser.fill("#user", "al\u00efce")
    browser.fill("#token", "wrong")
    browser.click("button", "Open")
    browser.until(
        lambda: browser.run("return document.querySelector('#token')?.value === ''"), "the form is shown again"
    )
    browser.fill("#user", "al\u00efce")
    browser.fill("#token", "a secret")
    browser.click("button", "Open")
    browser.see("No topics yet", "logged in as al\u00efce")
    browser.click("summary span", "Create a topic")
    browser.fill("#topic-name", "not.mine")
    browser.click("button", "Create")
    agree(browser)
    browser.see("TOPIC_AUTHORIZATION_FAILED")
    browser.click("footer button", "Log out")
    browser.see("This console is locked")
    broker.stop()
    assert all("401" in each or "409" in each for each in browser.complaints())


def test_users_and_quotas_are_set_and_removed(browser: Browser, console: str) -> None:
    browser.open(f"{console}#/access")
    browser.see("There is no authorizer")
    browser.click("main a", "Users")
    browser.see("No users yet")
    browser.click("summary span", "Add a user, or set another password")
    browser.fill("#user-name", "alice <b>")
    browser.fill("#user-password", "a secret")
    browser.click("button", "Set")
    assert "secret" not in agree(browser)
    browser.see("User alice <b> is added.", "ottla users add 'alice <b>'", "SCRAM-SHA-512, 4,096 iterations")
    assert "secret" not in browser.text
    browser.picture("users")
    browser.click("main button", "Remove")
    agree(browser)
    browser.see("cannot log in by SCRAM-SHA-512 any more", "No users yet")
    browser.click("main a", "Quotas")
    browser.click("summary span", "Set a quota")
    browser.fill("#quota-user", "*")
    browser.fill("#quota-value", "1024")
    browser.click("button", "Set")
    agree(browser)
    browser.see(
        "ottla quotas set producer_byte_rate=1024 --user-defaults",
        "User others without a quota",
        "1,024 bytes/s (1.0 KiB/s)",
    )
    browser.click("main button", "Remove")
    agree(browser)
    browser.see("producer_byte_rate is removed.", "No quotas yet")
