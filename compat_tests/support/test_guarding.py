"""Who knows nothing of TLS and logins comes to a broker that asks for both, and has the rights of the user."""

from pathlib import Path

from compat_tests.support.guarding import USER, GuardedForAll
from compat_tests.support.wire_client import WireClient
from confluent_kafka import Producer

from ottla.server.dispatch.access import AclOperation, ResourceType
from ottla.wire.messages.acls import DeleteAclsFilter, DeleteAclsRequest
from ottla.wire.messages.metadata import MetadataRequest, MetadataRequestTopic


def test_clients_without_a_login_have_the_rights_of_a_user(tmp_path: Path) -> None:
    broker = GuardedForAll(tmp_path, {})
    broker.start()
    try:
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        producer.produce("made-on-sight", b"value")
        assert producer.flush(60) == 0
        with WireClient((broker.host, broker.port), client_id="somebody") as client:
            named = MetadataRequest(topics=[MetadataRequestTopic(name="made-on-sight")])
            assert client.ask(named, 8).topics[0].error_code == 0
            everything = DeleteAclsFilter(
                resource_type_filter=ResourceType.TOPIC,
                resource_name_filter=None,
                principal_filter=f"User:{USER}",
                host_filter=None,
                operation=AclOperation.ANY,
                permission_type=1,
            )
            client.ask(DeleteAclsRequest(filters=[everything]), 3)
            assert client.ask(named, 8).topics[0].error_code == 29
    finally:
        broker.stop()
