"""The primary among several instances, elected by a group of the cluster as in Confluent's and Karapace's registries.

All instances are members of one classic group of the type "sr". Each member sends its address in the protocol "v0". The
group's leader chooses the primary and sends it to all members as the assignment: the present primary, or else the eligible
member with the lowest address. Only the primary writes. Between two generations there is none, and writes wait.

    identity      {"version":1,"host":"a","port":8081,"master_eligibility":true,"scheme":"http","leader":false}
    assignment    {"version":1,"error":0,"master":"<member id>","master_identity":<identity>}

Source: `SchemaRegistryCoordinator.java`, `SchemaRegistryProtocol.java`, and Karapace's `master_coordinator.py`.
"""

from __future__ import annotations

import json
import logging
import math
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import trio

from ottla.replication.reminders import Reminder
from ottla.server.cli.client.cluster import Cluster, TemporaryFailure
from ottla.server.cli.client.connection import BrokerConnection
from ottla.server.cli.client.output import RequestFailed, UsageError
from ottla.server.registry.topic import Reach, SchemasTopic
from ottla.wire.errors import ErrorCode
from ottla.wire.foreign_json import parse_json
from ottla.wire.messages.classic_group import (
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    LeaveGroupRequest,
    MemberIdentity,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)

logger = logging.getLogger("ottla.registry")

PROTOCOL_TYPE, PROTOCOL = "sr", "v0"
SESSION_MS, REBALANCE_MS, HEARTBEAT_S = 10_000, 300_000, 3.0
KNOWN_S, LEAVE_S, RETRY_S = 15.0, 2.0, 1.0
DUPLICATE_URLS = 1
_JOIN_MAX_VERSION, _SYNC_MAX_VERSION, _HEARTBEAT_MAX_VERSION, _LEAVE_MAX_VERSION = 5, 3, 3, 3
_UNKNOWN = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.FENCED_INSTANCE_ID)


@dataclass(frozen=True)
class Identity:
    """Address of a registry instance, and whether the instance may become the primary."""

    host: str
    port: int
    scheme: str = "http"
    is_eligible: bool = True
    is_primary: bool = False

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"

    def json(self) -> Mapping[str, Any]:
        """Return the identity in the JSON form that other registries understand."""
        return {
            "version": 1,
            "host": self.host,
            "port": self.port,
            "master_eligibility": self.is_eligible,
            "scheme": self.scheme,
            "leader": self.is_primary,
        }


def parse_identity(value: object) -> Identity | None:
    """Parse a member's identity; None if the member is no registry instance."""
    match value:
        case {"host": str() as host, "port": int() as port, **more}:
            return Identity(
                host,
                port,
                "https" if more.get("scheme") == "https" else "http",
                more.get("master_eligibility") is not False,
                more.get("leader") is True,
            )
    return None


def _parsed(data: bytes) -> object:
    try:
        return parse_json(bytes(data))
    except (ValueError, RecursionError):
        return None


class Assignment(NamedTuple):
    """Result of the election: the primary's member id and identity; both None if no member is eligible."""

    member_id: str | None
    primary: Identity | None
    error: int = 0

    def encoded(self) -> bytes:
        members = {
            "version": 1,
            "error": self.error,
            "master": self.member_id,
            "master_identity": None if self.primary is None else self.primary.json(),
        }
        return json.dumps({name: value for name, value in members.items() if value is not None}).encode()


def parse_assignment(data: bytes) -> Assignment:
    """Parse the result of an election; a malformed result has no primary."""
    match _parsed(data):
        case {"master_identity": identity, **more}:
            member_id, error = more.get("master"), more.get("error")
            return Assignment(
                member_id if isinstance(member_id, str) else None,
                parse_identity(identity),
                error if isinstance(error, int) else 0,
            )
    return Assignment(None, None)


def elect(members: Mapping[str, bytes]) -> Assignment:
    """Elect the primary; return the result. `members`: encoded identities by member id."""
    known = {name: found for name, data in members.items() if (found := parse_identity(_parsed(data))) is not None}
    eligible = {name: each for name, each in known.items() if each.is_eligible}
    error = 0 if len({each.url for each in known.values()}) == len(known) else DUPLICATE_URLS
    if not eligible:
        return Assignment(None, None, error)
    present = [name for name, each in eligible.items() if each.is_primary]
    name = present[0] if len(present) == 1 else min(eligible, key=lambda each: eligible[each].url)
    return Assignment(name, eligible[name], error)


class Election:
    """Election of the primary, seen from this instance. Use it only in the event loop's thread."""

    def __init__(self, reach: Reach, group: str, identity: Identity, topic: SchemasTopic) -> None:
        self.identity = identity
        self.primary: Identity | None = None
        """The primary as far as this instance knows."""
        self._is_elected = False
        self._confirmed_s = -math.inf
        self._reach, self._group, self._topic = reach, group, topic
        self._known, self._changed = trio.Event(), trio.Event()
        self._threads = trio.CapacityLimiter(2)

    @property
    def is_primary(self) -> bool:
        """True if this instance may write: it is elected, and was confirmed within the session timeout."""
        return self._is_elected and trio.current_time() - self._confirmed_s < SESSION_MS / 1000

    def confirmed(self) -> None:
        """Record that the group has just confirmed this instance as a member."""
        self._confirmed_s = trio.current_time()

    async def run(self) -> None:
        """Take part in the election until cancelled; then leave the group, so that it soon elects another primary."""
        await self._topic.loaded.wait()
        member = _Member(self, self._reach, self._group)
        try:
            await trio.to_thread.run_sync(member.run, abandon_on_cancel=True, limiter=self._threads)
        finally:
            self._is_elected = False
            member.stop()
            with trio.CancelScope(shield=True), trio.move_on_after(LEAVE_S):
                await trio.to_thread.run_sync(member.leave, abandon_on_cancel=True, limiter=self._threads)

    async def settled(self) -> None:
        """Wait until a primary is elected, but at most KNOWN_S seconds."""
        with trio.move_on_after(KNOWN_S):
            await self._known.wait()

    async def has_other_than(self, gone: Identity) -> bool:
        """Wait until an instance other than `gone` is primary; return False if none is after KNOWN_S seconds."""
        with trio.move_on_after(KNOWN_S):
            while self.primary is None or self.primary.url == gone.url:
                await self._changed.wait()
            return True
        return False

    def told(self, assignment: Assignment | None) -> None:
        """Adopt the result of an election; None means that a new election is in progress."""
        was_primary = self._is_elected
        self.primary = None if assignment is None else assignment.primary
        changed, self._changed = self._changed, trio.Event()
        changed.set()
        self._is_elected = self.primary is not None and self.primary.url == self.identity.url
        self.confirmed()
        if assignment is None or self.primary is None:
            if self._known.is_set():
                self._known = trio.Event()
            return
        if assignment.error == DUPLICATE_URLS:
            logger.error("two registries have one address, %s: give each its own by --advertise", self.identity.url)
        self.identity = replace(self.identity, is_primary=self._is_elected)
        if self._is_elected and not was_primary:
            # Another one may have written until now.
            self._topic.become_unsure()
        logger.info("the primary is %s%s", self.primary.url, " (this one)" if self._is_elected else "")
        self._known.set()


class _Member:
    """Member of the election's consumer group, for this instance. It runs in a thread."""

    def __init__(self, election: Election, reach: Reach, group: str) -> None:
        self._election, self._reach, self._group = election, reach, group
        self._stopped = threading.Event()
        self._member_id, self._generation = "", -1
        self._troubled = Reminder()

    def stop(self) -> None:
        self._stopped.set()

    def run(self) -> None:
        with suppress(trio.RunFinishedError, trio.Cancelled):
            while not self._stopped.is_set():
                cluster = None
                try:
                    cluster = self._reach()
                    coordinator = cluster.coordinator(self._group)
                    coordinator.patience_s = REBALANCE_MS / 1000  # a rebalance takes its time
                    self._belong(cluster, coordinator)
                except TemporaryFailure as error:
                    logger.info("the election of a primary has to wait: %s", error)
                except (RequestFailed, UsageError, OSError) as error:
                    self._troubled.tell(logger.warning, "no part in the election of a primary: %s", error)
                finally:
                    if cluster is not None:
                        cluster.close()
                self._tell(None)
                self._stopped.wait(RETRY_S)

    def leave(self) -> None:
        """Leave the group, by a connection of its own. Errors are ignored."""
        if not self._member_id:
            return
        with suppress(RequestFailed, UsageError, TemporaryFailure, OSError):
            cluster = self._reach()
            try:
                member = MemberIdentity(member_id=self._member_id)
                request = LeaveGroupRequest(group_id=self._group, member_id=self._member_id, members=[member])
                cluster.coordinator(self._group).ask(request, at_most=_LEAVE_MAX_VERSION, timeout_s=LEAVE_S)
            finally:
                cluster.close()

    def _belong(self, cluster: Cluster, coordinator: BrokerConnection) -> None:
        """Stay a member, and report election results, until stopped. Raises an error if the coordinator fails."""
        while not self._stopped.is_set():
            assignment = self._joined(cluster, coordinator)
            if assignment is None:
                continue
            self._tell(assignment)
            while not self._stopped.wait(HEARTBEAT_S):
                request = HeartbeatRequest(
                    group_id=self._group, generation_id=self._generation, member_id=self._member_id
                )
                code = coordinator.ask(request, at_most=_HEARTBEAT_MAX_VERSION).error_code
                if code == ErrorCode.REBALANCE_IN_PROGRESS or code in _UNKNOWN:
                    self._forget_if_unknown(code)
                    break
                cluster.check(f"membership of group {self._group}", code)
                trio.from_thread.run_sync(self._election.confirmed)
            self._tell(None)

    def _joined(self, cluster: Cluster, coordinator: BrokerConnection) -> Assignment | None:
        """Join the group; return the election's result, or None if the caller must join again at once."""
        metadata = json.dumps(self._election.identity.json()).encode()
        request = JoinGroupRequest(
            group_id=self._group,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            member_id=self._member_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=[JoinGroupRequestProtocol(name=PROTOCOL, metadata=metadata)],
        )
        joined = coordinator.ask(request, at_most=_JOIN_MAX_VERSION, timeout_s=REBALANCE_MS / 1000 + HEARTBEAT_S)
        if joined.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self._member_id = joined.member_id
            return None
        if joined.error_code in _UNKNOWN:
            self._forget_if_unknown(joined.error_code)
            return None
        cluster.check(f"group {self._group}", joined.error_code)
        self._member_id, self._generation = joined.member_id, joined.generation_id
        assignments = []
        if joined.leader == joined.member_id:
            data = elect({each.member_id: bytes(each.metadata) for each in joined.members}).encoded()
            assignments = [
                SyncGroupRequestAssignment(member_id=each.member_id, assignment=data) for each in joined.members
            ]
        sync = SyncGroupRequest(
            group_id=self._group, generation_id=self._generation, member_id=self._member_id, assignments=assignments
        )
        synced = coordinator.ask(sync, at_most=_SYNC_MAX_VERSION)
        if synced.error_code == ErrorCode.REBALANCE_IN_PROGRESS or synced.error_code in _UNKNOWN:
            self._forget_if_unknown(synced.error_code)
            return None
        cluster.check(f"group {self._group}", synced.error_code)
        return parse_assignment(bytes(synced.assignment))

    def _forget_if_unknown(self, code: int) -> None:
        if code in _UNKNOWN:
            self._member_id, self._generation = "", -1

    def _tell(self, assignment: Assignment | None) -> None:
        if not self._stopped.is_set():
            trio.from_thread.run_sync(self._election.told, assignment)
