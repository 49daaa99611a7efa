"""Settings in variables of the environment, named as by images of Apache Kafka."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.server.config import environment_logins
from ottla.server.config.broker_config import ConfigError, broker_settings, load_config
from ottla.server.config.environment import (
    DEFAULT_LISTENERS,
    NAMED_MAX,
    OF_KAFKAS_FILE,
    TOPICS_MAX,
    FirstTopic,
    add_listeners,
    address_to_ask,
    first_topics,
    read_environment,
    variable_of,
)
from ottla.server.config.environment_logins import add_logins


def settings_from_environment(environment: dict[str, str]) -> dict[str, str]:
    return dict(read_environment(environment).texts)


@pytest.mark.parametrize(
    ("variable", "name"),
    [
        ("OTTLA_ABC_DEF", "abc.def"),  # the examples of Kafka's own documentation of its image
        ("OTTLA_ABC___DEF", "abc-def"),
        ("OTTLA_ABC__DEF", "abc_def"),
        ("KAFKA_NUM_PARTITIONS", "num.partitions"),
        ("OTTLA_NUM_PARTITIONS", "num.partitions"),
        ("OTTLA_A____B", "a-.b"),
        ("KAFKA_LISTENER_NAME_HOST_SSL_KEYSTORE_LOCATION", "listener.name.host.ssl.keystore.location"),
    ],
)
def test_a_variable_names_a_setting(variable: str, name: str) -> None:
    assert settings_from_environment({variable: "text", "PATH": "/bin", "MY_KAFKA_X": "y"}) == {name: "text"}


def test_every_setting_of_the_broker_can_be_named() -> None:
    for name in broker_settings():
        for prefix in ("OTTLA_", "KAFKA_"):
            assert list(settings_from_environment({variable_of(name, prefix): "1"})) == [name]


def test_ours_go_before_kafkas() -> None:
    both = {"OTTLA_NUM_PARTITIONS": "3", "KAFKA_NUM_PARTITIONS": "5", "KAFKA_NODE_ID": "7"}
    assert settings_from_environment(both) == {"num.partitions": "3", "node.id": "7"}


@pytest.mark.parametrize(
    "variable",
    [
        "KAFKA_HEAP_OPTS",
        "KAFKA_VERSION",
        "OTTLA_BOOTSTRAP_SERVERS",
        "OTTLA_CONTROL_TOKEN",
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


# ---------------------------------------------------------------------- variables of other images


def test_bitnamis_variables_go_before_kafkas_and_after_ours() -> None:
    given = {"KAFKA_NUM_PARTITIONS": "1", "KAFKA_CFG_NUM_PARTITIONS": "2", "KAFKA_CFG_NODE_ID": "4"}
    assert settings_from_environment(given) == OF_KAFKAS_FILE | {
        "num.partitions": "2",
        "node.id": "4",
        "listeners": "PLAINTEXT://:9092",
    }
    assert settings_from_environment(given | {"OTTLA_NUM_PARTITIONS": "3"})["num.partitions"] == "3"


def test_what_is_no_setting_is_ignored_in_one_line() -> None:
    found = read_environment({"KAFKA_CONFLUENT_LICENSE": "secret", "KAFKA_BASE_DIR": "/opt", "KAFKA_NODE_ID": "1"})
    assert found.texts == {"node.id": "1"}
    assert found.warnings == ("Ignored, because they are no settings: KAFKA_BASE_DIR, KAFKA_CONFLUENT_LICENSE",)


def test_a_mistyped_variable_is_named_with_the_nearest_and_without_its_value() -> None:
    found = read_environment({"KAFKA_SSL_KEYSTORE_PASWORD": "hunter2", "KAFKA_CREATE_TOPIC": "orders:1:1"})
    assert found.texts == {}
    assert found.warnings == (
        "KAFKA_CREATE_TOPIC is ignored: there is no such setting; did you mean KAFKA_CREATE_TOPICS?",
        "KAFKA_SSL_KEYSTORE_PASWORD is ignored: there is no such setting; did you mean KAFKA_SSL_KEYSTORE_PASSWORD?",
    )


def test_an_unknown_variable_of_ours_is_refused() -> None:
    with pytest.raises(ConfigError, match="Unknown setting num.partitons: .*did you mean num.partitions"):
        load_config(settings_from_environment({"OTTLA_NUM_PARTITONS": "3"}))


def test_ten_thousand_strange_variables_make_a_few_lines() -> None:
    found = read_environment({f"KAFKA_ZZQ{number:05}": "x" for number in range(10_000)})
    [line] = found.warnings
    assert line.count("KAFKA_") == NAMED_MAX
    assert line.endswith(f" and {10_000 - NAMED_MAX} more")


@pytest.mark.parametrize("name", ["CLUSTER_ID", "KAFKA_KRAFT_CLUSTER_ID", "KAFKA_CLUSTER_ID"])
def test_a_cluster_id_is_for_a_new_cluster(name: str) -> None:
    found = read_environment({name: "MkU3OEVBNTcwNTJENDM2Qk"})
    assert (found.cluster_id, found.texts, found.warnings) == ("MkU3OEVBNTcwNTJENDM2Qk", {}, ())


@pytest.mark.parametrize("text", ["two words", "x" * 129, "a\nb", "\u00e9"])
def test_a_cluster_id_that_no_file_can_hold_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="CLUSTER_ID: must be 1 to 128 characters"):
        read_environment({"CLUSTER_ID": text})


@pytest.mark.parametrize(
    ("variables", "listeners", "advertised"),
    [
        ({"KAFKA_ADVERTISED_HOST_NAME": "192.168.99.100"}, ":9092", "192.168.99.100:9092"),
        ({"KAFKA_ADVERTISED_HOST_NAME": "h", "KAFKA_ADVERTISED_PORT": "32000"}, ":9092", "h:32000"),
        ({"KAFKA_ADVERTISED_HOST_NAME": "h", "KAFKA_PORT": "9093"}, ":9093", "h:9093"),
        ({"KAFKA_ADVERTISED_HOST_NAME": "::1", "KAFKA_HOST_NAME": "::"}, "[::]:9092", "[::1]:9092"),
        ({"KAFKA_ADVERTISED_HOST_NAME": "h", "KAFKA_PORT": "tcp://10.0.0.1:9092"}, ":9092", "h:9092"),
        ({"KAFKA_ADVERTISED_HOST_NAME": "h", "KAFKA_LISTENERS": "PLAINTEXT://:1"}, ":1", "h:9092"),
    ],
)
def test_older_names_of_addresses(variables: dict[str, str], listeners: str, advertised: str) -> None:
    texts = settings_from_environment(variables)
    assert texts["listeners"] == f"PLAINTEXT://{listeners}"
    assert texts["advertised.listeners"] == f"PLAINTEXT://{advertised}"
    load_config(texts)


def test_older_names_give_way_to_the_newer_one() -> None:
    given = {"KAFKA_ADVERTISED_HOST_NAME": "h", "KAFKA_ADVERTISED_LISTENERS": "PLAINTEXT://i:1"}
    found = read_environment(given)
    assert found.texts["advertised.listeners"] == "PLAINTEXT://i:1"
    assert found.warnings == ("KAFKA_ADVERTISED_HOST_NAME: ignored, because advertised.listeners is given",)


def test_a_command_is_not_run_and_an_address_that_needs_it_is_refused() -> None:
    command = {"HOSTNAME_COMMAND": "touch /tmp/was-run"}
    assert read_environment(command).warnings == (
        "HOSTNAME_COMMAND: ignored, because commands in variables are not run",
    )
    with pytest.raises(ConfigError, match="advertised.listeners wants the output of HOSTNAME_COMMAND"):
        read_environment(command | {"KAFKA_ADVERTISED_LISTENERS": "OUTSIDE://_{HOSTNAME_COMMAND}:9094"})


def test_kraft_means_nothing_in_one_line() -> None:
    one = {
        "KAFKA_PROCESS_ROLES": "broker,controller",
        "KAFKA_CONTROLLER_QUORUM_VOTERS": "1@localhost:9093",
        "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
    }
    found = read_environment(one)
    assert found.notes == (
        "There is no KRaft here, so these mean nothing: controller.listener.names, controller.quorum.voters, process.roles",
    )
    assert found.warnings == ()
    several = {"KAFKA_CONTROLLER_QUORUM_BOOTSTRAP_SERVERS": "a:1,b:1"}
    [warning] = read_environment(several).warnings
    assert "has 2 members, but this broker is alone" in warning
    assert read_environment(several | {"KAFKA_ZOOKEEPER_CONNECT": "z:1", "KAFKA_BROKER_ID": "1"}).warnings == ()


@pytest.mark.parametrize(
    ("variables", "broker_id"),
    [({}, "1001"), ({"KAFKA_BROKER_ID": "-1"}, "1001"), ({"KAFKA_BROKER_ID": "3"}, "3")],
)
def test_a_member_of_a_cluster_without_an_id_gets_zookeepers_first(variables: dict[str, str], broker_id: str) -> None:
    found = read_environment({"KAFKA_ZOOKEEPER_CONNECT": "zookeeper:2181"} | variables)
    assert found.texts["broker.id"] == broker_id
    assert len(found.warnings) == (broker_id == "1001")


@pytest.mark.parametrize(
    ("text", "separator", "topics"),
    [
        ("orders:6:1,users:1:1:compact", ",", [FirstTopic("orders", 6, 1), FirstTopic("users", 1, 1, "compact")]),
        (" orders : 6 : 1 ,\n users", ",", [FirstTopic("orders", 6, 1), FirstTopic("users")]),
        ("a:1:1\nb:2:1\n", "\n", [FirstTopic("a", 1, 1), FirstTopic("b", 2, 1)]),
        ("a:1:1\nb:2:1", r"$'\n'", [FirstTopic("a", 1, 1), FirstTopic("b", 2, 1)]),
        ("", ",", []),
    ],
)
def test_topics_to_create(text: str, separator: str, topics: list[FirstTopic]) -> None:
    assert first_topics(text, separator) == (tuple(topics), [])


@pytest.mark.parametrize("text", ["a:x:1", ":1:1", "a:1:1:compact:more", "a:1:99999999999999"])
def test_a_malformed_topic_is_ignored_alone(text: str) -> None:
    topics, [warning] = first_topics(f"good:1:1,{text}")
    assert topics == (FirstTopic("good", 1, 1),)
    assert repr(text) in warning


def test_the_number_of_topics_is_bounded() -> None:
    topics, warnings = first_topics(",".join(f"t{number}" for number in range(TOPICS_MAX + 5)))
    assert len(topics) == TOPICS_MAX
    assert warnings == [f"KAFKA_CREATE_TOPICS: only the first {TOPICS_MAX} topics are created"]


@given(st.text(":,ab1\n ", max_size=30), st.sampled_from([",", "\n", r"$'\n'", "::"]))
def test_any_text_is_topics_or_warnings(text: str, separator: str) -> None:
    topics, warnings = first_topics(text, separator)
    assert all(each.name for each in topics)
    assert len(topics) + len(warnings) <= text.count("," if separator == "," else separator[-1:]) + len(text) + 1


@pytest.mark.parametrize(
    ("variables", "address", "encrypted"),
    [
        ({}, "127.0.0.1:19092", False),
        ({"KAFKA_LISTENERS": "PLAINTEXT://:9093"}, "127.0.0.1:9093", False),
        ({"KAFKA_LISTENERS": "SSL://:9093,PLAINTEXT://10.0.0.1:9092"}, "10.0.0.1:9092", False),
        ({"KAFKA_LISTENERS": "A://[::]:1", "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "A:SSL"}, "[::1]:1", True),
        ({"KAFKA_ADVERTISED_LISTENERS": "PLAINTEXT://broker.example:9095"}, "127.0.0.1:9095", False),
        ({"KAFKA_CFG_NODE_ID": "1"}, "127.0.0.1:9092", False),
    ],
)
def test_the_address_of_a_health_check(variables: dict[str, str], address: str, encrypted: bool) -> None:
    if encrypted:
        variables |= {"KAFKA_SECURITY_INTER_BROKER_PROTOCOL": "SSL"}
    assert address_to_ask(variables) == (address, encrypted)


# ---------------------------------------------------------------------- logins

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
SASL = {
    "listeners": "SASL_PLAINTEXT://:9092,OTHER://:9093",
    "listener.security.protocol.map": "SASL_PLAINTEXT:SASL_PLAINTEXT,OTHER:SASL_SSL",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
    "security.inter.broker.protocol": "SASL_PLAINTEXT",
}


def test_a_jaas_file_is_the_logins_of_its_listeners(tmp_path: Path) -> None:
    path = tmp_path / "jaas.conf"
    path.write_text(f"""
        KafkaServer {{ {PLAIN} required username="a" password="p\\"q\\\\"; {SCRAM} required; }};
        other.KafkaServer {{ {PLAIN} required user_b='x'; }};
    """)
    texts = dict(SASL)
    options = f"-Xmx1g '-Djava.security.auth.login.config={path}'"
    assert add_logins(texts, {"KAFKA_OPTS": options}) == ()
    prefix, other = "listener.name.sasl_plaintext.", "listener.name.other."
    assert texts.keys() - SASL.keys() == {
        f"{prefix}plain.sasl.jaas.config",
        f"{prefix}scram-sha-256.sasl.jaas.config",
        f"{prefix}scram-sha-512.sasl.jaas.config",
        f"{other}plain.sasl.jaas.config",
    }
    assert texts[f"{prefix}plain.sasl.jaas.config"] == rf'{PLAIN} required username="a" password="p\"q\\";'
    assert texts[f"{other}plain.sasl.jaas.config"] == f'{PLAIN} required user_b="x";'
    entry = load_config(texts).sasl["SASL_PLAINTEXT"].mechanisms["PLAIN"].jaas
    assert entry is not None and entry.options == {"username": "a", "password": 'p"q\\'}


def test_a_setting_goes_before_the_jaas_file(tmp_path: Path) -> None:
    path = tmp_path / "jaas.conf"
    path.write_text(f"KafkaServer {{ {PLAIN} required user_a=p; }};")
    given = {"listener.name.sasl_plaintext.plain.sasl.jaas.config": "given"}
    texts = SASL | given
    add_logins(texts, {"KAFKA_OPTS": f"-Djava.security.auth.login.config={path}"})
    assert texts.items() >= given.items()


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (None, "No such file"),
        ("KafkaServer", "must begin with its name and {"),
        ("KafkaServer { };", "has no login module"),
        (f"KafkaServer {{ {PLAIN} required secret=hunter2 }};", "."),
        (f"KafkaServer {{ {PLAIN} required password=hunter2; }}", "must end with };"),
        ("{", "must begin"),
    ],
)
def test_a_jaas_file_that_cannot_be_read_is_named(tmp_path: Path, content: str | None, reason: str) -> None:
    path = tmp_path / "jaas.conf"
    if content is not None:
        path.write_text(content)
    with pytest.raises(ConfigError, match=reason) as refused:
        add_logins(dict(SASL), {"KAFKA_OPTS": f"-Djava.security.auth.login.config={path}"})
    assert str(path) in str(refused.value)
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize("options", ["", "-Xmx1g", "-Djava.security.auth.login.config=", "'"])
def test_options_without_a_jaas_file_mean_nothing(options: str) -> None:
    texts = dict(SASL)
    assert add_logins(texts, {"KAFKA_OPTS": options}) == ()
    assert texts == SASL


def test_bitnamis_users_log_in() -> None:
    texts = dict(SASL)
    users = add_logins(
        texts,
        {
            "KAFKA_CLIENT_USERS": "ann,bob",
            "KAFKA_CLIENT_PASSWORDS": "a,b",
            "KAFKA_INTER_BROKER_USER": "broker",
            "KAFKA_INTER_BROKER_PASSWORD": "c",
        },
    )
    assert [(each.mechanism, each.name, each.password) for each in users] == [
        ("SCRAM-SHA-256", "ann", "a"),
        ("SCRAM-SHA-256", "bob", "b"),
        ("SCRAM-SHA-256", "broker", "c"),
    ]
    entry = load_config(texts).sasl["SASL_PLAINTEXT"].mechanisms["PLAIN"].jaas
    assert entry is not None
    assert entry.options == {
        "username": "broker",
        "password": "c",
        "user_ann": "a",
        "user_bob": "b",
        "user_broker": "c",
    }


@pytest.mark.parametrize(
    "variables",
    [
        {"KAFKA_CLIENT_USERS": "ann,bob", "KAFKA_CLIENT_PASSWORDS": "hunter2"},
        {"KAFKA_CLIENT_USERS": "ann"},
        {"KAFKA_INTER_BROKER_USER": "broker"},
    ],
)
def test_users_without_passwords_are_refused(variables: dict[str, str]) -> None:
    with pytest.raises(ConfigError) as refused:
        add_logins(dict(SASL), variables)
    assert "hunter2" not in str(refused.value)


def test_keys_and_their_passwords_are_below_the_secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment_logins, "SECRETS", tmp_path)
    (tmp_path / "creds").write_text("hunter2\n")
    variables = {
        "KAFKA_SSL_KEYSTORE_FILENAME": "broker.keystore.jks",
        "KAFKA_SSL_KEYSTORE_CREDENTIALS": "creds",
        "KAFKA_SSL_KEY_CREDENTIALS": "creds",
        "KAFKA_SSL_TRUSTSTORE_FILENAME": "broker.truststore.jks",
        "KAFKA_SSL_TRUSTSTORE_CREDENTIALS": "creds",
    }
    assert read_environment(variables).warnings == ()
    texts = {"listeners": "SSL://:1", "ssl.truststore.location": "given"}
    add_logins(texts, read_environment(variables).variables)
    assert texts == {
        "listeners": "SSL://:1",
        "ssl.keystore.location": str(tmp_path / "broker.keystore.jks"),
        "ssl.truststore.location": "given",
        **dict.fromkeys(("ssl.keystore.password", "ssl.key.password", "ssl.truststore.password"), "hunter2"),
    }
    with pytest.raises(ConfigError, match="KAFKA_SSL_KEY_CREDENTIALS: cannot read .*missing: No such file"):
        add_logins({"listeners": "SSL://:1"}, {"KAFKA_SSL_KEY_CREDENTIALS": "missing"})
    with pytest.raises(ConfigError, match="is not a file"):
        add_logins({"listeners": "SSL://:1"}, {"KAFKA_SSL_KEY_CREDENTIALS": "."})


def test_a_comma_behind_the_last_address_is_passed_over() -> None:
    given = "PLAINTEXT://localhost:1,BROKER://h:2,"
    assert settings_from_environment({"KAFKA_ADVERTISED_LISTENERS": given})["advertised.listeners"] == given[:-1]
