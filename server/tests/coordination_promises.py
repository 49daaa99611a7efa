"""What `replication/cluster/coordination.py` promises, as conversations that every adapter has to pass: `PROMISES`.

Each takes a `Coordination` whose tree is empty.
"""

import trio

from ottla.replication.cluster.coordination import (
    ANY_VERSION,
    BadVersion,
    Check,
    Coordination,
    CoordinationError,
    Create,
    Delete,
    NodeExists,
    NoNode,
    NotEmpty,
    Operation,
    SetData,
)

MANY = 10_000
PER_MULTI = 500


async def refusal(coordination: Coordination, *operations: Operation) -> CoordinationError:
    """The error that a multi raises."""
    try:
        done = await coordination.multi(operations)
    except CoordinationError as error:
        return error
    raise AssertionError(f"{operations} was done: {done}")


class Calls:
    """A listener that remembers its calls."""

    def __init__(self) -> None:
        self.paths: list[str] = []
        self._called = trio.Event()

    def __call__(self, path: str) -> None:
        self.paths.append(path)
        self._called.set()
        self._called = trio.Event()

    async def more_than(self, count: int) -> int:
        """Wait for the next call after `count`; answers how many there were."""
        with trio.fail_after(60):
            while len(self.paths) <= count:
                await self._called.wait()
        return len(self.paths)


async def settled(coordination: Coordination) -> None:
    """Return when every watch has been called for what was done before: calls come before answers."""
    await coordination.get_all(["/"])


# --- writes -----------------------------------------------------------------------------------------------------------


async def a_multi_does_all_or_nothing(coordination: Coordination) -> None:
    await coordination.multi([Create("/a", b"1"), Create("/b")])
    before = await coordination.get_all(["/a", "/b", "/c"])
    error = await refusal(
        coordination, SetData("/a", b"2"), Delete("/b"), Create("/c"), Create("/c/d"), Check("/a", 0), Create("/e")
    )
    assert (type(error), error.path) == (BadVersion, "/a")
    assert await coordination.get_all(["/a", "/b", "/c"]) == before
    assert sorted(await coordination.children("/")) == ["a", "b"]


async def a_multi_answers_paths_and_versions(coordination: Coordination) -> None:
    await coordination.multi([Create("/a"), Create("/gone")])
    assert await coordination.multi(
        [Create("/b"), SetData("/a", b"x"), SetData("/a", b"y"), Delete("/gone"), Check("/a", 2), Create("/b/c")]
    ) == ["/b", 1, 2, None, None, "/b/c"]
    assert await coordination.multi([]) == []


async def versions_guard_writes(coordination: Coordination) -> None:
    await coordination.multi([Create("/a", b"1")])
    assert await coordination.multi([SetData("/a", b"2", 0)]) == [1]
    for operation in (SetData("/a", b"3", 0), Delete("/a", 0), Check("/a", 0)):
        assert isinstance(await refusal(coordination, operation), BadVersion)
    assert (await coordination.get("/a"))[:2] == (b"2", 1)
    assert await coordination.multi([SetData("/a", b"3", ANY_VERSION), Check("/a", ANY_VERSION)]) == [2, None]
    await coordination.multi([Delete("/a", 2)])
    assert await coordination.get_all(["/a"]) == [None]


async def impossible_operations_name_the_path(coordination: Coordination) -> None:
    await coordination.multi([Create("/a"), Create("/a/b"), Create("/e", ephemeral=True)])
    for operation, kind, path in (
        (Create("/a"), NodeExists, "/a"),
        (Create("/x/y"), NoNode, "/x"),
        (Delete("/a"), NotEmpty, "/a"),
        (Delete("/x"), NoNode, "/x"),
        (SetData("/x", b""), NoNode, "/x"),
        (Check("/x", 0), NoNode, "/x"),
        (Create("/e/f"), NotEmpty, "/e"),
    ):
        error = await refusal(coordination, operation)
        assert (type(error), error.path) == (kind, path), operation


async def the_first_impossible_operation_names_the_error(coordination: Coordination) -> None:
    await coordination.multi([Create("/a")])
    error = await refusal(coordination, Create("/b"), Check("/a", 7), Create("/a"), Delete("/x"))
    assert (type(error), error.path) == (BadVersion, "/a")


async def sequential_nodes_are_numbered(coordination: Coordination) -> None:
    await coordination.multi([Create("/q")])
    made = await coordination.multi([Create("/q/n_", b"x", sequential=True)] * 2)
    assert made == ["/q/n_0000000000", "/q/n_0000000001"]
    await coordination.multi([Delete("/q/n_0000000001")])
    assert await coordination.multi([Create("/q/n_", sequential=True)]) == ["/q/n_0000000002"]


async def no_update_is_lost_among_many_writers(coordination: Coordination) -> None:
    await coordination.multi([Create("/count", b"0")])

    async def count() -> None:
        for _ in range(10):
            while True:
                await trio.lowlevel.checkpoint()
                node = await coordination.get("/count")
                try:
                    await coordination.multi([SetData("/count", str(int(node.data) + 1).encode(), node.version)])
                    break
                except BadVersion:
                    pass

    async with trio.open_nursery() as nursery:
        for _ in range(5):
            nursery.start_soon(count)
    assert (await coordination.get("/count"))[:2] == (b"50", 50)


# --- reads ------------------------------------------------------------------------------------------------------------


async def nodes_hold_any_bytes(coordination: Coordination) -> None:
    contents = [b"", b"\0", bytes(range(256)) * 100, "ä€".encode()]
    await coordination.multi([Create(f"/{number}", data) for number, data in enumerate(contents)])
    nodes = await coordination.get_all([f"/{number}" for number in range(len(contents))])
    assert [node and node.data for node in nodes] == contents


async def reading_what_is_not_there(coordination: Coordination) -> None:
    for read in (coordination.get, coordination.children, coordination.children_data):
        try:
            await read("/x")
        except NoNode as error:
            assert error.path == "/x"
        else:
            raise AssertionError(f"{read} found something")
    assert await coordination.get_all([]) == []


async def many_nodes_are_read_in_the_order_asked_for(coordination: Coordination) -> None:
    await coordination.multi([Create("/a", b"1"), Create("/b", b"2")])
    nodes = await coordination.get_all(["/b", "/x", "/a", "/b"])
    assert [node and node.data for node in nodes] == [b"2", None, b"1", b"2"]


async def the_root_has_two_names(coordination: Coordination) -> None:
    await coordination.multi([Create("/a", b"1")])
    for root in ("/", ""):
        assert await coordination.children(root) == ["a"]
        assert list(await coordination.children_data(root)) == ["a"]
        assert await coordination.get(root) == (await coordination.get_all([root]))[0]


async def creation_ids_tell_creations_apart(coordination: Coordination) -> None:
    """The broker epoch is the creation id of the broker's node."""
    await coordination.multi([Create("/a")])
    first = await coordination.get("/a")
    await coordination.multi([SetData("/a", b"x")])
    assert (await coordination.get("/a"))[:3] == (b"x", 1, first.creation_id)
    await coordination.multi([Delete("/a")])
    await coordination.multi([Create("/a")])
    assert (await coordination.get("/a")).creation_id > first.creation_id


async def ten_thousand_children(coordination: Coordination) -> None:
    await coordination.multi([Create("/t")])
    expected = {f"topic-{number:05}": f"{number}".encode() for number in range(MANY)}
    creations = [Create(f"/t/{name}", data) for name, data in expected.items()]
    for start in range(0, MANY, PER_MULTI):
        await coordination.multi(creations[start : start + PER_MULTI])
    found = await coordination.children_data("/t")
    assert {name: node.data for name, node in found.items()} == expected


# --- watches ----------------------------------------------------------------------------------------------------------


async def a_node_watch_lasts_over_creation_change_and_deletion(coordination: Coordination) -> None:
    calls, others = Calls(), Calls()
    coordination.watch_node("/a", calls)
    coordination.watch_node("/b", others)
    count = 0
    for operation in (Create("/a"), SetData("/a", b"1"), SetData("/a", b"2"), Delete("/a"), Create("/a")):
        await coordination.multi([operation])
        count = await calls.more_than(count)
    await coordination.multi([Create("/a/b")])  # concerns its children
    await settled(coordination)
    assert (calls.paths, others.paths) == (["/a"] * 5, [])


async def a_children_watch_lasts_over_creations_and_deletions(coordination: Coordination) -> None:
    calls, of_root = Calls(), Calls()
    await coordination.multi([Create("/a")])
    coordination.watch_children("/a", calls)
    coordination.watch_children("/", of_root)
    count = 0
    for operation in (Create("/a/b"), Create("/a/c"), Delete("/a/b")):
        await coordination.multi([operation])
        count = await calls.more_than(count)
    await coordination.multi([SetData("/a", b"1"), SetData("/a/c", b"1"), Create("/a/c/d")])  # none concerns it
    await settled(coordination)
    assert (calls.paths, of_root.paths) == (["/a"] * 3, [])
    await coordination.multi([Create("/b")])
    await of_root.more_than(0)


async def the_children_of_a_node_to_come_can_be_watched(coordination: Coordination) -> None:
    calls = Calls()
    coordination.watch_children("/a", calls)
    for _ in range(2):
        await coordination.multi([Create("/a"), Create("/a/b")])
        count = await calls.more_than(0)
        assert await coordination.children("/a") == ["b"]
        await coordination.multi([Create("/a/c")])
        await calls.more_than(count)
        await coordination.multi([Delete("/a/b"), Delete("/a/c"), Delete("/a")])
        await settled(coordination)
        calls.paths.clear()


async def every_listener_is_called_until_it_cancels(coordination: Coordination) -> None:
    await coordination.multi([Create("/a")])
    first, second = Calls(), Calls()
    cancel_first = coordination.watch_node("/a", first)
    cancel_second = coordination.watch_node("/a", second)
    await coordination.multi([SetData("/a", b"1")])
    await first.more_than(0)
    await second.more_than(0)
    cancel_first()
    await coordination.multi([SetData("/a", b"2")])
    await second.more_than(1)
    cancel_second()
    cancel_second()  # harmless
    await coordination.multi([SetData("/a", b"3")])
    await settled(coordination)
    assert (len(first.paths), len(second.paths)) == (1, 2)
    coordination.watch_node("/a", first)
    await coordination.multi([SetData("/a", b"4")])
    await first.more_than(1)


async def a_listener_may_cancel_itself(coordination: Coordination) -> None:
    calls = Calls()

    def once(path: str) -> None:
        cancel()
        calls(path)

    cancel = coordination.watch_children("/", once)
    await coordination.multi([Create("/a")])
    await calls.more_than(0)
    await coordination.multi([Create("/b")])
    await settled(coordination)
    assert calls.paths == [""]


async def no_read_shows_a_change_before_the_watch_was_called(coordination: Coordination) -> None:
    await coordination.multi([Create("/a")])
    calls = Calls()
    coordination.watch_node("/a", calls)

    async def read() -> None:
        seen = called_before_last_read = called_before_this = 0
        while seen < 100:
            called_before_last_read, called_before_this = called_before_this, len(calls.paths)
            version = (await coordination.get("/a")).version
            assert version == seen or (version > seen and len(calls.paths) > called_before_last_read)
            seen = version
            await trio.lowlevel.checkpoint()  # an adapter in memory need not

    async with trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(read)
        for _ in range(100):
            await coordination.multi([SetData("/a", b"x")])


# --- the session ------------------------------------------------------------------------------------------------------


async def ephemeral_nodes_belong_to_the_session(coordination: Coordination) -> None:
    await coordination.multi([Create("/e", b"1", ephemeral=True), Create("/p"), Create("/s", b"", True, True)])
    assert coordination.session_id != 0
    nodes = await coordination.get_all(["/e", "/p", *(f"/{name}" for name in await coordination.children("/"))])
    assert [node and node.owner for node in nodes[:2]] == [coordination.session_id, 0]
    assert sum(node is not None and node.owner != 0 for node in nodes) == 3


async def the_session_is_sure_while_the_service_answers(coordination: Coordination) -> None:
    calls: list[None] = []
    cancel = coordination.watch_session(lambda: calls.append(None))
    await coordination.until_available()
    assert coordination.session_sure_until > trio.current_time()
    cancel()
    assert calls == []


PROMISES = (
    a_multi_does_all_or_nothing,
    a_multi_answers_paths_and_versions,
    versions_guard_writes,
    impossible_operations_name_the_path,
    the_first_impossible_operation_names_the_error,
    sequential_nodes_are_numbered,
    no_update_is_lost_among_many_writers,
    nodes_hold_any_bytes,
    reading_what_is_not_there,
    many_nodes_are_read_in_the_order_asked_for,
    the_root_has_two_names,
    creation_ids_tell_creations_apart,
    ten_thousand_children,
    a_node_watch_lasts_over_creation_change_and_deletion,
    a_children_watch_lasts_over_creations_and_deletions,
    the_children_of_a_node_to_come_can_be_watched,
    every_listener_is_called_until_it_cancels,
    a_listener_may_cancel_itself,
    no_read_shows_a_change_before_the_watch_was_called,
    ephemeral_nodes_belong_to_the_session,
    the_session_is_sure_while_the_service_answers,
)
