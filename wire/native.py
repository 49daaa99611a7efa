"""Choice between compiled functions (`_native.c`) and their twins in Python.

`ottla.wire._native` exists if a compiler was at hand when Ottla was installed. OTTLA_PURE_PYTHON=1 asks for the twins, and
a module left behind by an older release may lack some functions. Tests hold both to the same answers.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any] | None)


def _compiled() -> object:
    if os.environ.get("OTTLA_PURE_PYTHON") == "1":
        return None
    try:
        from ottla.wire import _native
    # No compiler was at hand at the installation, which never needs one.
    except ImportError:
        return None
    return _native


_module = _compiled()


def native(name: str, twin: Function) -> Function:
    """Return the compiled function `name`. If it is not compiled, return `twin`, which does the same in Python."""
    found: Function = getattr(_module, name, twin)
    return found
