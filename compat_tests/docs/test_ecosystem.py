"""docs/ecosystem.md names every test of the ecosystem, in the versions that are pinned."""

import re

from compat_tests.docs.pages import DOCS, ROOT

PAGE = DOCS / "ecosystem.md"
FOLDERS = ("ecosystem", "migration")


def row_of(test: str) -> str:
    """The rows with a link to it."""
    return "\n".join(line for line in PAGE.read_text().splitlines() if f"{test})" in line)


def test_every_test_has_a_row() -> None:
    pages = PAGE.read_text() + (DOCS / "migration.md").read_text()
    tests = [path for folder in FOLDERS for path in (ROOT / "compat_tests" / folder).glob("test_*.py")]
    assert len(tests) >= 6
    assert [path.name for path in tests if path.name not in pages] == []


def test_rows_have_the_versions_of_the_requirements() -> None:
    found = {path.parent.name: path.read_text() for path in ROOT.glob("compat_tests/ecosystem/*/requirements.txt")}
    assert len(found) >= 6
    for name, requirements in found.items():
        version = re.search(r">=([\d.]+)", requirements)[1]
        assert re.search(rf"[ |]{re.escape(version)} \|", row_of(f"{name}/program.py")), f"{name}: not {version}"


def test_rows_have_the_versions_of_the_jars() -> None:
    found = {path.parent.name: path.read_text() for path in ROOT.glob("compat_tests/ecosystem/*/pom.xml")}
    assert len(found) >= 3
    for name, pom in found.items():
        version = re.search(rf"<{name}>([\d.]+)</{name}>", pom) or re.search(
            r"<version>(\d[\d.]+)\.Final</version>", pom
        )
        assert f"| {version[1]}" in row_of(f"test_{name}.py"), (
            f"the row of {name} has another version than {version[1]}"
        )


def test_the_row_of_opensearch_has_the_versions_of_its_example() -> None:
    example = ROOT / "spark_examples" / "search"
    server = re.search(r"<opensearch>([\d.]+)</opensearch>", (example / "pom.xml").read_text())[1]
    client = re.search(r"opensearch-py>=([\d.]+)", (example / "requirements.txt").read_text())[1]
    assert f"| {server}, opensearch-py {client} |" in row_of("test_search_in_opensearch.py")
    assert f'"opensearch-py>={client}"' in (ROOT / "pyproject.toml").read_text()


def test_the_row_of_rdkafka_has_its_version() -> None:
    manifest = (ROOT / "compat_tests" / "clients" / "rust_squares" / "Cargo.toml").read_text()
    version = re.search(r'^rdkafka = .*"=([\d.]+)"', manifest, re.MULTILINE)[1]
    assert f"| {version} |" in row_of("test_rust_client.py")


def test_rows_have_the_versions_of_the_modules() -> None:
    modules = (ROOT / "compat_tests" / "clients" / "go_squares" / "go.mod").read_text()
    for name in ("kafka-go", "sarama"):
        version = re.search(rf"/{name} v([\d.]+)", modules)[1]
        assert f"| {name} | {version} |" in row_of("test_go_clients.py")
