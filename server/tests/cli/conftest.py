"""A broker for each module of tests, by the module's SETTINGS where it has some, and what its tests use beside it."""

from collections.abc import Iterator

import pytest

from ottla.server.broker import Broker
from ottla.server.cli.client.cluster import Cluster
from ottla.server.tests.cli.commanded import Shell, broker_in_thread


@pytest.fixture(scope="module")
def serving(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Broker, str]]:
    with broker_in_thread(tmp_path_factory.mktemp("broker"), **getattr(request.module, "SETTINGS", {})) as running:
        yield running


@pytest.fixture
def broker(serving: tuple[Broker, str]) -> Broker:
    return serving[0]


@pytest.fixture
def ottla(serving: tuple[Broker, str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Shell:
    return Shell(serving[1], capsys, monkeypatch)


@pytest.fixture
def cluster(ottla: Shell) -> Iterator[Cluster]:
    with ottla.cluster() as found:
        yield found
