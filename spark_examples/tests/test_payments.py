"""Spark sees committed payments only, loses none, and ends where a marker or an open transaction is the last thing in the topic."""

import contextlib
import time
from importlib.util import find_spec
from secrets import token_hex

import pytest

for package in ("kafka", "pyspark"):
    if find_spec(package) is None:
        pytest.skip(f"{package} is not installed (pip install '.[spark]')", allow_module_level=True)

from spark_examples.tests.programs import programs_of

example = programs_of("payments")
pay, ledger, check = example.pay, example.ledger, example.check

pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:unclosed:ResourceWarning"),
]

PATIENCE_S = 300


@pytest.fixture
def topic(spark, broker) -> str:
    name = f"payments-{token_hex(4)}"
    pay.create_topics(broker.bootstrap, name)
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
    """Takes what is there and answers with the ledger so far.

    A broker tells that a transaction is committed before it has written the markers, so that some may be missing for a moment:
    it takes again until `wanted` are there.
    """

    def take(records_per_batch):
        for query in ledger.start_queries(spark, broker.bootstrap, topic, tmp_path, records_per_batch):
            assert query.awaitTermination(PATIENCE_S), "it does not end"
        return check.ledger(tmp_path / "ledger")

    def take_until(wanted, records_per_batch=10_000):
        end = time.monotonic() + PATIENCE_S
        while not set(wanted) <= set(found := take(records_per_batch)) and time.monotonic() < end:
            pass
        return found

    return take_until


def payment(number):
    return example.payments.Payment(number, "account-01", "account-02", number + 1, False)


def paid(*numbers):
    return sorted((each, account, amount) for each in numbers for _, account, amount in pay.halves(payment(each)))


def test_the_example_says_equal(run_example):
    told = run_example("payments")
    assert told.splitlines()[-1] == "equal"
    assert "payments: 159 committed, 77 aborted, 4 refused" in told


def test_a_job_that_is_stopped_goes_on_and_loses_nothing(spark, broker, topic, new_cashier, book, tmp_path):
    pay.pay(new_cashier(), example.payments.payments())
    queries = ledger.start_queries(spark, broker.bootstrap, topic, tmp_path, 40)
    while len(queries[0].recentProgress) < 2:
        assert not queries[0].awaitTermination(0.1), "the job ended before it could be stopped"
    for query in queries:
        query.stop()
    assert 0 < len(check.ledger(tmp_path / "ledger")) < len(example.expected.bookings())
    book(example.expected.bookings(), records_per_batch=70)
    assert check.compare(broker.bootstrap, topic, tmp_path) == []


def test_a_difference_is_told(tmp_path, monkeypatch, capsys):
    wanted = example.expected.bookings()
    monkeypatch.setattr(check, "ledger", lambda folder: wanted[1:])
    monkeypatch.setattr(check, "dead_letters", lambda bootstrap, topic: [])
    monkeypatch.setattr(check, "committed_records", lambda bootstrap, topic: wanted)
    assert check.compare("", "payments", tmp_path) == [
        "the bookings differ",
        "the dead letters differ",
        "records are lost, or come twice",
    ]


def test_aborted_payments_are_not_seen(new_cashier, book):
    cashier, committed = new_cashier(), []
    for number, end in enumerate((cashier.commit, cashier.abort, cashier.abort, cashier.commit, cashier.abort)):
        cashier.begin(*map(payment, range(number * 40, number * 40 + 40)))
        end()
        if end == cashier.commit:
            committed += range(number * 40, number * 40 + 40)
    # There are batches that hold nothing but aborted records and markers.
    wanted = paid(*committed)
    assert book(wanted, records_per_batch=70) == wanted


def test_a_job_ends_at_a_marker_and_before_an_open_transaction(new_cashier, book):
    cashier, other = new_cashier(), new_cashier()
    cashier.begin(*map(payment, range(10)))
    cashier.commit()
    first = paid(*range(10))
    assert book(first) == first
    cashier.begin(*map(payment, range(10, 20)))
    cashier.abort()
    # There is nothing new but aborted records and a marker.
    assert book(first) == first
    cashier.begin(*map(payment, range(20, 30)))
    other.begin(*map(payment, range(30, 40)))
    other.commit()
    assert book(first) == first
    cashier.commit()
    both = paid(*range(10), *range(20, 40))
    assert book(both) == both
