"""Machine of one connection that carries out rules.

Bytes of the client come in by `received` and leave for the broker in `to_broker`. Bytes of the broker are offered to `next_piece`,
which says whether they go to the client as they are, or are taken; what the machine sends itself is in `to_client`.

A frame is held until it is complete only if a rule may concern its API. All other frames pass in pieces of any size.

Order: `_awaited` has the requests without an answer in the client's order. An answer that is changed, late, or made here has a
`_Plan`; it leaves when all before it have left. Answers of the broker behind it are taken and wait.
"""

from __future__ import annotations

import math
import struct
from typing import Any

from ottla.server.testing.errors import LabError
from ottla.server.testing.wire_tap.conversation import PRODUCE_KEY, Conversation, Tap, expects_answer
from ottla.server.testing.wire_tap.filters import Filter
from ottla.server.testing.wire_tap.frames import SIZE_BYTES, NotKafka
from ottla.server.testing.wire_tap.kafka_names import FETCH_KEY
from ottla.server.testing.wire_tap.refusals import encoded_answer, merge, refusal
from ottla.server.testing.wire_tap.rules import Delay, Disconnect, Drop, Fail, Half, Rule, Rules, Twice
from ottla.server.testing.wire_tap.wire_request import WireConnection, WireRequest
from ottla.wire.errors import ErrorCode
from ottla.wire.headers import RequestHeader, encode_request_header, request_header_version
from ottla.wire.limits import FRAME_BYTES_MAX
from ottla.wire.messages.fetch import FetchResponse
from ottla.wire.schema import Message

API_KEY_END = SIZE_BYTES + 2
SESSION_ENDED = "fetch session ended for a rule"
TAKEN_BYTES_MAX = 64 * 1024 * 1024
"""Bytes that one side may have waiting here; then it is not read, until the wait is over."""

_NAMES_SESSIONS = 7  # version of Fetch
_size_and_key = struct.Struct(">ih").unpack_from
_size = struct.Struct(">i")


class _Plan:
    """Changes of one answer."""

    __slots__ = ("answer", "discards", "errors", "is_closing", "is_half", "is_hung", "leaves_at", "replaces")

    def __init__(self) -> None:
        self.answer: bytes | None = None  # None: the broker has not answered
        self.leaves_at = -math.inf
        self.discards = 0  # answers of the broker to be thrown away first
        self.errors: Message | None = None  # an error answer: for some partitions, or `replaces` the broker's
        self.is_closing = self.is_half = self.is_hung = self.replaces = False


class RuledConversation(Conversation):
    """Conversation that rules may change. Times are seconds of the clock by which delays are meant."""

    def __init__(self, connection: WireConnection, tap: Tap, rules: Rules) -> None:
        super().__init__(connection, tap)
        self.to_broker = bytearray()
        self.to_client = bytearray()
        self.is_closing = False
        """True if the connection is to be closed once `to_broker` and `to_client` are empty."""
        self._rules = rules
        self._pending = bytearray()  # of the client, not decided yet
        self._taken = bytearray()  # of an answer that is not complete
        self._plans: dict[WireRequest, _Plan] = {}
        self._held: WireRequest | None = None  # the request that is to reach the broker late
        self._held_by: Rule | None = None
        self._held_until = math.inf
        self._holds_answers = False
        self._is_mute = False  # nothing more reaches the broker
        self._now = 0.0

    @property
    def is_idle(self) -> bool:
        """True if nothing is held, changed or waiting, so that bytes may pass without this machine."""
        return not (
            self._plans
            or self._pending
            or self.to_broker
            or self.to_client
            or self._taken
            or self._held is not None
            or self._is_mute
            or self.is_closing
        )

    def holds_for(self, rule: Rule) -> bool:
        """Tell whether a request of the client is held back by this rule."""
        return self._held is not None and self._held_by is rule

    def hold_no_longer(self) -> None:
        """Let the request that is held back reach the broker at the next `tick`."""
        self._held_until = -math.inf

    @property
    def holds_back(self) -> bool:
        """True if a request of the client is held back, or an answer to it by `hold_answers`."""
        return self._held is not None or self._holds_answers

    @property
    def awaits_produce(self) -> bool:
        """True if the broker has a Produce of the client, and the client is still to get the answer."""
        is_open = not self.is_foreign and not self._is_mute
        return is_open and (bool(self.to_client) or any(each.api_key == PRODUCE_KEY for each in self._awaited))

    @property
    def is_silent(self) -> bool:
        """True if a rule lets a request of the client, and all later ones, go without an answer."""
        return self._is_mute

    @property
    def holds_much_of_client(self) -> bool:
        """True if nothing more of the client should be read for now."""
        return self._held is not None and len(self._pending) >= TAKEN_BYTES_MAX

    @property
    def holds_much_of_broker(self) -> bool:
        """True if nothing more of the broker should be taken for now."""
        return sum(len(each.answer) for each in self._plans.values() if each.answer) >= TAKEN_BYTES_MAX

    @property
    def next_due(self) -> float | None:
        """Time at which `tick` has to be called; None if nothing is late."""
        due = self._held_until if self._held is not None else math.inf
        if self._awaited and (plan := self._plans.get(self._awaited[0])) and (plan.answer is not None or plan.is_hung):
            due = min(due, plan.leaves_at)
        return due if due < math.inf else None

    # ------------------------------------------------------------------ from the client

    def received(self, data: Any, now: float) -> None:
        """Take bytes of the client."""
        self._look_at_clocks(now)
        self._pending += data
        self._pump()

    def hold_answers(self, wanted: Filter) -> None:
        """Let no answer leave to those requests that the broker has by now and a filter means."""
        begun = self._awaited[0] if self._awaited and self._from_broker.until_boundary() else None
        for request in self._awaited if not self.connection.is_of_broker else ():
            if request is not begun and wanted.matches(request):
                self._plan(request).leaves_at = math.inf
                self._holds_answers = True

    def end_of_input(self, now: float) -> bool:
        """Note that the client sends no more; return True if there is something for the broker now.

        A request that was to be late goes at once: nobody can tell any more how late it is.
        """
        self._look_at_clocks(now)
        self._release()
        return bool(self.to_broker)

    def tick(self, now: float) -> None:
        """Let go what is due."""
        self._look_at_clocks(now)
        if self._held is not None and self._held_until <= now:
            self._release()
        self._advance()

    def _look_at_clocks(self, now: float) -> None:
        self._now, self._now_ms = now, self._tap.clock_ms()

    def _release(self) -> None:
        request, self._held, self._held_until = self._held, None, math.inf
        if request is not None:
            self._give(request)
            self._pump()

    def _pump(self) -> None:
        pending = self._pending
        while pending and self._held is None and not self.is_closing:
            if self.is_foreign:
                self._pass(len(pending))
            elif inside := self._from_client.until_boundary():
                self._pass(min(inside, len(pending)))
            elif len(pending) < API_KEY_END:
                return
            else:
                size, api_key = _size_and_key(pending)
                end = SIZE_BYTES + size
                if not 8 <= size <= FRAME_BYTES_MAX or not self._rules.concern(api_key):
                    self._pass(min(max(end, SIZE_BYTES), len(pending)))
                elif len(pending) < end:
                    return
                else:
                    frame = bytes(pending[SIZE_BYTES:end])
                    del pending[:end]
                    self._decide(frame)

    def _pass(self, count: int) -> None:
        """Let the first bytes go to the broker as they are."""
        piece = bytes(self._pending[:count])
        del self._pending[:count]
        if not self._is_mute:
            self.to_broker += piece
        self.heard(piece, count)

    def _decide(self, frame: bytes) -> None:
        cutter = self._from_client
        try:
            request = self._note(len(frame), frame, cutter.offset)
        except NotKafka:
            self.is_foreign = True
            self.to_broker += _framed(frame)
            return
        cutter.offset += SIZE_BYTES + len(frame)
        if self._is_mute:
            self._expect(request)
            return
        if self._needs_partitions(request):
            self._end_fetch_session(request)
            return
        rule = self._rules.acting_on(request)
        if rule is None:
            self._give(request)
        else:
            request.rule = str(rule.action)
            self._carry_out(rule, request)

    def _give(self, request: WireRequest) -> None:
        frame = request.raw_request
        assert isinstance(frame, bytes)
        self.to_broker += _framed(frame)
        self._expect(request)

    def _expect(self, request: WireRequest) -> None:
        try:
            super()._expect(request)
        except NotKafka:
            self.is_foreign = True

    def _carry_out(self, rule: Rule, request: WireRequest) -> None:
        match rule.action:
            case Fail(error, applied):
                self._fail(rule, request, error, applied=applied)
            case Delay(seconds, before=True):
                self._held, self._held_by, self._held_until = request, rule, self._now + seconds
            case Twice():
                self._give(request)
                self._give(request)
                self._plan(request).discards = 1
            case Drop(applied, seconds):
                self._drop(request, math.inf if seconds is None else self._now + seconds, applied=applied)
            case Disconnect(before=True):
                self.is_closing = True
            case Disconnect():
                self._give(request)
                self._plan(request).is_closing = True
                self.is_closing = not expects_answer(request)
            case Half():
                self._give(request)
                self._plan(request).is_half = True
            case Delay(seconds):
                self._give(request)
                # From the request on, so that a frozen clock has the same moment whenever the broker answers.
                self._plan(request).leaves_at = self._now + seconds

    def _plan(self, request: WireRequest) -> _Plan:
        """Return the plan for the answer to a request; for a request without an answer one that nothing comes of."""
        plan = self._plans.get(request) or _Plan()
        if expects_answer(request):
            self._plans[request] = plan
        return plan

    def _drop(self, request: WireRequest, closes_at: float, *, applied: bool) -> None:
        if applied:
            self._give(request)
        elif expects_answer(request):
            self._expect(request)
        if expects_answer(request):
            plan = self._plan(request)
            plan.is_hung, plan.leaves_at = True, closes_at
            self._is_mute = True

    # ------------------------------------------------------------------ errors

    def _fail(self, rule: Rule, request: WireRequest, error: ErrorCode, *, applied: bool) -> None:
        if not expects_answer(request):
            if applied:
                self._give(request)
            self.is_closing = True
            return
        try:
            message = request.request
        except LabError:
            self._give(request)  # the broker says what is wrong with it
            return
        version = request.format_of(type(message))
        is_meant = rule.wanted.is_meant if rule.wanted.has_places else None
        refused = refusal(message, version, error, is_meant, request.name_of)
        if applied:
            self._give(request)
            plan = self._plan(request)
            plan.errors, plan.replaces = refused.answer, refused.rest is None
        elif refused.rest is None:
            self._answer_here(request, encoded_answer(refused.answer, version, request.correlation_id))
        else:
            self._give_rest(request, refused.rest)
            self._plan(request).errors = refused.answer

    def _answer_here(self, request: WireRequest, frame: bytes) -> None:
        self._expect(request)
        self._plan(request).answer = frame
        self._advance()

    def _give_rest(self, request: WireRequest, rest: Message) -> None:
        cls = type(rest)
        header = RequestHeader(request.api_key, request.version, request.correlation_id, request.client_id)
        head = encode_request_header(header, request_header_version(cls, request.version))
        self.to_broker += _framed(head + rest.encode(request.version))
        self._expect(request)

    def _needs_partitions(self, request: WireRequest) -> bool:
        """True for a Fetch within a session whose partitions a rule has to know."""
        if request.api_key != FETCH_KEY or not self._is_ruled_by_partitions(request):
            return False
        try:
            epoch: int = request.request.session_epoch
        except LabError:
            return False
        return epoch > 0

    def _is_ruled_by_partitions(self, request: WireRequest) -> bool:
        return self._rules.name_partitions_of_fetches(is_of_broker=request.is_of_broker)

    def _end_fetch_session(self, request: WireRequest) -> None:
        # As if the broker had forgotten the session; the client then names all partitions.
        request.rule = SESSION_ENDED
        refused = refusal(request.request, request.version, ErrorCode.FETCH_SESSION_ID_NOT_FOUND, None, request.name_of)
        self._answer_here(request, encoded_answer(refused.answer, request.version, request.correlation_id))

    # ------------------------------------------------------------------ from the broker

    def next_piece(self, view: memoryview) -> tuple[bool, int]:
        """Say how many of these bytes of the broker go together, and whether they pass to the client as they are.

        The caller sends passing bytes and calls `said` with those that were sent; others it gives to `take`.
        """
        if self.is_foreign:
            return True, len(view)
        if inside := self._from_broker.until_boundary():
            return True, min(inside, len(view))
        if self._taken or not self._passes():
            return False, min(self._missing(view), len(view))
        if len(view) < SIZE_BYTES:
            return True, len(view)
        return True, min(SIZE_BYTES + max(0, _size.unpack_from(view)[0]), len(view))

    def _passes(self) -> bool:
        """True if the next answer of the broker is the one that the client waits for, and no rule changes it."""
        if not self._awaited or self.is_closing:
            return not self.is_closing
        first = self._awaited[0]
        return first not in self._plans and not (first.api_key == FETCH_KEY and self._is_ruled_by_partitions(first))

    def _missing(self, view: memoryview) -> int:
        have = len(self._taken)
        start = bytes(self._taken[:SIZE_BYTES]) + bytes(view[: max(0, SIZE_BYTES - have)])
        if len(start) < SIZE_BYTES:
            return len(view)
        return max(SIZE_BYTES, SIZE_BYTES + int(_size.unpack(start)[0])) - have

    def take(self, view: memoryview, now: float) -> None:
        """Take bytes for which `next_piece` said so."""
        self._look_at_clocks(now)
        self._taken += view
        if len(self._taken) < SIZE_BYTES or self._missing(memoryview(b"")) > 0:
            return
        frame = bytes(self._taken[SIZE_BYTES:])
        self._taken.clear()
        try:
            self._taken_whole(frame)
        except NotKafka:
            self._let_go(frame)
        self._advance()

    def _taken_whole(self, frame: bytes) -> None:
        request = self._answered_next()
        if request is None or len(frame) < 4 or _size.unpack_from(frame)[0] != request.correlation_id:
            raise NotKafka("an answer to another request")
        plan = self._plans.get(request)
        if plan is None:
            plan = self._plans[request] = _Plan()
        if plan.discards:
            plan.discards -= 1
            self._awaited.remove(request)  # the first of two
            return
        if request.api_key == FETCH_KEY and self._is_ruled_by_partitions(request):
            frame = _without_session(request, frame)
        if plan.errors is not None:
            frame = self._with_errors(request, frame, plan)
        plan.answer = frame

    def _answered_next(self) -> WireRequest | None:
        """Return the request that the broker answers next."""
        for request in self._awaited:
            plan = self._plans.get(request)
            if plan is None or plan.answer is None:
                return request
        return None

    def _with_errors(self, request: WireRequest, frame: bytes, plan: _Plan) -> bytes:
        answer: Any = plan.errors
        assert answer is not None
        if not plan.replaces:
            answer = request.decode_answer(frame)
            merge(answer, plan.errors)  # type: ignore[arg-type]
        return encoded_answer(answer, request.format_of(type(answer)), request.correlation_id)

    def _let_go(self, frame: bytes) -> None:
        """Pass everything as it is from now on: the answers do not fit the requests."""
        self.is_foreign = True
        self.to_client += _framed(frame)
        self._plans.clear()

    def _advance(self) -> None:
        """Let answers leave that are ready, in their order."""
        while self._awaited and not self.is_closing:
            request = self._awaited[0]
            plan = self._plans.get(request)
            if plan is not None and plan.is_hung:
                self.is_closing = plan.leaves_at <= self._now
                return
            if plan is None or plan.answer is None or plan.leaves_at > self._now:
                return
            self._awaited.popleft()
            del self._plans[request]
            self._leave(request, plan, plan.answer)

    def _leave(self, request: WireRequest, plan: _Plan, frame: bytes) -> None:
        if plan.is_closing:
            self.is_closing = True
            return
        whole = _framed(frame)
        if plan.is_half:
            self.to_client += whole[: len(whole) // 2]
            self.is_closing = True
            return
        self.to_client += whole
        self._answered(request, len(frame), frame, self._from_broker.offset)
        self._from_broker.offset += len(whole)


def _framed(frame: bytes) -> bytes:
    return _size.pack(len(frame)) + frame


def _without_session(request: WireRequest, frame: bytes) -> bytes:
    """Return a Fetch answer that opens no session."""
    if request.version < _NAMES_SESSIONS:
        return frame
    is_flexible = request.version in FetchResponse.flexible
    start = 4 + is_flexible + 4 + 2  # header, throttle time, error
    return frame[:start] + bytes(4) + frame[start + 4 :]
