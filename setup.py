"""What pyproject.toml cannot say: whether the native module is compiled, and that one of it serves every CPython since 3.11.

OTTLA_PURE_WHEEL=1 leaves it out; the wheel is for every system then. Where compiling fails it is left out as well, and the
same checks run in Python. Free-threaded interpreters and others than CPython do not have the stable ABI that it needs.
"""

import os
import sys
import sysconfig

from setuptools import Extension, setup

HAS_STABLE_ABI = sys.implementation.name == "cpython" and not sysconfig.get_config_var("Py_GIL_DISABLED")
HEADERS = [f"wire/_{name}.h" for name in ("background", "crc32c", "one_batch")]
NATIVE = Extension("ottla.wire._native", ["wire/_native.c"], depends=HEADERS, py_limited_api=True, optional=True)

if HAS_STABLE_ABI and os.environ.get("OTTLA_PURE_WHEEL") != "1":
    setup(ext_modules=[NATIVE], options={"bdist_wheel": {"py_limited_api": "cp311"}})
else:
    setup()
