"""Payments between the accounts of a small bank, the same ones every time.

Some are larger than what the payer has, and one in sixty has a memo that no broker takes. `random()` alone is drawn from, which
gives the same numbers on every Python.
"""

import random
from collections.abc import Iterator
from typing import NamedTuple

ACCOUNTS = [f"account-{number:02}" for number in range(12)]
OPENING = 100
COUNT = 240
TOO_LARGE_EVERY = 60
POISON_EVERY = 20

# What gets into topics and is no payment: each is written as it is, and committed.
POISON = [b'{"payment": 7, "acc', None, b"\xff\xfe{", b'["no object"]', b'{"payment": 7, "account": "account-01"}']


class Payment(NamedTuple):
    number: int
    payer: str
    payee: str
    amount: int
    is_too_large: bool


def payments(count: int = COUNT) -> Iterator[Payment]:
    """The first so many."""
    drawn = random.Random(1883)
    for number in range(count):
        payer = int(drawn.random() * len(ACCOUNTS))
        payee = (payer + 1 + int(drawn.random() * (len(ACCOUNTS) - 1))) % len(ACCOUNTS)
        amount = 1 + int(drawn.random() * 80)
        yield Payment(number, ACCOUNTS[payer], ACCOUNTS[payee], amount, number % TOO_LARGE_EVERY == 59)


def poison_after(payment: Payment) -> list[bytes | None]:
    """What gets into the topic after this payment."""
    turn, is_due = divmod(payment.number, POISON_EVERY)
    return [POISON[turn % len(POISON)]] if is_due == POISON_EVERY - 1 else []
