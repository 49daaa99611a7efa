"""The image that tests of containers run, built once."""

import pytest
from compat_tests.containers.image import Image, on_this_machine


@pytest.fixture(scope="session")
def image(tmp_path_factory: pytest.TempPathFactory) -> Image:
    return on_this_machine(tmp_path_factory.mktemp("image"))
