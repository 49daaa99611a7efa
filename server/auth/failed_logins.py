"""What the log says of failed logins: the first of an address at once, and then once a minute how many there were. Sans-IO.

Whoever tries passwords from many addresses fills neither the log nor the memory: those beyond `ADDRESSES_MAX` are counted
together.
"""

from __future__ import annotations

INTERVAL_S = 60.0
ADDRESSES_MAX = 1_000
OTHERS = "other addresses"


class FailedLogins:
    """Times are in seconds of any clock that only goes forward."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}  # since the last line of each address
        self._told_s: dict[str, float] = {}

    def note(self, address: str, reason: str, now_s: float) -> str | None:
        """The line that is to be logged, if one is due."""
        if address not in self._told_s and len(self._told_s) >= ADDRESSES_MAX:
            self._forget(now_s - INTERVAL_S)
            if len(self._told_s) >= ADDRESSES_MAX:
                address = OTHERS
        count = self._counts[address] = self._counts.get(address, 0) + 1
        if now_s - self._told_s.get(address, -INTERVAL_S) < INTERVAL_S:
            return None
        self._told_s[address], self._counts[address] = now_s, 0
        many = (
            f"{count} failed authentications of {address}, the last one"
            if count > 1
            else f"failed authentication of {address}"
        )
        return f"{many}: {reason}"

    def _forget(self, before_s: float) -> None:
        for address in [each for each, told_s in self._told_s.items() if told_s < before_s]:
            del self._told_s[address], self._counts[address]
