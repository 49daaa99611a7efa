"""confluent-kafka's integration tests start clusters with trivup, which downloads Apache Kafka and a schema registry.

`trivup.clusters.KafkaCluster` is put in place of that package: brokers of this process, and `ottla registry` beside them.
"""

import importlib.util
import os
import subprocess
import sys
from importlib.machinery import ModuleSpec
from typing import Any

from ottla.testing import Kafka

JAAS = "org.apache.kafka.common.security.plain.PlainLoginModule required"


class Registry:
    """A schema registry as a process beside the brokers."""

    def __init__(self, bootstrap: str) -> None:
        command = [
            sys.executable,
            "-m",
            "ottla",
            "registry",
            "-b",
            bootstrap,
            "--listen",
            "127.0.0.1:0",
            "--log-level",
            "error",
        ]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, env=os.environ, text=True)
        assert self._process.stdout is not None
        self._url = next(word for line in self._process.stdout for word in line.split() if word.startswith("http://"))

    def get(self, name: str) -> str:
        assert name == "url"
        return self._url

    def stop(self) -> None:
        self._process.terminate()
        self._process.communicate(timeout=30)


class KafkaCluster:
    """Stand-in for trivup's class of that name, as far as the tests use it."""

    def __init__(
        self,
        broker_cnt: int = 1,
        broker_conf: list[str] | None = None,
        with_sr: bool = False,
        sasl_mechanism: str = "",
        sasl_users: str = "",
        **_: Any,
    ) -> None:
        settings = dict(line.split("=", 1) for line in broker_conf or ())
        settings.pop("offsets.topic.min.isr", None)  # Kafka ignores it, because it has no setting of that name
        settings |= {
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "allow.everyone.if.no.acl.found": "true",
        }
        self._client = {"broker.address.family": "v4"}
        if sasl_mechanism:
            user, _, password = sasl_users.partition("=")
            settings |= self._plain(user, password)
            self._client |= {
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanisms": sasl_mechanism,
                "sasl.username": user,
                "sasl.password": password,
            }
        self._kafka = Kafka(broker_cnt, settings)
        if with_sr:
            self.sr = Registry(self._kafka.bootstrap)

    @staticmethod
    def _plain(user: str, password: str) -> dict[str, str]:
        jaas = f'{JAAS} username="{user}" password="{password}" user_{user}="{password}";'
        return {
            "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
            "sasl.enabled.mechanisms": "PLAIN",
            "sasl.mechanism.inter.broker.protocol": "PLAIN",
            "security.inter.broker.protocol": "SASL_PLAINTEXT",
            "listener.name.sasl_plaintext.plain.sasl.jaas.config": jaas,
        }

    def wait_operational(self) -> None:
        """Nothing to wait for: a Kafka serves when it has been made."""

    def client_conf(self) -> dict[str, Any]:
        return self._client | {"bootstrap.servers": self._kafka.bootstrap}

    def stop(self, **_: Any) -> None:
        if hasattr(self, "sr"):
            self.sr.stop()
        self._kafka.close()


for name in ("trivup", "trivup.clusters", "trivup.clusters.KafkaCluster"):
    sys.modules[name] = importlib.util.module_from_spec(ModuleSpec(name, None))
sys.modules["trivup.clusters.KafkaCluster"].KafkaCluster = KafkaCluster  # type: ignore[attr-defined]
