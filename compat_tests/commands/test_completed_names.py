"""Shells complete names of topics and groups, which the cluster of the command line has."""

import socket

import pytest

from ottla.server.cli import completion
from ottla.server.cli.completion import candidates


@pytest.fixture
def names(ottla, created, unique):
    """A topic, and groups that have committed an offset of it."""
    topic, group = created(), unique("group")
    for each in (group, f"{group} of $(somebody)", f"{group}\n`else`"):
        ottla("groups", "reset", each, "--topic", topic, "--to-latest", "--execute")
    return topic, group


def test_names_are_completed(names, servers, monkeypatch):
    monkeypatch.setattr(completion, "LIMIT_S", 60)
    topic, group = names
    begun = topic[:-4]
    for line, wanted in (
        (f"ottla consume -b {servers} {begun}", topic),
        (f"ottla produce -b{servers} {begun}", topic),
        (f"ottla topics describe --bootstrap-server={servers} {begun}", topic),
        (f"ottla topics -b {servers} delete other {begun}", topic),
        (f"ottla consume -b {servers} --topic={begun}", f"--topic={topic}"),
        (f"ottla groups describe -X bootstrap.servers={servers} {group[:-4]}", group),
        (f"ottla consume -b {servers} -g {group[:-4]}", group),
    ):
        assert [each.text for each in candidates(line)] == [wanted], line
    [found] = candidates(f"ottla groups reset {group} -b {servers} --topic {begun}")
    assert (found.text, found.goes_on) == (topic, True)  # :0,1 may follow
    monkeypatch.setenv("OTTLA_BOOTSTRAP_SERVERS", servers)
    assert [each.text for each in candidates(f"ottla consume {begun}")] == [topic]
    every = [each.text for each in candidates("ottla consume ")]
    assert topic in every and "__consumer_offsets" not in every
    assert "__consumer_offsets" in [each.text for each in candidates("ottla consume _")]


def test_no_cluster_is_no_error(capfd):
    with socket.create_server(("127.0.0.1", 0)) as silent, socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
        closed.close()
        for options in (
            f"-b 127.0.0.1:{port}",
            f"-b 127.0.0.1:{silent.getsockname()[1]}",
            "-b nowhere.invalid",
            "-b :",
            "-X nonsense",
            "--command-config /no/such",
        ):
            assert candidates(f"ottla consume {options} ") == []
            assert candidates(f"ottla groups describe {options} ") == []
    assert capfd.readouterr() == ("", "")
