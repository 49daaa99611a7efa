"""Writes payments in transactions: what is taken from one account into one partition, what another gets into the other.

    python pay.py --bootstrap 127.0.0.1:9092

Both halves are sent before anybody looks whether the payer has enough. If not, the transaction is aborted, and no reader with
read_committed sees either half. A payment with a memo that the broker refuses is aborted, too, and told.
"""

import argparse
import json
import sys
from collections.abc import Iterable

from kafka import KafkaAdminClient, KafkaProducer
from kafka.errors import KafkaError, TopicAlreadyExistsError
from payments import ACCOUNTS, OPENING, Payment, payments, poison_after

DEBITS, CREDITS = 0, 1
MEMO_BYTES_MAX = 20_000


def create_topics(bootstrap: str, topic: str) -> None:
    """The topic of the payments, and the one for what is no payment."""
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    forever = {"retention.ms": "-1"}
    small = forever | {"max.message.bytes": str(MEMO_BYTES_MAX)}
    try:
        admin.create_topics(
            {
                topic: {"num_partitions": 2, "replication_factor": 1, "configs": small},
                f"{topic}-dead": {"num_partitions": 1, "replication_factor": 1, "configs": forever},
            }
        )
    finally:
        admin.close()


class Cashier:
    """Books one transaction at a time."""

    def __init__(self, bootstrap: str, topic: str, name: str) -> None:
        self.topic = topic
        self._settings = {"bootstrap_servers": bootstrap, "transactional_id": name}
        self._open()

    def _open(self) -> None:
        self.producer = KafkaProducer(**self._settings)
        self.producer.init_transactions()

    def begin(self, *some: Payment) -> None:
        """Book payments that are not paid before `commit`. Raises KafkaError if the broker refuses one."""
        self.producer.begin_transaction()
        # Each is asked: kafka-python would commit those that are left if one has failed.
        sent = [
            self.producer.send(self.topic, _half(payment, account, amount), partition=partition)
            for payment in some
            for partition, account, amount in halves(payment)
        ]
        self.producer.flush()
        for each in sent:
            each.get(timeout=60)

    def write(self, values: Iterable[bytes | None]) -> None:
        """Write and commit whatever it is."""
        self.producer.begin_transaction()
        for value in values:
            self.producer.send(self.topic, value, key=b"poison", partition=DEBITS).get(timeout=60)
        self.commit()

    def commit(self) -> None:
        self.producer.commit_transaction()

    def abort(self) -> None:
        self.producer.abort_transaction()

    def give_up(self) -> None:
        """Abort a payment that was refused, and begin anew: kafka-python goes on with sequences that the broker does not expect."""
        self.abort()
        self.close()
        self._open()

    def close(self) -> None:
        self.producer.close()


def halves(payment: Payment) -> tuple[tuple[int, str, int], tuple[int, str, int]]:
    """(partition, account, what its balance changes by) of both bookings."""
    return (DEBITS, payment.payer, -payment.amount), (CREDITS, payment.payee, payment.amount)


def _half(payment: Payment, account: str, amount: int) -> bytes:
    memo = "x" * (2 * MEMO_BYTES_MAX) if payment.is_too_large else "rent"
    return json.dumps({"payment": payment.number, "account": account, "amount": amount, "memo": memo}).encode()


def pay(cashier: Cashier, some: Iterable[Payment]) -> dict[str, int]:
    """Pay each that the payer can pay; returns how many ended how."""
    balances, ends = dict.fromkeys(ACCOUNTS, OPENING), {"committed": 0, "aborted": 0, "refused": 0}
    for payment in some:
        try:
            cashier.begin(payment)
        except KafkaError as error:
            cashier.give_up()
            ends["refused"] += 1
            print(f"  payment {payment.number} is refused: {type(error).__name__}", flush=True)
        else:
            if balances[payment.payer] < payment.amount:
                cashier.abort()
                ends["aborted"] += 1
            else:
                cashier.commit()
                ends["committed"] += 1
                balances[payment.payer] -= payment.amount
                balances[payment.payee] += payment.amount
        if poison := poison_after(payment):
            cashier.write(poison)
        if payment.number % 60 == 59:
            print(f"  {payment.number + 1} payments are booked", flush=True)
    return ends


def main() -> None:
    parser = argparse.ArgumentParser(description="Write payments, of which some are aborted.")
    parser.add_argument("--bootstrap", default="127.0.0.1:9092")
    parser.add_argument("--topic", default="payments")
    options = parser.parse_args()
    try:
        create_topics(options.bootstrap, options.topic)
    except TopicAlreadyExistsError:
        sys.exit(f"The topic {options.topic} exists. Delete it and {options.topic}-dead, or choose a --topic.")
    cashier = Cashier(options.bootstrap, options.topic, f"cashier-{options.topic}")
    ends = pay(cashier, payments())
    cashier.close()
    print("payments:", ", ".join(f"{count} {end}" for end, count in ends.items()))


if __name__ == "__main__":
    main()
