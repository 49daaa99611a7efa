"""docs/compatibility.md says what is served and proven, as it is now."""

from compat_tests.docs import compatibility
from compat_tests.docs.clients import CLIENTS
from compat_tests.docs.pages import ROOT

from ottla.server.dispatch.dispatch import all_routes

TESTS = ROOT / "compat_tests"
OF_CLIENTS = ("clients", "applications", "tools", "suites")
"""The folders whose tests are about clients."""


def test_the_page_is_up_to_date() -> None:
    made = compatibility.page()
    assert compatibility.PAGE.read_text() == made, "make it again: python -m compat_tests.docs.compatibility"


def test_every_test_of_a_client_is_named_and_every_named_test_exists() -> None:
    named = {name for client in CLIENTS for name in client.proven_by}
    there = {str(path.relative_to(TESTS)) for folder in OF_CLIENTS for path in (TESTS / folder).glob("test_*.py")}
    assert named == there


def test_notes_are_about_requests_that_are_served() -> None:
    assert set(compatibility.NOTES) <= {route.name for route in all_routes().values()}


def test_nothing_that_kafka_serves_is_left_out() -> None:
    _, theirs = compatibility.kafka()
    rows = [line.split(" | ")[0] for line in compatibility.page().splitlines()]
    assert len(theirs) > 60
    assert {f"| {key}" for key in theirs} <= set(rows)
