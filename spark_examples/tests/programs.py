"""The programs of an example as modules, for tests. They import each other by plain names, which several examples use."""

import importlib
import sys
from pathlib import Path
from types import SimpleNamespace

HERE = Path(__file__).resolve().parents[1]


def programs_of(example: str) -> SimpleNamespace:
    """The programs of an example as modules. Afterwards their names are free for those of another example."""
    folder = HERE / example
    names = [path.stem for path in folder.glob("*.py")]
    others = {name: sys.modules.pop(name) for name in names if name in sys.modules}
    sys.path.insert(0, str(folder))
    try:
        return SimpleNamespace(**{name: importlib.import_module(name) for name in names})
    finally:
        sys.path.remove(str(folder))
        for name in names:
            sys.modules.pop(name, None)
        sys.modules.update(others)
