"""TLS, SASL and access control of a real ZooKeeper."""

import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import trio
from compat_tests.apache.brokers import ZooKeeper, free_port, jars, small_java
from compat_tests.coordination.conftest import complaint
from compat_tests.coordination.proxy import Proxy
from compat_tests.support.brokers import OttlaProcess
from confluent_kafka.admin import AdminClient, NewTopic
from kazoo.client import KazooClient
from kazoo.security import Permissions

from ottla.replication.cluster.coordination import AccessDenied, CoordinationUnavailable, Create, SetData
from ottla.server.cluster.coordination.zookeeper import ZooKeeperCoordination
from ottla.server.config.coordination_config import ZooKeeperConfig

USER = {"zookeeper_sasl_username": "ottla", "zookeeper_sasl_password": "s3cret"}
JAAS = """\
Server {
  org.apache.zookeeper.server.auth.DigestLoginModule required user_ottla="s3cret" user_other="s3cret";
};
"""


class Certificates:
    """An authority, and a key store that it vouches for; made with openssl."""

    def __init__(self, folder: Path) -> None:
        if shutil.which("openssl") is None:
            pytest.skip("openssl is not on this machine (Debian: apt-get install openssl)")
        folder.mkdir()
        self.folder = folder
        self.authority = folder / "authority.pem"
        self.store = folder / "store.pem"
        self._make()

    def _openssl(self, *arguments: object) -> None:
        subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True)

    def _make(self) -> None:
        key, request, certificate = (self.folder / name for name in ("key.pem", "request.pem", "certificate.pem"))
        curve = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
        authority_key, names = self.folder / "authority_key.pem", self.folder / "names.txt"
        names.write_text("subjectAltName=IP:127.0.0.1")
        subject = ("-subj", "/CN=authority")
        self._openssl("req", "-x509", *curve, "-keyout", authority_key, "-out", self.authority, *subject)
        self._openssl("req", *curve, "-keyout", key, "-out", request, "-subj", "/CN=node")
        signer = ("-CA", self.authority, "-CAkey", authority_key, "-CAcreateserial")
        self._openssl("x509", "-req", "-in", request, *signer, "-extfile", names, "-out", certificate)
        self.store.write_bytes(key.read_bytes() + certificate.read_bytes())


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates") / "ours")


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory, certificates: Certificates) -> Iterator[ZooKeeper]:
    """A ZooKeeper that knows users and speaks TLS, with clients' certificates, on its `secure_port`."""
    jars("kafka_3")
    folder = tmp_path_factory.mktemp("guarded")
    (folder / "jaas.conf").write_text(JAAS)
    settings = {
        "authProvider.sasl": "org.apache.zookeeper.server.auth.SASLAuthenticationProvider",
        "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
        "secureClientPort": str(free_port()),
        "secureClientPortAddress": "127.0.0.1",
        "ssl.keyStore.location": str(certificates.store),
        "ssl.trustStore.location": str(certificates.authority),
    }
    options = (f"-Djava.security.auth.login.config={folder / 'jaas.conf'}",)
    server = ZooKeeper(folder / "server", small_java, settings, options)
    server.start()
    yield server
    server.stop()


def secure_address(server: ZooKeeper) -> str:
    return f"127.0.0.1:{server.settings['secureClientPort']}"


def tls(certificates: Certificates) -> dict[str, object]:
    return {
        "zookeeper_ssl_client_enable": True,
        "zookeeper_ssl_keystore_location": str(certificates.store),
        "zookeeper_ssl_truststore_location": str(certificates.authority),
    }


async def test_tls(guarded: ZooKeeper, certificates: Certificates, root: str, open_session: Callable) -> None:
    coordination = await open_session(secure_address(guarded) + root, **tls(certificates))
    await coordination.multi([Create(f"/{number}", b"x" * 100) for number in range(1000)])
    assert len(await coordination.children_data("/")) == 1000


async def test_a_server_that_is_not_vouched_for_is_not_spoken_to(
    guarded: ZooKeeper, certificates: Certificates, root: str, tmp_path: Path
) -> None:
    others = Certificates(tmp_path / "others")
    settings = tls(certificates) | {"zookeeper_ssl_truststore_location": str(others.authority)}
    words = "CERTIFICATE_VERIFY_FAILED"
    assert words in await complaint(words, zookeeper_connect=secure_address(guarded) + root, **settings)


async def test_nodes_belong_to_the_user_who_made_them(guarded: ZooKeeper, root: str, open_session: Callable) -> None:
    ours = await open_session(guarded.address + root, zookeeper_set_acl=True, **USER)
    await ours.multi([Create("/config"), Create("/config/users"), Create("/config/users/a"), Create("/consumers")])
    await ours.multi([SetData("/config/users/a", b"x")])
    stranger = await open_session(guarded.address + root)
    other = await open_session(guarded.address + root, **USER | {"zookeeper_sasl_username": "other"})
    for coordination in (stranger, other):
        assert await coordination.children("/config") == ["users"]
        for operation in (SetData("/config", b"x"), Create("/config/x"), Create("/x")):
            with pytest.raises(AccessDenied):
                await coordination.multi([operation])
        for read in (coordination.get, coordination.children):
            with pytest.raises(AccessDenied):
                await read("/config/users")
    await stranger.multi([Create("/consumers/x"), SetData("/consumers/x", b"y")])


async def test_a_user_is_still_known_after_a_reconnection(
    guarded: ZooKeeper, root: str, nursery: trio.Nursery, open_session: Callable
) -> None:
    proxy = Proxy(guarded.port)
    await nursery.start(proxy.run)
    coordination = await open_session(proxy.address + root, zookeeper_set_acl=True, **USER)
    await coordination.multi([Create("/a")])
    proxy.cut()
    with pytest.raises(CoordinationUnavailable), trio.fail_after(60):
        while True:
            await coordination.get("/")
    proxy.mend()
    await coordination.until_available()
    assert await coordination.multi([SetData("/a", b"x")]) == [1]


async def test_a_wrong_password_is_told(guarded: ZooKeeper, root: str) -> None:
    settings = USER | {"zookeeper_sasl_password": "guessed"}
    with pytest.raises(AccessDenied, match="AUTH_FAILED"):
        await ZooKeeperCoordination(ZooKeeperConfig(zookeeper_connect=guarded.address + root, **settings)).run()


async def test_nodes_can_be_kept_to_a_user_only_by_a_user(guarded: ZooKeeper, root: str) -> None:
    config = ZooKeeperConfig(zookeeper_connect=guarded.address + root, zookeeper_set_acl=True)
    with pytest.raises(AccessDenied, match="may not be made"):
        await ZooKeeperCoordination(config).run()


def test_a_broker_is_a_member_by_tls_and_as_a_user(
    guarded: ZooKeeper, certificates: Certificates, root: str, tmp_path: Path
) -> None:
    """What a broker's own settings come to: it registers, is the controller, and creates a topic."""
    settings = {
        "zookeeper.connect": secure_address(guarded) + root,
        "zookeeper.ssl.client.enable": "true",
        "zookeeper.ssl.keystore.location": str(certificates.store),
        "zookeeper.ssl.truststore.location": str(certificates.authority),
        "zookeeper.set.acl": "true",
        "zookeeper.sasl.username": "ottla",
        "zookeeper.sasl.password": "s3cret",
    }
    member = OttlaProcess(tmp_path, settings)
    member.start()
    try:
        admin = AdminClient({"bootstrap.servers": member.bootstrap})
        admin.create_topics([NewTopic("ours", 1, 1)])["ours"].result(60)
    finally:
        member.stop()
    assert "s3cret" not in member.log
    stranger = KazooClient(guarded.address + root)
    stranger.start()
    try:
        access, _ = stranger.get_acls("/brokers/topics/ours/partitions/0/state")
        allowed = {(each.id.scheme, each.id.id, each.perms) for each in access}
        assert allowed >= {("sasl", "ottla", Permissions.ALL), ("world", "anyone", Permissions.READ)}
    finally:
        stranger.stop()
        stranger.close()
