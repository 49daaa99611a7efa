"""docs/testing-reference.md has every call of `ottla.testing`, as it is now."""

import inspect

from compat_tests.docs.reference import PAGE, made

import ottla.testing


def test_the_page_is_what_the_code_says() -> None:
    assert PAGE.read_text() == made(), "run: python -m compat_tests.docs.reference"


def test_every_public_name_says_what_it_is() -> None:
    for name in ottla.testing.__all__:
        assert inspect.getdoc(getattr(ottla.testing, name)), name
