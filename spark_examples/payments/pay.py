"""Writes payments in transactions: what is taken from one account into one partition, what another gets into the other.

python pay.py --bootstrap 127.0.0.1:9092
"""

import argparse
import json

from kafka import KafkaAdminClient, KafkaProducer

DEBITS, CREDITS = 0, 1


def create_topic(bootstrap: str, topic: str) -> None:
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    try:
        admin.create_topics({topic: {"num_partitions": 2, "replication_factor": 1}})
    finally:
        admin.close()


class Cashier:
    def __init__(self, bootstrap: str, topic: str, name: str) -> None:
        self.topic = topic
        self.producer = KafkaProducer(bootstrap_servers=bootstrap, transactional_id=name)
        self.producer.init_transactions()

    def begin(self, first: int, behind: int) -> None:
        """Book payments that are not paid before `commit`."""
        self.producer.begin_transaction()
        for number in range(first, behind):
            for partition, sign in ((DEBITS, -1), (CREDITS, 1)):
                value = json.dumps({"payment": number, "amount": sign * (number + 1)})
                self.producer.send(self.topic, value.encode(), partition=partition)
        self.producer.flush()

    def commit(self) -> None:
        self.producer.commit_transaction()

    def abort(self) -> None:
        self.producer.abort_transaction()

    def close(self) -> None:
        self.producer.close()


def main() -> None:
    parser = argparse.ArgumentParser(description="Write payments, and abort every third.")
    parser.add_argument("--bootstrap", default="127.0.0.1:9092")
    parser.add_argument("--topic", default="payments")
    options = parser.parse_args()
    create_topic(options.bootstrap, options.topic)
    cashier = Cashier(options.bootstrap, options.topic, "cashier")
    for number in range(30):
        cashier.begin(number, number + 1)
        cashier.abort() if number % 3 == 2 else cashier.commit()
    cashier.close()


if __name__ == "__main__":
    main()
