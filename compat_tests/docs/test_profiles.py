"""docs/profiles.md says what the profiles declare."""

from compat_tests.docs import profiles

from ottla.server.testing.profiles.profiles import PROFILES


def test_the_page_is_up_to_date() -> None:
    assert profiles.PAGE.read_text() == profiles.page(), "make it again: python -m compat_tests.docs.profiles"


def test_every_profile_has_its_section() -> None:
    sections = [line.removeprefix("## ") for line in profiles.page().splitlines() if line.startswith("## ")]
    assert sections == list(PROFILES)
