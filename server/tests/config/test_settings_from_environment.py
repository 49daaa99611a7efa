"""Settings in variables of the environment, named as by images of Apache Kafka."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.server.config.broker_config import broker_settings, load_config
from ottla.server.config.properties import DEFAULT_LISTENERS, add_listeners, settings_from_environment


@pytest.mark.parametrize(
    ("variable", "name"),
    [
        ("KAFKA_ABC_DEF", "abc.def"),  # the examples of Kafka's own documentation of its image
        ("KAFKA_ABC___DEF", "abc-def"),
        ("KAFKA_ABC__DEF", "abc_def"),
        ("OTTLA_NUM_PARTITIONS", "num.partitions"),
        ("OTTLA_A____B", "a-.b"),
        ("KAFKA_LISTENER_NAME_HOST_SSL_KEYSTORE_LOCATION", "listener.name.host.ssl.keystore.location"),
    ],
)
def test_a_variable_names_a_setting(variable: str, name: str) -> None:
    assert settings_from_environment({variable: "text", "PATH": "/bin", "MY_KAFKA_X": "y"}) == {name: "text"}


def test_every_setting_of_the_broker_can_be_named() -> None:
    for name in broker_settings():
        variable = "OTTLA_" + "".join({".": "_", "_": "__", "-": "___"}.get(each, each) for each in name.upper())
        assert list(settings_from_environment({variable: "1"})) == [name]


def test_ours_go_before_kafkas() -> None:
    both = {"OTTLA_NUM_PARTITIONS": "3", "KAFKA_NUM_PARTITIONS": "5", "KAFKA_NODE_ID": "7"}
    assert settings_from_environment(both) == {"num.partitions": "3", "node.id": "7"}


@pytest.mark.parametrize(
    "variable",
    [
        "KAFKA_HEAP_OPTS",
        "KAFKA_VERSION",
        "OTTLA_BOOTSTRAP_SERVERS",
        "OTTLA_PORTABLE",
        "OTTLA_SERVICE_HOST",
        "OTTLA_SERVICE_PORT_CLIENTS",
        "KAFKA_PORT",
        "KAFKA_PORT_9092_TCP",
        "KAFKA_PORT_9092_TCP_ADDR",
        "KAFKA_",
    ],
)
def test_what_means_something_else_is_no_setting(variable: str) -> None:
    assert settings_from_environment({variable: "x"}) == {}


@pytest.mark.parametrize("service", ["KAFKA", "KAFKA_UI", "OTTLA_0", "KAFKA_2_METRICS"])
def test_a_service_in_the_neighbourhood_is_no_setting(service: str) -> None:
    """All that Kubernetes tells of a service: a broker that took it for settings would refuse to start."""
    port = f"{service}_PORT_8080_TCP"
    told = [
        f"{service}_SERVICE_HOST",
        f"{service}_SERVICE_PORT",
        f"{service}_SERVICE_PORT_HTTP_1",
        f"{service}_PORT",
        port,
    ]
    told += [f"{port}_{what}" for what in ("PROTO", "PORT", "ADDR")]
    assert settings_from_environment(dict.fromkeys(told, "x")) == {}


VARIABLES = st.builds("{}{}".format, st.sampled_from(["KAFKA_", "OTTLA_", ""]), st.text("ABZ_09é", max_size=20))


@given(st.dictionaries(VARIABLES, st.text(max_size=30), max_size=5))
def test_whatever_the_environment_holds_is_taken_or_left(environment: dict[str, str]) -> None:
    found = settings_from_environment(environment)
    assert len(found) <= len(environment)
    assert set(found.values()) <= set(environment.values())
    add_listeners(found)
    assert "listeners" in found


def test_without_listeners_the_host_and_the_network_each_have_one() -> None:
    texts = {"num.partitions": "2"}
    add_listeners(texts)
    assert texts == {"num.partitions": "2"} | DEFAULT_LISTENERS
    config = load_config(texts)
    assert {each.listener: each.port for each in config.listeners} == {"PLAINTEXT": 19092, "HOST": 9092}
    told = config.advertised
    assert (told["HOST"].host, told["HOST"].port) == ("localhost", 9092)
    assert told["PLAINTEXT"].port == 19092
    assert told["PLAINTEXT"].host not in ("", "0.0.0.0", "localhost")


@pytest.mark.parametrize(
    ("advertised", "listeners"),
    [
        ("PLAINTEXT://broker:9092", "PLAINTEXT://:9092"),
        ("A://one.example:1,B://[::1]:2", "A://:1,B://:2"),
        ("A://:1", "A://:1"),
        ("nonsense", "nonsense"),
    ],
)
def test_a_broker_listens_where_it_says_that_it_is(advertised: str, listeners: str) -> None:
    texts = {"advertised.listeners": advertised}
    add_listeners(texts)
    assert texts == {"advertised.listeners": advertised, "listeners": listeners}


def test_listeners_that_are_given_stay() -> None:
    texts = {"listeners": "PLAINTEXT://:1"}
    add_listeners(texts)
    assert texts == {"listeners": "PLAINTEXT://:1"}
