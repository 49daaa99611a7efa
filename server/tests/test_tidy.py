"""House rules that a machine can see: sizes, names of modules, leftovers."""

import ast
import gc
import re
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ("wire", "replication", "groupcoord", "server", "compat_tests", "spark_examples", "benchmarks")
FUNCTION_LINES_MAX = 70
FILE_LINES_MAX = 600
TEST_FILE_LINES_MAX = 1200

PACKAGES = ("wire", "replication", "groupcoord", "server")
# A message class, its codec and the generator that writes the codec are one thing in four files, and so are records of
# both formats. These of their imports happen when they are first needed.
LATE = {
    ("ottla.wire.schema", "ottla.wire.codecs"),
    ("ottla.wire.schema", "ottla.wire.types"),
    ("ottla.wire.generator", "ottla.wire.generator_decode"),
    ("ottla.wire.generator", "ottla.wire.generator_encode"),
    ("ottla.wire.records", "ottla.wire.legacy_records"),
    ("ottla.wire.record_decoding", "ottla.wire.legacy_records"),
}

FORBIDDEN_NAMES = {"utils.py", "helpers.py", "common.py", "misc.py"}


def python_files() -> Iterator[Path]:
    for folder in SOURCES:
        yield from (path for path in (ROOT / folder).rglob("*.py") if "node_modules" not in path.parts)


@cache
def tree(path: Path) -> ast.Module:
    """Parsed once for all tests of this module."""
    return ast.parse(path.read_text())


@cache
def nodes(path: Path) -> list[ast.AST]:
    return list(ast.walk(tree(path)))


@pytest.fixture(scope="module", autouse=True)
def _forget_trees() -> Iterator[None]:
    """Collects no garbage meanwhile: the collector would look through two million nodes again and again, and find none."""
    gc.disable()
    yield
    tree.cache_clear()
    nodes.cache_clear()
    gc.enable()


def is_test(path: Path) -> bool:
    return "tests" in path.parts or path.relative_to(ROOT).parts[0] in ("compat_tests", "benchmarks", "spark_examples")


def code_lines(text: str) -> int:
    """Comments do not count: they make a file easier to hold, not harder."""
    return sum(not line.lstrip().startswith("#") for line in text.splitlines())


def test_only_one_module_knows_what_linux_alone_has():
    """`replication/system.py` has a stand-in for each of these. Others would work here and fail on a Mac."""
    of_linux = re.compile(
        r"os\.(sendfile|fdatasync|memfd_create|pidfd_open|posix_fadvise|posix_fallocate|eventfd|splice|sync|sched_\w+|getrandom"
        r"|RWF_\w+|O_DIRECT\b)|select\.epoll|socket\.(MSG_MORE|TCP_INFO|TCP_CORK|TCP_QUICKACK|TCP_USER_TIMEOUT)|CLOCK_BOOTTIME"
        r"|ctypes|sys\.platform|\"/proc"
    )
    found = set()
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*.py"):
            if not is_test(path) and path.name != "system.py" and of_linux.search(path.read_text()):
                found.add(str(path.relative_to(ROOT)))
    assert found == {"replication/log/atomic_files.py"}  # os.sync, if system.SYNC_WAITS


def test_whoever_closes_a_descriptor_has_forgotten_it_before():
    """Its number is another file's from then on, even if closing fails: so `fd, self._fd = self._fd, -1`, then `os.close(fd)`."""
    found = []
    for path in python_files():
        if is_test(path) or "os.close" not in path.read_text():
            continue
        for function in nodes(path):
            if not isinstance(function, ast.FunctionDef) or function.name == "__del__":  # which is called once
                continue
            for node in ast.walk(function):
                if (
                    isinstance(node, ast.Call)
                    and ast.unparse(node.func) == "os.close"
                    and isinstance(node.args[0], ast.Attribute)
                ):
                    found.append(f"{path.relative_to(ROOT)}:{node.lineno}")
    assert found == []


# Functions that look and change nothing.
ASKED_IN_ASSERTS = {"any", "count_of", "getattr", "hasattr", "isinstance", "len", "map", "max", "sum"}
ASKED_IN_ASSERTS |= {"belongs_to_one_frame", "endswith", "isdisjoint", "keys", "startswith", "unfinished", "values"}


def test_no_assert_does_anything():
    """`python -O` leaves asserts out, and with them all that they do."""
    found = []
    for path in python_files():
        if is_test(path):
            continue
        for node in nodes(path):
            for each in ast.walk(node.test) if isinstance(node, ast.Assert) else ():
                name = ast.unparse(each.func).rpartition(".")[2] if isinstance(each, ast.Call) else None
                if isinstance(each, ast.NamedExpr | ast.Await) or (name and name not in ASKED_IN_ASSERTS):
                    found.append(f"{path.relative_to(ROOT)}:{node.lineno}: {ast.unparse(each)}")
    assert found == []


def test_nobody_takes_the_work_of_a_client_for_what_it_is_to_do():
    """`poll(0.1) or told` is true once anything has come, whatever it is: `serve_until` asks for what is wanted."""
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in python_files()
        if ".poll(" in path.read_text()  # nobody else is parsed
        for node in nodes(path)
        if isinstance(node, ast.Lambda)
        and isinstance(node.body, ast.BoolOp)
        and re.search(r"\.poll\([\d.]+\)$", ast.unparse(node.body.values[0]))
    ]
    assert found == []


def test_no_file_is_longer_than_a_reader_can_hold():
    long = {
        str(path.relative_to(ROOT)): lines
        for path in python_files()
        if (lines := code_lines(path.read_text())) > (TEST_FILE_LINES_MAX if is_test(path) else FILE_LINES_MAX)
    }
    assert long == {}


def test_no_function_is_longer_than_a_screen():
    long = []
    for path in python_files():
        lines = path.read_text().splitlines()
        for node in nodes(path) if len(lines) > FUNCTION_LINES_MAX else ():
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno is not None:
                if node.end_lineno - node.lineno < FUNCTION_LINES_MAX:
                    continue
                size = code_lines("\n".join(lines[node.lineno - 1 : node.end_lineno]))
                if size > FUNCTION_LINES_MAX:
                    long.append(f"{path.relative_to(ROOT)}:{node.lineno} {node.name}: {size} lines")
    assert long == []


def test_every_module_says_what_it_is():
    silent = [
        str(path.relative_to(ROOT))
        for path in python_files()
        if not is_test(path) and path.name != "__init__.py" and not ast.get_docstring(tree(path))
    ]
    assert silent == []


def test_docstrings_begin_with_a_noun_or_a_verb() -> None:
    """PEP 257: a first line that begins like these is understood beside its neighbours only."""
    riddles = tuple(f"{each} " for each in ("What", "The same", "Those", "Of these", "See", "Such"))
    found = [
        f"{path.relative_to(ROOT)}: {text.splitlines()[0]}"
        for path in python_files()
        if path.relative_to(ROOT).parts[0] in PACKAGES and not is_test(path)
        for node in nodes(path)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        if (text := ast.get_docstring(node)) and text.startswith(riddles)
    ]
    assert found == []


def test_every_package_lists_its_modules():
    """Its docstring is the map of its folder: a line for each module and package in it, and for nothing that is not there."""
    wrong = []
    for path in (each for package in PACKAGES for each in (ROOT / package).rglob("__init__.py")):
        if is_test(path):
            continue
        found = ast.get_docstring(tree(path)) or ""
        modules = {each.name for each in path.parent.glob("*.py")} - {"__init__.py"}
        packages = {f"{each.parent.name}/" for each in path.parent.glob("*/__init__.py")} - {"tests/"}
        named = set(re.findall(r"(?<![\w/.])\w+\.py\b", found))
        folders = {each for each in re.findall(r"^ *(\w+/) ", found, re.MULTILINE)}
        wrong += [f"{path.relative_to(ROOT)}: {each} is not there" for each in sorted(named - modules)]
        wrong += [
            f"{path.relative_to(ROOT)}: {each} is not there" for each in folders if not (path.parent / each).is_dir()
        ]
        wrong += [
            f"{path.relative_to(ROOT)}: {each} is missing" for each in sorted((modules - named) | (packages - folders))
        ]
    assert wrong == []


def test_nothing_is_left_for_later_and_no_drawer_for_odds_and_ends():
    mark = re.compile(r"\b(TO" + r"DO|FIX" + r"ME|XX" + r"X|Not" + r"ImplementedError)\b")
    found = [
        str(path.relative_to(ROOT)) for path in python_files() if not is_test(path) and mark.search(path.read_text())
    ]
    found += [str(path.relative_to(ROOT)) for path in python_files() if path.name in FORBIDDEN_NAMES]
    assert found == []


def test_no_modules_know_each_other_in_a_circle():
    """Not even for the sake of types."""
    files = [path.relative_to(ROOT) for path in python_files() if path.relative_to(ROOT).parts[0] in PACKAGES]
    modules = {".".join(("ottla", *path.with_suffix("").parts)): path for path in files if not is_test(ROOT / path)}
    graph = {
        name: {each for each in imported(ROOT / path) if each in modules and each != name and (name, each) not in LATE}
        for name, path in modules.items()
    }
    assert len(list(TopologicalSorter(graph).static_order())) == len(modules) > 250


def imported(path: Path) -> Iterator[str]:
    for node in nodes(path):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def test_the_architecture_names_files_and_members_that_exist():
    """ARCHITECTURE.md is where a stranger begins: a name that is gone leads nowhere."""
    named = set(re.findall(r"`([^`\n]+)`", (ROOT / "ARCHITECTURE.md").read_text()))
    folders = (*SOURCES, "docs", "src", ".ci")
    paths = [f"/{folder}" for folder in folders]
    paths += [
        f"/{path.relative_to(ROOT)}"
        for folder in folders
        for path in (ROOT / folder).rglob("*")
        if "node_modules" not in path.parts
    ]
    lost = {
        each
        for each in named
        if re.fullmatch(r"[\w./-]+\.(py|js|md|xml)|[\w./-]+/", each) and not _is_there(each, paths)
    }
    members = _members()
    for each in named:
        if (found := re.fullmatch(r"([A-Z]\w+)\.(\w+)", each)) and found[2] not in members.get(found[1], ()):
            lost.add(each)
    assert len(named) > 100 and lost == set()


def _is_there(named: str, paths: list[str]) -> bool:
    return any(path.endswith("/" + named.strip("/")) for path in paths)


def _members() -> dict[str, set[str]]:
    """What each class of the packages defines, or has from those that it is made of."""
    own: dict[str, set[str]] = {}
    bases: dict[str, set[str]] = {}
    for path in python_files():
        if path.relative_to(ROOT).parts[0] not in PACKAGES or is_test(path):
            continue
        for node in tree(path).body:
            if isinstance(node, ast.ClassDef):
                own.setdefault(node.name, set()).update(_defined(node))
                bases.setdefault(node.name, set()).update(ast.unparse(base).partition("[")[0] for base in node.bases)

    def all_of(name: str) -> set[str]:
        return own.get(name, set()).union(*(all_of(base) for base in bases.get(name, ()) if base != name))

    return {name: all_of(name) for name in own}


def _defined(node: ast.ClassDef) -> Iterator[str]:
    for each in ast.walk(node):
        if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef):
            yield each.name
        elif isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name):
            yield each.target.id
        elif isinstance(each, ast.Attribute) and isinstance(each.value, ast.Name) and each.value.id == "self":
            yield each.attr
