"""Trio that is loaded lightly has all that trio has, and loads what a broker needs late or never when it is asked for."""

import subprocess
import sys

import pytest

from ottla.server.process.light_trio import PLACES

LIGHTLY = """
import sys
from ottla.server.process.light_trio import PLACES, SUBMODULES, import_lightly
import_lightly()
import trio
"""
SERVES = (
    LIGHTLY
    + """
from importlib import import_module

async def main():
    async with trio.open_nursery() as nursery:
        done = trio.Event()
        nursery.start_soon(trio.to_thread.run_sync, lambda: trio.from_thread.run_sync(done.set))
        with trio.fail_after(60):
            await done.wait()
        await trio.lowlevel.checkpoint()

for package, places in PLACES.items():
    for name in places:
        getattr(import_module(package), name)
trio.run(main)
print(*sys.modules)
"""
)
WHOLE = (
    LIGHTLY
    + """
lightly = {(package, name): getattr(sys.modules[package], name) for package, places in PLACES.items() for name in places}
assert "ssl" not in sys.modules
from trio import SSLStream, lowlevel, open_tcp_stream
from trio.lowlevel import FdStream
assert "ssl" in sys.modules
assert all(getattr(sys.modules[package], name) is value for (package, name), value in lightly.items())
try:
    trio.what_nobody_has
except AttributeError:
    pass
else:
    raise AssertionError
assert not hasattr(lowlevel, "what_nobody_has")
print(*(name for name in dir(trio) if not name.startswith("_")))
"""
)
MANY_THREADS = (
    LIGHTLY
    + """
import threading

names = "from_thread to_thread Event Path open_file SSLStream fail_after socket Process SocketListener".split() * 2
begin, found = threading.Barrier(len(names)), []

def ask(name):
    begin.wait()
    found.append((name, getattr(trio, name)))

threads = [threading.Thread(target=ask, args=[name]) for name in names]
for each in threads:
    each.start()
for each in threads:
    each.join()
assert len(found) == len(names), found
assert all(getattr(trio, name) is value for name, value in found)
assert "__getattr__" not in vars(trio) or "partial" not in repr(vars(trio)["__getattr__"])
"""
)
ATTRS = """
import attr, attrs
import attr.validators
lightly = attrs.define, attr.s
@attrs.define
class Point:
    x: int = attrs.field(validator=attr.validators.instance_of(int))
from attrs import asdict, converters, validators
from attr import NOTHING, Attribute
assert asdict(Point(1)) == {"x": 1}
assert lightly == (attrs.define, attr.s) and attrs.validators.instance_of and attr.converters.optional
assert attrs.__version__ and not hasattr(attrs, "what_nobody_has") and not hasattr(attr, "what_nobody_has")
print(*(name for package in (attr, attrs) for name in dir(package) if not name.startswith("_")))
"""
PLAIN = "import trio; print(*(name for name in dir(trio) if not name.startswith('_')))"


def run(program: str) -> set[str]:
    done = subprocess.run([sys.executable, "-W", "error", "-c", program], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


def test_what_a_broker_uses_needs_neither_tls_nor_processes() -> None:
    modules = run(SERVES)
    assert {"trio", "trio._core._run", "trio._threads"} <= modules
    assert not {"attr._cmp", "attr.filters", "attrs.converters", "attrs.validators"} & modules
    assert not {"ssl", "subprocess", "trio._dtls", "trio._ssl", "trio._subprocess", "ctypes.util"} & modules


def test_all_other_names_are_there_and_the_same_objects() -> None:
    assert run(PLAIN) <= run(WHOLE)


def test_attrs_is_whole_for_whoever_uses_more_of_it() -> None:
    assert run(ATTRS) == run(LIGHTLY + ATTRS)


@pytest.mark.parametrize("package", ["attr", "attrs", "trio"])
def test_a_library_that_looks_at_the_version_finds_it(package: str) -> None:
    program = f"import {package}; print({package}.__version__)"
    assert run(LIGHTLY + program) == run(program) != set()


def test_threads_that_ask_while_another_loads_the_rest_find_all_names() -> None:
    run(MANY_THREADS)


def test_trio_that_is_there_already_is_left_alone() -> None:
    assert "ssl" in run(
        "import trio; before = vars(trio).copy()" + LIGHTLY + "assert before == vars(trio); print(*sys.modules)"
    )


@pytest.mark.parametrize("package", PLACES)
def test_each_name_is_where_the_table_says(package: str) -> None:
    """Otherwise a start would load trio whole."""
    wrong = f"""
import importlib
from ottla.server.process.light_trio import PLACES
for name, place in PLACES[{package!r}].items():
    module, _, other = place.partition(":")
    if getattr(importlib.import_module(module), other or name, module) is not getattr(importlib.import_module({package!r}), name):
        print(name)
"""
    assert run(wrong) == set()


def test_the_thread_library_is_the_one_that_a_search_finds() -> None:
    program = """
import ctypes, sys
from ottla.replication import system
with system.knowing_thread_library():
    import ctypes.util
    known = ctypes.util.find_library("pthread")
    other = ctypes.util.find_library("no-such-library")
assert other is None
from importlib import import_module
sys.modules.pop("ctypes.util", None)
print(known == import_module("ctypes.util").find_library("pthread"))
"""
    assert run(program) == {"True"}
