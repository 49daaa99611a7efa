import pytest

from ottla.server.config.broker_config import ConfigError, load_config
from ottla.server.config.worker_places import Ports, wanted_ports, worker_config


def places(texts, count, held=None):
    config = load_config(texts)
    ports = held or wanted_ports(config, count)
    return [worker_config(texts, config, number, count, ports) for number in range(count)]


def test_ids_ports_and_folders_follow_each_other():
    first, second, third = places({"node.id": "7", "listeners": "PLAINTEXT://h:9092", "log.dirs": "/a,/b"}, 3)
    assert [each.node_id for each in (first, second, third)] == [7, 8, 9]
    assert [str(*each.listeners) for each in (first, second)] == ["PLAINTEXT://h:9093", "PLAINTEXT://h:9094"]
    assert {str(*each.worker.shared) for each in (first, second, third)} == {"PLAINTEXT://h:9092"}
    assert [str(path) for path in first.log_dirs] == ["/a", "/b"]
    assert [str(path) for path in third.log_dirs] == ["/a/workers/2", "/b/workers/2"]
    assert second.static["broker.id"] == second.static["node.id"] == "8"
    assert str(second.advertised_endpoint("PLAINTEXT", 9094)) == "PLAINTEXT://h:9094"


def test_free_ports_are_those_that_were_held():
    held = {"PLAINTEXT": Ports(5000, [5001, 5002])}
    first, second = places({"listeners": "PLAINTEXT://127.0.0.1:0"}, 2, held)
    assert (first.listeners[0].port, second.listeners[0].port, second.worker.shared[0].port) == (5001, 5002, 5000)


def test_what_clients_are_told_is_shifted_too():
    texts = {
        "listeners": "PLAINTEXT://:9092,OUTSIDE://:9192",
        "advertised.listeners": "PLAINTEXT://inside:9092,OUTSIDE://outside:30000",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,OUTSIDE:SSL",
        "broker.id": "3",
        "http.listener": "[::1]:9644",
    }
    _, second = places(texts, 2)
    assert str(second.advertised["OUTSIDE"]) == "OUTSIDE://outside:30002"
    assert str(second.advertised["PLAINTEXT"]) == "PLAINTEXT://inside:9094"
    assert [each.security_protocol for each in second.listeners] == ["PLAINTEXT", "SSL"]
    assert [each.security_protocol for each in second.worker.shared] == ["PLAINTEXT", "SSL"]
    assert (second.node_id, second.http.http_listener) == (4, "[::1]:9645")


def test_the_listeners_of_a_controller_are_opened_by_no_worker():
    texts = {
        "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
        "advertised.listeners": "PLAINTEXT://h:9092,CONTROLLER://h:9093",
        "controller.listener.names": "CONTROLLER",
    }
    assert [str(each) for each in places(texts, 2)[1].listeners] == ["PLAINTEXT://:9094"]


def test_one_machine_needs_one_copy_unless_somebody_wants_more():
    given = {"offsets.topic.replication.factor": "2", "node.id": "1"}
    first, _ = places(given, 2)
    assert first.groups.offsets_topic_replication_factor == 2
    assert (
        first.transactions.transaction_state_log_replication_factor
        == first.transactions.transaction_state_log_min_isr
        == 1
    )
    of_several_machines, _ = places(given | {"zookeeper.connect": "z:2181"}, 2)
    assert of_several_machines.transactions.transaction_state_log_replication_factor == 3


@pytest.mark.parametrize(
    ("texts", "told"),
    [
        (
            {"listeners": "PLAINTEXT://h:9092,SSL://h:9094"},
            "PLAINTEXT://h:9092 and SSL://h:9094 are too near for num.workers=3",
        ),
        ({"listeners": "PLAINTEXT://h:65533"}, "beyond 65535"),
        ({"advertised.listeners": "PLAINTEXT://h:65534"}, "beyond 65535"),
        ({"http.listener": ":65534"}, "which worker 2 has, is beyond 65535"),
    ],
)
def test_what_does_not_fit_is_refused(texts, told):
    with pytest.raises(ConfigError, match=told):
        places(texts, 3)


@pytest.mark.parametrize(("text", "processors", "count"), [("1", 8, 1), ("auto", 2, 2), ("auto", 64, 8), ("24", 2, 24)])
def test_how_many_there_are(text, processors, count):
    assert load_config({"num.workers": text}).workers.count(processors) == count


@pytest.mark.parametrize("text", ["0", "-1", "129", "many", "", "1.5"])
def test_other_numbers_are_refused(text):
    with pytest.raises(ConfigError, match=r"num\.workers"):
        load_config({"num.workers": text})
