"""A broken promise as a paragraph for people."""

from ottla.server.testing.history.history import Event
from ottla.server.testing.history.rules import Proof

EVENT_TEXT_MAX = 300


def paragraph(proof: Proof) -> str:
    """Return a paragraph: the promise, where it was broken, and the events that prove it."""
    found = proof.violation
    lines = [f"{found.rule.name} in {found.topic}-{found.partition}: {found.rule}: {found.words}".rstrip(": ") + "."]
    return "\n".join([*lines, *(f"    {_line(each)}" for each in proof.events)])


def _line(event: Event) -> str:
    """Return what an event says, with the names of its fields."""
    fields = ", ".join(f"{name}={value!r}" for name, value in zip(event._fields[1:], event[1:], strict=True))
    text = f"{event.at:.3f} {type(event).__name__}: {fields}"
    return text if len(text) <= EVENT_TEXT_MAX else f"{text[: EVENT_TEXT_MAX - 3]}..."
