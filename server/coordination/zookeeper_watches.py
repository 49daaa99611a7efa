"""Watches that last, over those of ZooKeeper, which fire once and are lost with the connection.

A watch is set when somebody first listens, and set again when it fires, before its listeners are called: so what they read
then is served after it, and no change is missed. kazoo throws its watches away when the connection is lost. They are set anew
when it is back, and the listeners of those whose node has changed meanwhile are called. A watch that nobody listens
to any more stays set until it fires.

The children of a node that does not exist cannot be watched; such a watch waits for the node instead.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Any

from kazoo import exceptions as kazoo_errors
from kazoo.protocol.states import EventType

from ottla.replication.cluster.coordination import OnChange

logger = logging.getLogger("ottla.zookeeper")

_UNKNOWN = object()


class _Watch:
    """What is watched of a node: the node itself, or its children. ZooKeeper's watches fire once and are set again.

    It is called with the event. This is one object, because kazoo tells watches apart by it, and it holds nothing that holds it.
    """

    __slots__ = ("_on_event", "is_set", "listeners", "of_children", "path", "seen", "was_cut_off")

    def __init__(self, path: str, of_children: bool, on_event: Callable[[_Watch, Any], None]) -> None:
        self.path = path
        self.of_children = of_children
        self._on_event = on_event
        self.listeners: dict[object, OnChange] = {}
        self.is_set = False
        self.was_cut_off = False
        self.seen: object = _UNKNOWN  # the transactions that a change would replace, when the watch was last set

    def __call__(self, event: Any) -> None:
        self._on_event(self, event)

    def call(self) -> None:
        # A listener may cancel others, or add some. The copy keeps
        # the loop safe, the look spares those that were cancelled.
        for token, listener in list(self.listeners.items()):
            if token in self.listeners:
                listener(self.path)


class Watches:
    """All watches of one session."""

    def __init__(self, absolute: Callable[[str], str]) -> None:
        """`absolute` makes the path of a node in ZooKeeper from that of the port."""
        self._absolute = absolute
        self._client: Any = None  # while connected
        self._known: dict[tuple[bool, str], _Watch] = {}

    def resume(self, client: Any) -> None:
        """There is a connection: requests sent from now on are answered after these."""
        self._client = client
        # kazoo throws its watches away with the connection, so each one is set again.
        for watch in self._known.values():
            self._set(watch)

    def cut_off(self) -> None:
        self._client = None
        # Nobody listens to these any more, and without a connection
        # they can never fire: the last chance to forget them.
        self._known = {key: watch for key, watch in self._known.items() if watch.listeners}
        for watch in self._known.values():
            # Events may be missing from here on. `_compare` finds out by the numbers of transactions.
            watch.was_cut_off, watch.is_set = True, False

    def watch(self, path: str, of_children: bool, on_change: OnChange) -> Callable[[], None]:
        path = "" if path == "/" else path
        watch = self._known.get((of_children, path))
        if watch is None:
            watch = self._known[of_children, path] = _Watch(path, of_children, self._fired)
        # The same function may listen twice, so that the function itself cannot be the key.
        token = object()
        watch.listeners[token] = on_change
        if not watch.is_set:
            self._set(watch)

        def cancel() -> None:
            watch.listeners.pop(token, None)
            # A watch that is set stays known: kazoo will call it, and whoever listens by then needs no second request.
            if not watch.listeners and not watch.is_set and self._known.get((of_children, path)) is watch:
                del self._known[of_children, path]

        return cancel

    def _set(self, watch: _Watch) -> None:
        if self._client is None:
            return
        path = self._absolute(watch.path)
        # When it is sent, not when it is answered: those who come meanwhile share it.
        watch.is_set = True
        if watch.of_children:
            # `include_data` brings the transaction of the last change of children, which `_compare` needs.
            request = self._client.get_children_async(path, watch, include_data=True)
        else:
            # `exists` sets the watch even where there is no node, and then hears of its creation.
            request = self._client.exists_async(path, watch)
        request.rawlink(partial(self._was_set, watch))

    def _set_for_creation(self, watch: _Watch) -> None:
        """A node that does not exist has no children to watch; watch for the node."""
        request = self._client.exists_async(self._absolute(watch.path), watch)
        request.rawlink(partial(self._was_set_for_creation, watch))

    def _was_set(self, watch: _Watch, answer: Any) -> None:
        # This answers a request of a connection that is lost. The watch was lost with it.
        if self._client is None:
            return
        if answer.successful():
            stat = answer.value[1] if watch.of_children else answer.value
            self._compare(
                watch, None if stat is None else (stat.czxid, stat.pzxid if watch.of_children else stat.mzxid)
            )
        elif isinstance(answer.exception, kazoo_errors.NoNodeError):
            self._set_for_creation(watch)
        else:
            self._could_not_set(watch, answer)

    def _was_set_for_creation(self, watch: _Watch, answer: Any) -> None:
        if self._client is None:
            return
        if not answer.successful():
            self._could_not_set(watch, answer)
        elif answer.value is None:
            self._compare(watch, None)
        else:  # it was made in between
            # The children can be watched now. Whoever reads them has to look, because no event told of the creation.
            self._set(watch)
            watch.call()

    def _could_not_set(self, watch: _Watch, answer: Any) -> None:
        # A lost connection is no news here: `resume` sets every watch again.
        if not isinstance(answer.exception, kazoo_errors.ConnectionLoss):
            logger.error("Cannot watch %s in ZooKeeper: %r", watch.path, answer.exception)

    def _compare(self, watch: _Watch, seen: object) -> None:
        """After the connection was lost: was there a change without an event?"""
        # A first answer only says where things stand. A listener reads by itself after it has set its watch.
        missed = watch.was_cut_off and seen != watch.seen
        watch.was_cut_off, watch.seen = False, seen
        if missed:
            watch.call()

    def _fired(self, watch: _Watch, event: Any) -> None:
        if event.type == EventType.NONE:
            return  # the connection is lost
        watch.is_set = False
        # It is not set any more, so nothing will call it again.
        if not watch.listeners:
            self._known.pop((watch.of_children, watch.path), None)
            return
        # Set before the listeners read: a change between their read and a later watch would be missed.
        self._set(watch)
        watch.call()
