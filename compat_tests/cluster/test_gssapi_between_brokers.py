"""Brokers log in at each other by Kerberos: Ottla and Apache Kafka 3.9 in one cluster, each with the keys of its service."""

import os
import socket
from pathlib import Path

import pytest
from compat_tests.apache.brokers import ApacheKafka3
from compat_tests.cluster.secured import LISTENER, made, running, settings_of, works
from compat_tests.support.brokers import OttlaProcess
from compat_tests.support.kerberos import Realm, python_path

MODULE = "com.sun.security.auth.module.Krb5LoginModule"
CONFIG = "KRB5_CONFIG"


class KerberosKafka(ApacheKafka3):
    def java(self, *options: str) -> list[str]:
        return super().java(f"-Djava.security.krb5.conf={os.environ[CONFIG]}", *options)


@pytest.mark.long
def test_ottla_and_kafka_log_in_at_each_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = python_path(tmp_path / "gssapi")
    if path:
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join([path, os.environ.get("PYTHONPATH", "")]))
    with Realm(tmp_path / "realm", canonicalizes=True) as realm:
        for name, value in realm.environment.items():
            monkeypatch.setenv(name, value)
        service = f"kafka/{socket.gethostbyaddr('127.0.0.1')[0]}"
        keys = f'keyTab="{realm.keytab(service)}" principal="{service}@{realm.name}"'
        kerberos = {
            "sasl.enabled.mechanisms": "GSSAPI",
            "sasl.mechanism.inter.broker.protocol": "GSSAPI",
            "sasl.kerberos.service.name": "kafka",
            f"{LISTENER}.gssapi.sasl.jaas.config": f"{MODULE} required useKeyTab=true storeKey=true {keys};",
        }
        kinds = [KerberosKafka, OttlaProcess, OttlaProcess]
        with running(made(tmp_path / "cluster", kinds, settings_of("SASL_PLAINTEXT") | kerberos)) as cluster:
            works(cluster, "kerberos")
