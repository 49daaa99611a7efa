"""Settings of the coordination tree of a cluster: in ZooKeeper, or served by another process of this machine.

TLS with ZooKeeper takes PEM files only: `zookeeper.ssl.keystore.location` holds the private key (PKCS#8, with
`zookeeper.ssl.keystore.password` if it is encrypted) and the certificates, `zookeeper.ssl.truststore.location` the
authorities. Kafka takes the name and password of SASL from a JAAS file of the JVM; here they are two settings.

Apache Kafka knows nothing like `coordination.socket`, by which brokers of one machine share the tree of another process.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ottla.server.config.endpoint import host_and_port
from ottla.wire.settings import INT, PASSWORD, InvalidSetting, setting

if TYPE_CHECKING:
    import ssl

CONNECT = "zookeeper.connect"
PORT = 2181
SOCKET = "coordination.socket"

# Java's names of what hashlib calls by other names
KEY_FACTORIES = {f"PBKDF2WithHmacSHA{bits}": f"sha{bits}" for bits in (1, 224, 256, 384, 512)}
CBC, GCM = "AES/CBC/PKCS5Padding", "AES/GCM/NoPadding"
CIPHERS = (CBC, GCM)
KEY_LENGTHS = (128, 192, 256)
ITERATIONS_MAX = 1_000_000  # half a second; whoever can write into ZooKeeper could ask for any time


def _kafka_release(value: str) -> str | None:
    return (
        None
        if re.fullmatch(r"[0-9]+\.[0-9]+(\.[0-9]+)?(-IV[0-9]+)?", value)
        else "it is no release of Kafka, such as 3.9"
    )


def check_connection(config: ZooKeeperConfig, texts: Mapping[str, str]) -> None:
    """Raise InvalidSetting if a broker could not be a cluster member with these settings."""
    check_has_id(texts, CONNECT)
    parse_connect(config.zookeeper_connect)
    check_password_encoder(config)


def check_has_id(texts: Mapping[str, str], name: str) -> None:
    """Raise InvalidSetting if a cluster member has no broker id; `name` is the setting that makes it a member."""
    # The default id would be the same on all members.
    if "node.id" not in texts and "broker.id" not in texts:
        reason = "a member of a cluster needs a broker.id"
        raise InvalidSetting.of_text(name, texts[name], reason)


def check_password_encoder(config: ZooKeeperConfig) -> None:
    """Raise InvalidSetting if passwords are to be encrypted but the package for this is missing."""
    from importlib.util import find_spec

    if config.password_encoder_secret is not None and find_spec("cryptography") is None:
        reason = "it needs the package cryptography: pip install 'ottla[security]'"
        raise InvalidSetting.without_value("password.encoder.secret", reason)


@dataclass(frozen=True, kw_only=True)
class ZooKeeperConfig:
    """Settings of the connection to ZooKeeper."""

    # Without it there is no such configuration, so it is never None.
    zookeeper_connect: str = setting(
        None, doc="ZooKeeper servers as host:port,host:port, with a path at the end for a tree below that node."
    )
    zookeeper_session_timeout_ms: int = setting(
        18_000, minimum=1, doc="Time without contact after which this broker counts as gone."
    )
    zookeeper_connection_timeout_ms: int | None = setting(
        None, kind=INT, doc="Longest wait for the first connection; by default the session timeout."
    )
    control_plane_listener_name: str | None = setting(
        None, doc="Listener that brokers and the controller use among themselves; by default the one among brokers."
    )
    inter_broker_protocol_version: str | None = setting(
        None,
        check=_kafka_release,
        doc="Release of the Apache Kafka brokers that share the cluster, such as 3.9: no features are finalized then. Without it, all"
        " that this release supports.",
    )
    zookeeper_set_acl: bool = setting(False, doc="Whether only this user may change the nodes that are created.")
    zookeeper_sasl_username: str | None = setting(None, doc="User of SASL DIGEST-MD5; none: no SASL.")
    zookeeper_sasl_password: str | None = setting(None, kind=PASSWORD, doc="Password of SASL DIGEST-MD5.")
    zookeeper_ssl_client_enable: bool = setting(False, doc="Whether to speak TLS with ZooKeeper.")
    zookeeper_ssl_keystore_location: str | None = setting(None, doc="PEM file with this broker's key and certificates.")
    zookeeper_ssl_keystore_password: str | None = setting(None, kind=PASSWORD, doc="Password of the private key.")
    zookeeper_ssl_keystore_type: str | None = setting(None, doc="PEM; other types cannot be read.")
    zookeeper_ssl_truststore_location: str | None = setting(None, doc="PEM file with the authorities to trust.")
    zookeeper_ssl_truststore_password: str | None = setting(None, kind=PASSWORD, doc="Not needed for PEM.")
    zookeeper_ssl_truststore_type: str | None = setting(None, doc="PEM; other types cannot be read.")
    zookeeper_ssl_endpoint_identification_algorithm: str = setting(
        "HTTPS", doc="HTTPS: the server's certificate must name its host; empty: it need not."
    )
    password_encoder_secret: str | None = setting(
        None, kind=PASSWORD, doc="Secret that passwords among the run-time settings are encrypted with in ZooKeeper."
    )
    password_encoder_old_secret: str | None = setting(
        None, kind=PASSWORD, doc="The secret before password.encoder.secret; what it encrypted is encrypted anew."
    )
    password_encoder_keyfactory_algorithm: str | None = setting(
        None,
        check=lambda name: None if name in KEY_FACTORIES else f"it is none of {', '.join(KEY_FACTORIES)}",
        doc="How the key for passwords is derived; by default PBKDF2WithHmacSHA512.",
    )
    password_encoder_cipher_algorithm: str = setting(
        CBC,
        check=lambda name: None if name in CIPHERS else f"it is none of {', '.join(CIPHERS)}",
        doc="Cipher for passwords.",
    )
    password_encoder_key_length: int = setting(
        128,
        minimum=8,
        check=lambda bits: None if bits in KEY_LENGTHS else "AES has keys of 128, 192 and 256 bits",
        doc="Bits of the key for passwords.",
    )
    password_encoder_iterations: int = setting(
        4096, minimum=1024, maximum=ITERATIONS_MAX, doc="Repetitions by which the key for passwords is derived."
    )

    @property
    def connection_timeout_s(self) -> float:
        timeout_ms = self.zookeeper_connection_timeout_ms
        return (self.zookeeper_session_timeout_ms if timeout_ms is None else timeout_ms) / 1000


def _path_problem(text: str) -> str | None:
    if not text or text.startswith("/"):
        return None
    return "must be the absolute path of a Unix socket; brokers of several machines share a tree by zookeeper.connect"


@dataclass(frozen=True, kw_only=True)
class CoordinationConfig:
    """Settings of the connection to a process on this machine that serves the coordination tree."""

    coordination_socket: str = setting(
        "",
        check=_path_problem,
        internal=True,
        doc="Unix socket of the process that serves the cluster's coordination tree to brokers of this machine; empty: none.",
    )
    coordination_session_timeout_ms: int = setting(
        6_000,
        minimum=1_000,
        maximum=600_000,
        internal=True,
        doc="Time without contact over coordination.socket after which this broker counts as hanging, and gone.",
    )

    def check_together(self, texts: Mapping[str, str]) -> None:
        """Raise InvalidSetting if these settings contradict other settings in `texts`."""
        if not self.coordination_socket:
            return
        check_has_id(texts, SOCKET)
        if texts.get(CONNECT):
            reason = f"a cluster has one coordination tree, so {CONNECT} cannot be given, too"
            raise InvalidSetting(SOCKET, self.coordination_socket, reason)

    @property
    def session_timeout_s(self) -> float:
        return self.coordination_session_timeout_ms / 1000


def parse_connect(text: str) -> tuple[list[str], str]:
    """Split zookeeper.connect; return the servers as host:port, and the root path ("": ZooKeeper's own root).

    Raises InvalidSetting.
    """
    hosts, _, path = text.strip().partition("/")
    root = f"/{path}" if path else ""
    if root and any(name in ("", ".", "..") for name in path.split("/")):
        raise InvalidSetting(CONNECT, text, f"{root} is not the path of a node")
    servers = [_server(text, host.strip()) for host in hosts.split(",") if host.strip()]
    if not servers:
        raise InvalidSetting(CONNECT, text, "it names no server")
    return servers, root


def _server(text: str, host: str) -> str:
    from urllib.parse import urlsplit

    try:
        parts = urlsplit(f"//{host}")
        name, port = parts.hostname, parts.port or PORT
    except ValueError:
        name, port = None, 0
    if not name or "@" in host or parts.netloc != host:
        raise InvalidSetting(CONNECT, text, f"{host} is not host:port")
    return host_and_port(name, port)


def tls_context(config: ZooKeeperConfig) -> ssl.SSLContext | None:
    """Return the TLS context for ZooKeeper; None for plain connections. Raises InvalidSetting for unusable files."""
    if not config.zookeeper_ssl_client_enable:
        return None
    import ssl  # here, because most never need it

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = config.zookeeper_ssl_endpoint_identification_algorithm.lower() == "https"
    _load(
        "zookeeper.ssl.truststore",
        config.zookeeper_ssl_truststore_location,
        config.zookeeper_ssl_truststore_type,
        lambda path: context.load_verify_locations(path) if path else context.load_default_certs(),
    )
    password = config.zookeeper_ssl_keystore_password
    _load(
        "zookeeper.ssl.keystore",
        config.zookeeper_ssl_keystore_location,
        config.zookeeper_ssl_keystore_type,
        # An empty password keeps OpenSSL from asking for one on the terminal.
        lambda path: context.load_cert_chain(path, password=password or "") if path else None,
    )
    return context


def _load(prefix: str, path: str | None, kind: str | None, load: Callable[[str | None], None]) -> None:
    """Call `load` with the path of a key store or trust store. Raises InvalidSetting if it is not PEM or is unusable.

    The type is `kind`; if that is None, it follows from the file's name, as in Kafka.
    """
    if path is not None and (kind or ("PEM" if path.endswith(".pem") else "JKS")).upper() != "PEM":
        reason = f"only PEM files can be read (convert it, and set {prefix}.type=PEM)"
        raise InvalidSetting(f"{prefix}.location", path, reason)
    try:
        load(path)
    except OSError as error:  # which ssl.SSLError is
        raise InvalidSetting(f"{prefix}.location", path, f"it cannot be used: {error}") from None


def sasl_options(config: ZooKeeperConfig) -> dict[str, str] | None:
    """Return kazoo's options for SASL; None if it is not configured. Raises InvalidSetting if SASL cannot work."""
    username, password = config.zookeeper_sasl_username, config.zookeeper_sasl_password
    if username is None:
        return None
    if password is None:
        raise InvalidSetting("zookeeper.sasl.password", None, "zookeeper.sasl.username needs it")
    from importlib.util import find_spec

    if find_spec("puresasl") is None:
        reason = "SASL needs the package pure-sasl: pip install 'ottla[zookeeper-sasl]'"
        raise InvalidSetting("zookeeper.sasl.username", username, reason)
    return {"mechanism": "DIGEST-MD5", "username": username, "password": password}
