"""A session of Spark with its connector, as the examples have it."""

import contextlib
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

FLIGHTS = Path(__file__).resolve().parents[2] / "spark_examples" / "flights"


@contextlib.contextmanager
def session() -> Iterator[Any]:
    if shutil.which("java") is None:
        pytest.skip("the command java is not on this machine (`make setup` brings it)")
    sys.path.insert(0, str(FLIGHTS))
    try:
        import session

        spark = session.start()
    except (ImportError, FileNotFoundError) as missing:
        pytest.skip(str(missing))
    finally:
        sys.path.remove(str(FLIGHTS))
    yield spark
    spark.stop()
