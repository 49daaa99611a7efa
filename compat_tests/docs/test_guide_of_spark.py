"""The test with Spark in docs/testing-guides.md, with the jars that are here in place of those that Spark would fetch."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from compat_tests.docs.pages import DOCS, ROOT, snippets

JARS = ROOT / ".cache" / "jars" / "spark_examples" / "flights"
FETCHED = '"spark.jars.packages", PACKAGES'
SMALL = {"JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC", "SPARK_LOCAL_IP": "127.0.0.1"}


def test_records_are_counted_by_spark(tmp_path: Path) -> None:
    jars = sorted(JARS.glob("*.jar"))
    if shutil.which("java") is None or not jars:
        pytest.skip("neither java nor Spark's connector is here (`make setup` brings them)")
    (snippet,) = [each for each in snippets(DOCS / "testing-guides.md") if each.why.endswith(Path(__file__).name)]
    assert FETCHED in snippet.text
    text = snippet.text.replace(FETCHED, f'"spark.jars", "{",".join(map(str, jars))}"')
    (tmp_path / "test_counts.py").write_text(text)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:trio", "test_counts.py"],
        cwd=tmp_path,
        env=os.environ | SMALL,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, f"{snippet.place}\n{done.stdout[-5000:]}\n{done.stderr[-2000:]}"
