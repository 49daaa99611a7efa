"""The pytest plugin, in runs of pytest of its own, and `ottla test`."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
from _pytest.assertion.rewrite import AssertionRewritingHook
from _pytest.config.argparsing import Parser

import ottla
from ottla.server.cli.cli import main
from ottla.server.testing.tests.pytest_words import WORDS
from ottla.testing import plugin

pytest_plugins = ["pytester"]


def test_pytest_does_not_rewrite_the_modules_of_ottla(pytestconfig: pytest.Config):
    hook = AssertionRewritingHook(pytestconfig)
    hook._must_rewrite.update({"ottla", "json"})  # as for all packages of an installed plugin's distribution
    assert hook.find_spec("ottla.wire", ottla.__path__) is not None
    hook._marked_for_rewrite_cache.clear()
    manager = pytest.PytestPluginManager()
    manager.rewrite_hook = hook
    plugin.pytest_addoption(Parser(_ispytest=True), manager)
    assert hook.find_spec("ottla.wire", ottla.__path__) is None
    assert hook.find_spec("json.decoder", json.__path__) is not None


def test_each_test_has_a_world_of_its_own(pytester: pytest.Pytester):
    pytester.makepyfile(
        """
        import pytest

        def test_one(kafka):
            kafka.topic("orders")
            assert kafka.produce("orders", "x")[0].offset == 0

        def test_two(kafka):
            assert kafka.topics() == {}

        @pytest.mark.ottla_settings({"num.partitions": 2})
        class TestMany:
            def test_of_class(self, kafka):
                kafka.topic("a", -1)
                assert kafka.topics() == {"a": 2}

            @pytest.mark.ottla_settings({"num.partitions": 3})
            def test_of_function(self, kafka):
                kafka.topic("a", -1)
                assert kafka.topics() == {"a": 3}

        def test_cluster(kafka_cluster):
            kafka_cluster.topic("orders")
            assert len(kafka_cluster.bootstrap.split(",")) == 3

        def test_of_ini(kafka):
            kafka.topic("a", -1)
            assert kafka.topics() == {"a": 5}
        """
    )
    pytester.makeini("[pytest]\nottla_settings = num.partitions = 5\n")
    pytester.runpytest_inprocess(*WORDS).assert_outcomes(passed=6)


def test_a_test_begins_with_the_snapshot_that_its_mark_names(pytester: pytest.Pytester):
    pytester.makepyfile(
        """
        import pytest
        from ottla.testing import Kafka

        def test_file():
            with Kafka() as kafka:
                kafka.topic("orders")
                kafka.produce("orders", "kept")
                kafka.snapshot().save("orders.ottla")

        @pytest.mark.ottla_snapshot("orders.ottla")
        class TestKept:
            def test_one(self, kafka):
                assert kafka.records("orders")[0].value == b"kept"
                kafka.produce("orders", "of one test")

            @pytest.mark.ottla_settings({"num.partitions": 3})
            def test_two(self, kafka):
                assert len(kafka.records("orders")) == 1
                kafka.topic("many", -1)
                assert kafka.topics()["many"] == 3

        @pytest.mark.ottla_snapshot("missing.ottla")
        def test_missing(kafka):
            pass

        @pytest.mark.ottla_snapshot(path="orders.ottla")
        def test_wrong(kafka):
            pass
        """
    )
    result = pytester.runpytest_inprocess(*WORDS)
    result.assert_outcomes(passed=3, errors=2)
    result.stdout.fnmatch_lines_random(
        ["*There is no file *missing.ottla; *", '*ottla_snapshot takes the path of a file, such as "orders.ottla"*']
    )


def test_profiles_come_from_the_ini_file_and_from_marks(pytester: pytest.Pytester):
    pytester.makepyfile(
        """
        import pytest
        from ottla.wire.errors import KafkaError

        def test_of_ini(kafka):
            with pytest.raises(KafkaError):
                kafka.topic("a", 33)

        @pytest.mark.ottla_profile("kafka-2.8")
        def test_of_mark(kafka):
            kafka.topic("a", 33)

        @pytest.mark.ottla_profile("kafka-99")
        def test_unknown(kafka):
            pass

        @pytest.mark.ottla_profile()
        def test_unnamed(kafka):
            pass
        """
    )
    pytester.makeini("[pytest]\nottla_profile = event-hubs\n")
    result = pytester.runpytest_inprocess(*WORDS)
    result.assert_outcomes(passed=2, errors=2)
    result.stdout.fnmatch_lines_random(["*There is no profile 'kafka-99'*", "*takes one name, such as*"])


@pytest.mark.parametrize(
    ("ini", "mark", "told"),
    [
        ("num.partitions", "{}", "*ottla_settings: 'num.partitions' is not name=value*"),
        ("num.partitions=x", "{}", "* ottla_settings in the ini file: Invalid value x for setting num.partitions*"),
        ("", "3", "*takes one dictionary*"),
        ("", "{'num.partition': 3}", "@pytest.mark.ottla_settings: Unknown setting num.partition*"),
        ("", "{3: 'num.partitions'}", "@pytest.mark.ottla_settings: 3 is no name of a setting*"),
        ("", "{'broker.id': 'x'}", "@pytest.mark.ottla_settings: broker.id is a number from 0, not 'x'*"),
        ("", "{'zookeeper.connect': 'z:2181'}", "@pytest.mark.ottla_settings: zookeeper.connect is not chosen*"),
        ("", "{'listeners': 'PLAINTEXT://192.0.2.1:1'}", "@pytest.mark.ottla_settings: cannot listen on*"),
    ],
)
def test_wrong_settings_fail_the_test_with_a_sentence(pytester: pytest.Pytester, ini: str, mark: str, told: str):
    pytester.makepyfile(f"import pytest\n@pytest.mark.ottla_settings({mark})\ndef test_it(kafka): pass\n")
    pytester.makeini(f"[pytest]\nottla_settings = {ini}\n")
    result = pytester.runpytest_inprocess(*WORDS)
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines([told])
    result.stdout.no_fnmatch_line("*Traceback*")
    result.stdout.no_re_match_line(r".*\.py:\d+: \w*(Error|Exception|Failed)\b")


def test_the_report_of_a_repeated_test_is_that_of_its_last_run_and_setup_has_one(pytester: pytest.Pytester):
    pytester.makeconftest(
        """
        from _pytest.runner import runtestprotocol

        def pytest_runtest_protocol(item, nextitem):  # as plugins do that repeat failing tests
            runtestprotocol(item, nextitem=nextitem, log=False)
            item._initrequest()
            runtestprotocol(item, nextitem=nextitem)
            return True
        """
    )
    pytester.makepyfile(
        """
        from itertools import count
        import pytest

        seeds = count(1)

        def test_call(kafka):
            with kafka.chaos(seed=next(seeds)):
                kafka.clock.advance(seconds=1)
            assert False

        @pytest.fixture
        def prepared(kafka):
            with kafka.chaos(seed=next(seeds)):
                raise ValueError

        def test_setup(prepared):
            pass
        """
    )
    result = pytester.runpytest_inprocess(*WORDS, "-p", "no:randomly")
    result.assert_outcomes(failed=1, errors=1)
    assert [line.split(":")[0] for line in result.outlines if line.startswith("chaos(")] == [
        "chaos(seed=4)",
        "chaos(seed=2)",
    ]


def test_nothing_of_a_test_is_kept_to_the_end_of_the_session(pytester: pytest.Pytester):
    pytester.makepyfile(
        """
        import gc, weakref

        made = []

        def test_one(kafka):
            kafka.topic("orders")
            kafka.restore(kafka.snapshot())
            assert kafka.wire.requests() == [] and kafka.history is not None
            made.extend((weakref.ref(kafka), weakref.ref(kafka.world)))

        def test_two():
            gc.collect()
            assert [each() for each in made] == [None, None]
        """
    )
    pytester.runpytest_inprocess(*WORDS).assert_outcomes(passed=2)


def test_the_plugin_costs_other_sessions_no_imports():
    code = "import sys, ottla.testing.plugin; print(sorted(m for m in sys.modules if m.startswith(('ottla.', 'trio'))))"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "['ottla.testing', 'ottla.testing.plugin']"


def test_a_command_finds_the_broker_and_its_exit_code_is_kept():
    code = """
import os, socket, sys
host, port = os.environ["OTTLA_BOOTSTRAP"].split(":")
assert os.environ["KAFKA_BOOTSTRAP_SERVERS"] == f"{host}:{port}"
socket.create_connection((host, int(port)))
sys.exit(7)
"""
    words = ["test", "--topic", "orders:3", "--", sys.executable, "-c", code]
    told = subprocess.run([sys.executable, "-m", "ottla", *words], capture_output=True, text=True, check=False)
    assert (told.returncode, told.stdout, told.stderr) == (7, "", "")


def test_a_command_finds_the_control_port():
    code = """
import json, os, urllib.request
with urllib.request.urlopen(os.environ["OTTLA_CONTROL"] + "/kafka") as answer:
    assert json.load(answer)["bootstrap"] == os.environ["OTTLA_BOOTSTRAP"]
"""
    assert main(["test", "--control", "127.0.0.1:0", "--", sys.executable, "-c", code]) == 0


def test_the_token_of_the_control_port_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch):
    code = """
import os, urllib.error, urllib.request
request = urllib.request.Request(os.environ["OTTLA_CONTROL"] + "/kafka")
try:
    urllib.request.urlopen(request)
except urllib.error.HTTPError as refused:
    assert refused.code == 401
else:
    raise AssertionError("nobody asked for the token")
request.add_header("Authorization", "Bearer " + os.environ["OTTLA_CONTROL_TOKEN"])
urllib.request.urlopen(request).close()
"""
    monkeypatch.setenv("OTTLA_CONTROL_TOKEN", "told-to-nobody-else")
    assert main(["test", "--control", "127.0.0.1:0", "--", sys.executable, "-c", code]) == 0


def test_start_with_a_control_port_keeps_its_data_in_memory(tmp_path: Path):
    words = ["start", "--port", "0", "--control", "0", "--override", f"log.dirs={tmp_path}"]
    process = subprocess.Popen([sys.executable, "-m", "ottla", *words], stdout=subprocess.PIPE, text=True)
    with process:
        assert process.stdout is not None
        lines = []
        for line in process.stdout:
            lines.append(line.strip())
            if line.startswith("listening on"):
                break
        (url,) = [line.split()[-1] for line in lines if line.startswith("control")]
        with urllib.request.urlopen(url) as answer:
            assert json.load(answer)["openapi"] == "3.1.0"
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        ([], 2, "no command is given"),
        (["--", "no-such-command-at-all"], 127, "no-such-command-at-all cannot be run: No such file or directory"),
        (["--", "/"], 126, "/ cannot be run"),
        (["--topic", "a:b", "--", "true"], 2, "the number of partitions is a whole number above 0, as in a:3"),
        (["--topic", "a:0", "--", "true"], 2, "above 0"),
        (["--topic", "a b", "--", "true"], 1, "INVALID_TOPIC_EXCEPTION"),
        (["--override", "x", "--", "true"], 2, "write name=value"),
        (["--override", "num.partition=1", "--", "true"], 2, "num.partitions"),
        (["--brokers", "0", "--", "true"], 2, "A Kafka of 0 brokers cannot be made; ask for 1 to 100"),
        (["--brokers", "100000", "--", "true"], 2, "ask for 1 to 100"),
        (["--control", "x", "--", "true"], 2, "write HOST:PORT, or a PORT on loopback"),
        (["--control", "0.0.0.0:0", "--", "true"], 2, "give a token, or listen on 127.0.0.1"),
        (["--", "sh", "-c", f"kill -{int(signal.SIGKILL)} $$"], 137, ""),
    ],
)
def test_wrong_use_and_ends_by_signals(words: list[str], code: int, told: str, capfd: pytest.CaptureFixture[str]):
    assert main(["test", *words]) == code
    out, err = capfd.readouterr()
    assert out == "" and told in err and err.count("\n") == bool(told), err
