"""Workers whose only listener encrypts and wants a login, at the shared port and at their own, also of each other."""

from compat_tests.support.brokers import free_ports_in_a_row
from compat_tests.support.guarded import ADMIN, MODULES, GuardedOttla, password_of
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic


def test_clients_and_workers_log_in_over_tls(tmp_path):
    users = f'username="{ADMIN}" password="{password_of(ADMIN)}" user_{ADMIN}="{password_of(ADMIN)}"'
    settings = {
        "num.workers": "2",
        "node.id": "1",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "listener.name.sasl_ssl.plain.sasl.jaas.config": f"{MODULES}.plain.PlainLoginModule required {users};",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(tmp_path / "certificates" / "authority.pem"),
        "ssl.endpoint.identification.algorithm": "",
    }
    workers = GuardedOttla(tmp_path, settings)
    workers.port = free_ports_in_a_row(3)
    workers.start()
    try:
        how = workers.librdkafka(ADMIN, "PLAIN")
        admin = AdminClient(how)
        admin.create_topics([NewTopic("t", 4)])["t"].result(60)
        producer = Producer(how)
        told = []
        for partition in range(4):
            producer.produce("t", b"x", partition=partition, on_delivery=lambda error, _: told.append(error))
        assert producer.flush(60) == 0
        assert told == [None] * 4
        found = admin.list_topics(timeout=60)
        assert {each.port for each in found.brokers.values()} == {workers.port + 1, workers.port + 2}
        assert {each.leader for each in found.topics["t"].partitions.values()} == {1, 2}
        workers.stop()
    finally:
        if not workers.died():
            workers.kill()
