"""Election of the controller, by an ephemeral node and an epoch that only grows (Kafka's class KafkaController).

    election = ControllerElection(session, node_id, ...)
    await nursery.start(election.run)  # until the session is over
    election.active                    # an ActiveController while this broker is the controller

    watching -> /controller is gone -> standing -> elected: `active` -> deposed, or /controller is not ours -> watching

Who creates /controller and raises /controller_epoch, both in one multi, is elected. If the outcome of that write is
unknown, the node's owner shows it. The epoch is read before the node: if the node is ours then, the epoch is ours, too.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

import trio

from ottla.replication.cluster import znodes
from ottla.replication.cluster.coordination import (
    BadVersion,
    Check,
    Coordination,
    CoordinationError,
    CoordinationUnavailable,
    Create,
    Delete,
    Node,
    NodeExists,
    NoNode,
    SessionExpired,
    SetData,
)
from ottla.replication.cluster.metadata_cache import NO_CONTROLLER, BrokerRegistration
from ottla.replication.cluster.peers import Peer
from ottla.replication.controller.partition_states import Leads, leads_nothing
from ottla.replication.system import system_clock_ms
from ottla.server.cluster.controller.active_controller import ActiveController
from ottla.server.cluster.controller.tree import Deposed

if TYPE_CHECKING:
    from ottla.server.config.broker_config import BrokerConfig

logger = logging.getLogger("ottla.controller")

RETRY_S = 0.1
AFTER_FAILURE_S = 1.0


class Term(NamedTuple):
    """One broker's time as controller: its controller epoch, and the version of /controller_epoch for its writes."""

    epoch: int
    epoch_version: int


class ControllerElection:
    def __init__(
        self,
        session: Coordination,
        node_id: int,
        *,
        peer: Callable[[BrokerRegistration], Peer],
        inter_broker_listener: str,
        is_unclean: Callable[[str], bool],
        config: Callable[[], BrokerConfig],
        is_alone: bool = False,
        leads: Leads = leads_nothing,
        clock_ms: Callable[[], int] = system_clock_ms,
    ) -> None:
        """Create this broker's participation in controller elections.

        `peer` connects to any registered broker. `is_unclean` tells whether a topic allows unclean elections.
        `is_alone`: no other broker uses the tree. `leads` says which partitions this broker leads, and since which
        leader epoch.
        """
        self.active: ActiveController | None = None
        self.controller_id = NO_CONTROLLER
        self.takes_envelopes = True
        """Whether the controller takes requests that other brokers hand on to it; Kafka 3.9's does not."""
        self.moved = trio.Event()
        """Set when another broker or none is the controller, or this broker has just become it; replaced each time."""
        self._session, self._node_id, self._peer = session, node_id, peer
        self._listener = inter_broker_listener
        self._is_unclean, self._config, self._is_alone = is_unclean, config, is_alone
        self._leads, self._clock_ms = leads, clock_ms
        self._changed = trio.Event()  # of /controller or the session; replaced each time

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Take part in elections until the session ends. Report `started` when a controller is known, or at the end."""
        watches: list[Callable[[], None]] = []
        try:
            watches.append(self._session.watch_session(self._note_change))
            watches.append(self._session.watch_node(znodes.CONTROLLER, lambda _: self._note_change()))
            while True:
                # Taken before the look: a change that comes during it is not missed.
                changed = self._changed
                term = await self._look()
                task_status.started()
                task_status = trio.TASK_STATUS_IGNORED  # trio allows one call of `started`
                if term is None:
                    await changed.wait()
                else:
                    await self._serve(term)
        except SessionExpired:
            logger.info("Broker %d takes no part in elections without a session", self._node_id)
            task_status.started()
        finally:
            # Without a session nobody here knows who the controller is.
            self.active = None
            self._note_controller(NO_CONTROLLER)
            for cancel in watches:
                cancel()

    def _note_change(self) -> None:
        # Everybody who waits is woken, and whoever looks from now on waits for the next change.
        self._changed.set()
        self._changed = trio.Event()

    # ------------------------------------------------------------------ watching and standing

    async def _look(self) -> Term | None:
        """Find the controller or stand for election; return this broker's term, None if it is not the controller."""
        while True:
            try:
                epoch = await self._epoch()
                node = await self._controller()
                term = Term(znodes.decode_controller_epoch(epoch.data), epoch.version)
                if node is None:
                    if (elected := await self._stand(term)) is not None:
                        return elected
                else:
                    return self._follow(node, term)
            except CoordinationUnavailable:
                # If an election was under way, the next look tells by the node's owner how it ended.
                await self._session.until_available()
                await trio.sleep(RETRY_S)
            except znodes.MalformedNode as problem:
                logger.error("No broker can be elected controller: %s", problem)
                self._note_controller(NO_CONTROLLER)
                return None

    def _follow(self, node: Node, term: Term) -> Term | None:
        controller_id = znodes.decode_controller(node.data)
        if controller_id != self.controller_id:
            logger.info("Broker %d is the controller", controller_id)
        self._note_controller(controller_id, takes_envelopes=znodes.takes_envelopes(node.data))
        return term if node.owner == self._session.session_id else None

    def _note_controller(self, controller_id: int, *, takes_envelopes: bool = True) -> None:
        self.controller_id, self.takes_envelopes = controller_id, takes_envelopes
        self.moved.set()
        self.moved = trio.Event()

    async def _stand(self, before: Term) -> Term | None:
        """Stand for election; return this broker's term if it wins, None if another broker won."""
        self._note_controller(NO_CONTROLLER)
        epoch = before.epoch + 1
        node = znodes.encode_controller(self._node_id, self._clock_ms())
        try:
            _, version = await self._session.multi(
                [
                    # Whoever has the node has the epoch: never one without the other.
                    Create(znodes.CONTROLLER, node, ephemeral=True),
                    SetData(znodes.CONTROLLER_EPOCH, znodes.encode_controller_epoch(epoch), before.epoch_version),
                ]
            )
        except (NodeExists, BadVersion, NoNode):
            return None  # another broker was faster; `_look` reads who
        assert isinstance(version, int)
        self._note_controller(self._node_id)
        return Term(epoch, version)

    async def _epoch(self) -> Node:
        while True:
            with suppress(NoNode):
                return await self._session.get(znodes.CONTROLLER_EPOCH)
            with suppress(NodeExists):
                # Kafka begins with 0 as well; the first elected controller raises it to 1.
                await self._session.multi([Create(znodes.CONTROLLER_EPOCH, znodes.encode_controller_epoch(0))])

    async def _controller(self) -> Node | None:
        try:
            return await self._session.get(znodes.CONTROLLER)
        except NoNode:
            return None

    # ------------------------------------------------------------------ in office

    async def _serve(self, term: Term) -> None:
        """Act as the controller until the term ends. Raises SessionExpired."""
        logger.info("Broker %d was elected controller, epoch %d", self._node_id, term.epoch)
        # Set before it has loaded anything: requests wait for their turn behind that.
        self.active = ActiveController(
            self._session,
            self._node_id,
            epoch=term.epoch,
            epoch_version=term.epoch_version,
            peer=self._peer,
            inter_broker_listener=self._listener,
            is_unclean=self._is_unclean,
            config=self._config,
            is_alone=self._is_alone,
            leads=self._leads,
            on_doubt=self._note_change,
        )
        failure: Exception | None = None
        try:
            async with trio.open_nursery() as nursery:
                if not self._is_alone:
                    nursery.start_soon(self._watch_controller, nursery.cancel_scope)
                try:
                    await self.active.run()
                except Exception as error:  # noqa: BLE001 - a failing controller has to make way, whatever it is
                    failure = error
                nursery.cancel_scope.cancel()  # `_watch_controller` goes on otherwise
        finally:
            self.active = None
            logger.info("Broker %d resigned as controller, epoch %d", self._node_id, term.epoch)
        # Unavailable: there is no waiting for the service; see `EmbeddedCoordination.is_patient`.
        if isinstance(failure, (SessionExpired, CoordinationUnavailable)):
            raise failure
        if failure is not None and not isinstance(failure, Deposed):
            logger.error("The controller failed, and makes way for another one", exc_info=failure)
            # Otherwise this broker would stay the controller, and fail, as long as its session lives.
            await self._step_down(term)

    async def _watch_controller(self, office: trio.CancelScope) -> None:
        """Cancel `office`, the scope of this term, when /controller changes or an operator deletes it.

        Operators delete /controller to force an election.
        """
        is_ours = True
        while is_ours:
            changed = self._changed  # before the look, as in `run`
            try:
                node = await self._controller()
            except CoordinationUnavailable:
                is_ours = await self._is_available_again()
            except SessionExpired:
                is_ours = False
            else:
                is_ours = node is not None and node.owner == self._session.session_id
                if is_ours:
                    await changed.wait()
        office.cancel()

    async def _is_available_again(self) -> bool:
        """Wait for the coordination service; return True when it is available, False if the session expires first."""
        try:
            await self._session.until_available()
        except SessionExpired:
            return False
        await trio.sleep(RETRY_S)
        return True

    async def _step_down(self, term: Term) -> None:
        try:
            # Only the node of this term: somebody else may be in office by now.
            await self._session.multi([Check(znodes.CONTROLLER_EPOCH, term.epoch_version), Delete(znodes.CONTROLLER)])
        except SessionExpired:
            raise
        except CoordinationError as problem:
            logger.info("/controller stays as it is: %r", problem)
        await trio.sleep(AFTER_FAILURE_S)  # so that another broker is elected, if there is one
