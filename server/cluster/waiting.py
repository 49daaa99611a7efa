"""Waiting until the picture of the cluster shows what was asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.replication.cluster.metadata_cache import MetadataCache


async def until_shown(cluster: MetadataCache, is_shown: Callable[[], bool], *, timeout_s: float) -> bool:
    """Wait until `is_shown`, looked at after every change of brokers and topics; False if that takes longer than `timeout_s`."""
    changed = trio.Event()

    def on_change(_: str = "") -> None:
        changed.set()

    cancel_both = cluster.on_topic_change(on_change), cluster.on_broker_change(on_change)
    try:
        with trio.move_on_after(max(timeout_s, 0)):
            while not is_shown():
                await changed.wait()
                changed = trio.Event()
            return True
        # The change may have come together with the end of the time.
        return is_shown()
    finally:
        for cancel in cancel_both:
            cancel()
