"""Trio without what a broker needs late or never.

`import trio` loads TLS and DTLS with OpenSSL, files, processes and streams: a third of its time, and some MB of memory. Attrs, which it
declares its classes with, loads all that it has, under two names. After `import_lightly` the packages `trio`, `trio.lowlevel`, `attr`
and `attrs` are there and have not run. The names in `PLACES` are taken from the
modules that they are in. Whoever asks for any other name gets it, too: then the package runs, as `import trio` would have had it.
A release of trio that has a name elsewhere is therefore loaded whole, and works all the same.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import partial
from importlib import import_module
from importlib.util import find_spec, module_from_spec
from threading import RLock
from types import ModuleType
from typing import Any, Final

from ottla.replication import system

_OF_CORE = (
    "TASK_STATUS_IGNORED BrokenResourceError BusyResourceError CancelScope Cancelled ClosedResourceError EndOfChannel Nursery"
    " RunFinishedError TaskStatus TrioInternalError WouldBlock current_effective_deadline current_time open_nursery run"
)
_OF_SYNC = "CapacityLimiter Condition Event Lock Semaphore StrictFIFOLock"
_OF_TIMEOUTS = "TooSlowError fail_after fail_at move_on_after move_on_at sleep sleep_forever sleep_until"
_LOW_LEVEL = (
    "Abort ParkingLot RaiseCancelT RunVar RunVarToken Task TrioToken cancel_shielded_checkpoint checkpoint"
    " checkpoint_if_cancelled current_root_task current_task current_trio_token currently_ki_protected disable_ki_protection"
    " enable_ki_protection in_trio_run in_trio_task notify_closing reschedule spawn_system_task start_thread_soon"
    " wait_readable wait_task_rescheduled wait_writable"
)

PLACES: Final[Mapping[str, Mapping[str, str]]] = {
    "attr": {"ib": "attr._make:attrib", "s": "attr._make:attrs"},
    "attrs": {"Factory": "attr._make", **dict.fromkeys(("define", "field", "frozen"), "attr._next_gen")},
    "trio": {
        **dict.fromkeys(_OF_CORE.split(), "trio._core"),
        **dict.fromkeys(_OF_SYNC.split(), "trio._sync"),
        **dict.fromkeys(_OF_TIMEOUTS.split(), "trio._timeouts"),
        "__version__": "trio._version",
        "open_memory_channel": "trio._channel",
        "open_signal_receiver": "trio._signals",
    },
    "trio.lowlevel": dict.fromkeys(_LOW_LEVEL.split(), "trio._core"),
}
"""Package -> name -> the module that has it; and, behind a colon, what it is called there."""

SUBMODULES: Final = {
    "attr": ("exceptions", "setters", "validators"),
    "trio": ("abc", "from_thread", "lowlevel", "socket", "to_thread"),
}

VERSIONS: Final = frozenset({"__version__", "__version_info__"})
"""Of the names that begin so, those that other libraries look at."""

WAIT_S: Final = 30.0
"""For another thread that runs a module: it takes a tenth of a second."""

_running = RLock()
_begun: set[str] = set()
"""The packages that have run, or are running."""


def import_lightly() -> None:
    """See the module's docstring. Does nothing if somebody has imported trio already."""
    if "trio" in sys.modules:
        return
    for name in PLACES:
        if name not in sys.modules:
            _add(name)
    with system.knowing_thread_library():
        # As in trio's own package this comes first, because its modules need each other.
        import_module("trio._core")


def _add(name: str) -> None:
    """Put a package into `sys.modules` that has not run yet."""
    spec = find_spec(name)
    assert spec is not None, f"{name} is not installed"
    module = module_from_spec(spec)
    vars(module)["__getattr__"] = partial(_find, module)
    sys.modules[name] = module
    above, _, last = name.rpartition(".")
    if above:
        setattr(sys.modules[above], last, module)


def _find(module: ModuleType, name: str) -> Any:
    """What a module that has not run, or is just running, has by this name; AttributeError."""
    package = module.__name__
    if name in SUBMODULES.get(package, ()):
        return import_module(f"{package}.{name}")
    place, _, other = PLACES[package].get(name, "").partition(":")
    if place and hasattr(found := import_module(place), other or name):
        value = getattr(found, other or name)
    elif (
        name.startswith("_") and name not in VERSIONS
    ):  # a module of trio's, which Python finds by itself, or what Python itself asks for
        raise AttributeError(f"module {package!r} has no attribute {name!r}")
    else:
        _run_whole(module)
        value = _own(module, name)
    setattr(module, name, value)
    return value


def _run_whole(module: ModuleType) -> None:
    """Return when the module has run; at once if this thread is just running it."""
    # Another thread may be at it, and may wait for a module that this one is importing: neither could ever go on.
    if not _running.acquire(timeout=WAIT_S):
        return
    try:
        if module.__name__ in _begun:
            return
        _begun.add(module.__name__)
        try:
            assert module.__spec__ is not None and module.__spec__.loader is not None
            module.__spec__.loader.exec_module(module)
        except BaseException:
            _begun.remove(module.__name__)  # whoever asks next may have more luck
            raise
        # Until here others have found the names of the table, and have waited for all others.
        if _is_ours(vars(module).get("__getattr__")):
            del vars(module)["__getattr__"]
    finally:
        _running.release()


def _own(module: ModuleType, name: str) -> Any:
    """What a module has without our help."""
    names = vars(module)
    if name in names:
        return names[name]
    other = names.get("__getattr__")  # trio may have one, for names that it is about to give up
    if other is None or _is_ours(other):
        raise AttributeError(f"module {module.__name__!r} has no attribute {name!r}")
    return other(name)


def _is_ours(function: object) -> bool:
    return isinstance(function, partial) and function.func is _find
