"""What Kerberos' library says to those who know only that there is one."""

from __future__ import annotations

from typing import NamedTuple


class GssFailure(Exception):
    """What the library complains of, in one line. `is_passing`: the next attempt may go well."""

    def __init__(self, text: str, *, is_passing: bool = False) -> None:
        super().__init__(text)
        self.is_passing = is_passing


class Stepped(NamedTuple):
    """What a step of a context gives. `token`: for the other side; None or empty: there is none."""

    token: bytes | None
    is_complete: bool
