"""The log of a broker that has passwords of every kind: its banner, and what it says of requests that name them."""

from pathlib import Path

from compat_tests.support.brokers import OttlaProcess
from compat_tests.support.wire_client import WireClient

from ottla.server.config.broker_config import broker_settings
from ottla.wire.messages.alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalConfig,
    IncrementalConfigsResource,
)
from ottla.wire.settings import PASSWORD

MARKER = "hunter2-the-marker"


def test_no_password_is_in_the_log(tmp_path: Path) -> None:
    passwords = [name for name, declared in broker_settings().items() if declared.kind is PASSWORD]
    names = [
        prefix + name for prefix in ("", "listener.name.other.", "listener.name.other.plain.") for name in passwords
    ]
    with_name = dict.fromkeys(
        ("http.console.schema.registry.user.info", "confluent.basic.auth.user.info", "http.console.users"),
        f"user:{MARKER}",
    )
    broker = OttlaProcess(tmp_path, dict.fromkeys(names, MARKER) | with_name).start()
    try:
        client = WireClient((broker.host, broker.port), client_id="secrets", timeout_s=30)
        # Once all loggers say what they can.
        for kind, configs in ((8, [("root", "TRACE")]), *((4, [(name, MARKER)]) for name in names)):
            changes = [IncrementalConfig(name=name, config_operation=0, value=value) for name, value in configs]
            resource = IncrementalConfigsResource(
                resource_type=kind, resource_name=broker.settings.get("node.id", "1"), configs=changes
            )
            client.send(IncrementalAlterConfigsRequest(resources=[resource], validate_only=False), 1)
            assert MARKER not in repr(client.receive())
        client.close()
    finally:
        broker.stop()
    assert "Updated the log level of root to TRACE" in broker.log
    assert MARKER not in broker.log
