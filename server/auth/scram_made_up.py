"""What a SCRAM server answers to names that it does not know: salts and numbers of iterations that tell nobody so.

A made-up answer looks like that of some known user: its number of iterations and the form of its salt are drawn from those that
the users of the mechanism have, as often as they have them. Name and secret decide the draw, so it is the same on each
broker, and after a restart.

When users come and go draws may change. Each look that users have is given a number by name and secret, the more users have
it the smaller, and the smallest wins (weighted rendezvous hashing): of all unknown names only as many change as users did. Such a
name gets another salt, too, which is what happens to a known user whose password is changed.

Tokens have 4,096 iterations and salts that Kafka's tools would make, all of them, and these are made here (`salt_of_token`).
"""

from __future__ import annotations

import hashlib
import heapq
import hmac
import math
from collections import Counter
from typing import NamedTuple

from ottla.server.auth.scram_credentials import HASHES, ITERATIONS_MIN, ScramCredential

SALT_BITS = 130  # of those that Kafka's tools make, written in 36 digits
LOOKS_MAX = 16  # that are drawn from: each takes a microsecond of every login
SALT_BYTES_MAX = 256  # that are made up; nobody needs more
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
_DIGIT_BYTES = frozenset(_DIGITS.encode())
_LENGTHS_OF_TOOLS = (25, 26)  # those of nearly all numbers of so many bits


class Look(NamedTuple):
    """What a stranger sees of a credential. `salt_bytes` 0: a salt as Kafka's tools make one."""

    iterations: int
    salt_bytes: int


_OF_NOBODY = Look(ITERATIONS_MIN, 0)


class MadeUpCredentials:
    """See the module's docstring."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret
        self._looks: dict[str, Counter[Look]] = {mechanism: Counter() for mechanism in HASHES}
        self._drawn_from: dict[str, list[tuple[Look, int]]] = {}

    def change(self, mechanism: str, before: ScramCredential | None, after: ScramCredential | None) -> None:
        """A user had and has this credential; None: none."""
        looks = self._looks[mechanism]
        for credential, difference in ((before, -1), (after, 1)):
            if credential is not None and credential.iterations >= ITERATIONS_MIN:
                look = _look_of(credential)
                looks[look] += difference
                if not looks[look]:
                    del looks[look]
        self._drawn_from.pop(mechanism, None)

    def of_user(self, mechanism: str, name: str) -> ScramCredential:
        """What is answered to a login of this name, if nobody has it. No proof fits."""
        look = self._look(mechanism, name)
        seed = self._seed(f"user {mechanism} {look.iterations} {look.salt_bytes} {name}")
        return self._credential(mechanism, seed, _salt(seed, look.salt_bytes), look.iterations)

    def of_token(self, mechanism: str, token_id: str) -> ScramCredential:
        """The same for a login with a token."""
        salt = self.salt_of_token(mechanism, token_id)
        return self._credential(mechanism, self._seed(f"key {mechanism} {token_id}"), salt, ITERATIONS_MIN)

    def salt_of_token(self, mechanism: str, token_id: str) -> bytes:
        """Of any token, known or not."""
        return _salt(self._seed(f"token {mechanism} {token_id}"), 0)

    def _credential(self, mechanism: str, seed: bytes, salt: bytes, iterations: int) -> ScramCredential:
        key = hmac.digest(self._secret, seed, HASHES[mechanism])
        return ScramCredential(salt, key, key, iterations)

    def _look(self, mechanism: str, name: str) -> Look:
        looks = self._drawn_from.get(mechanism)
        if looks is None:
            common = heapq.nlargest(LOOKS_MAX, self._looks[mechanism].items(), key=lambda each: (each[1], each[0]))
            looks = self._drawn_from[mechanism] = common or [(_OF_NOBODY, 1)]
        return min(looks, key=lambda each: self._rank(mechanism, name, *each))[0]

    def _rank(self, mechanism: str, name: str, look: Look, users: int) -> float:
        seed = self._seed(f"look {mechanism} {look.iterations} {look.salt_bytes} {name}")
        return -math.log((int.from_bytes(seed[:6], "big") + 1) / (1 << 48)) / users

    def _seed(self, text: str) -> bytes:
        return hmac.digest(self._secret, text.encode("utf-8", "surrogatepass"), "sha512")


def in_36_digits(number: int) -> bytes:
    """As Java's BigInteger writes a number to the base of 36."""
    found = []
    while number:
        number, digit = divmod(number, 36)
        found.append(_DIGITS[digit])
    return "".join(reversed(found)).encode() or b"0"


def _look_of(credential: ScramCredential) -> Look:
    salt = credential.salt
    is_of_tools = len(salt) in _LENGTHS_OF_TOOLS and _DIGIT_BYTES.issuperset(salt)
    return Look(credential.iterations, 0 if is_of_tools else min(len(salt), SALT_BYTES_MAX))


def _salt(seed: bytes, salt_bytes: int) -> bytes:
    if salt_bytes:
        return hashlib.shake_256(seed).digest(salt_bytes)
    return in_36_digits(int.from_bytes(seed[:32], "big") % (1 << SALT_BITS))
