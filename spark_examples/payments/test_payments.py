"""Spark sees committed payments only, and ends where a marker or an open transaction is the last thing in the topic."""

import contextlib
import time
from importlib.util import find_spec
from secrets import token_hex

import pytest

for package in ("kafka", "pyspark"):
    if find_spec(package) is None:
        pytest.skip(f"{package} is not installed (pip install '.[spark]')", allow_module_level=True)

import ledger
import pay

pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:unclosed:ResourceWarning"),
]

PATIENCE_S = 300


@pytest.fixture
def topic(spark, broker) -> str:
    name = f"payments-{token_hex(4)}"
    pay.create_topic(broker.bootstrap, name)
    return name


@pytest.fixture
def new_cashier(broker, topic):
    with contextlib.ExitStack() as stack:

        def make():
            cashier = pay.Cashier(broker.bootstrap, topic, f"cashier-{token_hex(4)}")
            return stack.enter_context(contextlib.closing(cashier))

        yield make


@pytest.fixture
def book(spark, broker, topic, tmp_path):
    """Takes what is there and answers with what has been taken so far: (partition, payment, amount).

    A broker tells that a transaction is committed before it has written the markers, so that some may be missing for a moment:
    it takes again until `wanted` are there.
    """

    def take(records_per_batch):
        query = ledger.start_query(spark, broker.bootstrap, topic, tmp_path, records_per_batch)
        assert query.awaitTermination(PATIENCE_S), "it does not end"
        rows = spark.read.parquet(str(tmp_path / "ledger.parquet")).collect()
        return sorted((row.partition, row.payment, row.amount) for row in rows)

    def take_until(wanted, records_per_batch=10_000):
        end = time.monotonic() + PATIENCE_S
        while not set(wanted) <= set(found := take(records_per_batch)) and time.monotonic() < end:
            pass
        return found

    return take_until


def paid(*numbers):
    both = ((pay.DEBITS, -1), (pay.CREDITS, 1))
    return sorted((partition, number, sign * (number + 1)) for number in numbers for partition, sign in both)


def test_aborted_payments_are_not_seen(new_cashier, book):
    cashier, committed = new_cashier(), []
    for number, end in enumerate((cashier.commit, cashier.abort, cashier.abort, cashier.commit, cashier.abort)):
        cashier.begin(number * 40, number * 40 + 40)
        end()
        if end == cashier.commit:
            committed += range(number * 40, number * 40 + 40)
    # There are batches that hold nothing but aborted records and markers.
    wanted = paid(*committed)
    assert book(wanted, records_per_batch=70) == wanted


def test_a_job_ends_at_a_marker_and_before_an_open_transaction(new_cashier, book):
    cashier, other = new_cashier(), new_cashier()
    cashier.begin(0, 10)
    cashier.commit()
    first = paid(*range(10))
    assert book(first) == first
    cashier.begin(10, 20)
    cashier.abort()
    # There is nothing new but aborted records and a marker.
    assert book(first) == first
    cashier.begin(20, 30)
    other.begin(30, 40)
    other.commit()
    assert book(first) == first
    cashier.commit()
    both = paid(*range(10), *range(20, 40))
    assert book(both) == both
