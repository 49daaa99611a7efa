"""What the ledger must hold, by plain bookkeeping.

    python expected.py          prints the balances at the end

Nothing here knows of Kafka, Spark or transactions.
"""

from payments import ACCOUNTS, COUNT, OPENING, payments, poison_after

Booking = tuple[int, str, int]
"""Number of the payment, account, and what its balance changes by."""


def bookings(count: int = COUNT) -> list[Booking]:
    """Both bookings of each payment that was paid."""
    balances, found = dict.fromkeys(ACCOUNTS, OPENING), []
    for payment in payments(count):
        if payment.amount <= balances[payment.payer] and not payment.is_too_large:
            for account, amount in ((payment.payer, -payment.amount), (payment.payee, payment.amount)):
                balances[account] += amount
                found.append((payment.number, account, amount))
    return sorted(found)


def balances(some: list[Booking]) -> dict[str, int]:
    """What each account holds after these bookings."""
    found = dict.fromkeys(ACCOUNTS, OPENING)
    for _, account, amount in some:
        found[account] += amount
    return found


def dead_letters(count: int = COUNT) -> list[bytes | None]:
    """What is in the topic and is no payment, in its order."""
    return [value for payment in payments(count) for value in poison_after(payment)]


def main() -> None:
    for account, balance in balances(bookings()).items():
        print(account, balance)


if __name__ == "__main__":
    main()
