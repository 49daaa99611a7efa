"""A broker that starts imports every declaration: that must not drag in what it does not need yet."""

import subprocess
import sys

from ottla.wire.tests.message_values import modules

IMPORT = "import sys; [__import__(name) for name in sys.argv[1:]]; print(*sys.modules)"


def test_importing_every_declaration_imports_neither_construct_nor_asyncio() -> None:
    names = [module.__name__ for module in modules()]
    assert len(names) >= 30
    run = subprocess.run([sys.executable, "-c", IMPORT, *names], capture_output=True, text=True, check=True)
    imported = set(run.stdout.split())
    assert imported >= set(names)
    assert not imported & {"construct", "asyncio", "dataclasses", "inspect", "trio"}
