"""ApiVersions: what is served, who asks, and both ways back for clients that know more than the broker."""

from typing import Any

from compat_tests.differential.asking_raw import frame, head, hear, tell
from compat_tests.differential.conversation import Link, Talk, scenario

from ottla.wire.messages.api_versions import ApiVersionsRequest
from ottla.wire.messages.cluster import DescribeClusterRequest
from ottla.wire.messages.metadata import MetadataRequest

API_VERSIONS = ApiVersionsRequest.api_key


def in_order(answer: Any) -> None:
    """Without the features' epoch, which counts the changes of a cluster."""
    answer.api_keys.sort(key=lambda each: each.api_key)
    answer.finalized_features_epoch = min(answer.finalized_features_epoch, 0)
    for features in (answer.supported_features, answer.finalized_features):
        features.sort(key=lambda each: each.name)


def only_error(answer: Any) -> None:
    answer.api_keys, answer.supported_features, answer.finalized_features = [], [], []
    answer.finalized_features_epoch = -1


def named(name: str = "ottla-tests", version: str = "1.0", **meant: Any) -> ApiVersionsRequest:
    return ApiVersionsRequest(client_software_name=name, client_software_version=version, **meant)


@scenario(ApiVersionsRequest)
def what_is_served(talk: Talk) -> None:
    talk.ask(named(), arrange=in_order)


@scenario(ApiVersionsRequest)
def at_any_time(talk: Talk) -> None:
    talk.ask(MetadataRequest(topics=[]), label="metadata before any of it")
    for turn in range(2):
        answer = talk.do(named(), talk.version, of="main")
        talk.note(f"turn {turn}", [answer.error_code, answer.throttle_time_ms])


@scenario(ApiVersionsRequest, versions="3+")
def names_of_software(talk: Talk) -> None:
    """v3 brought them."""
    good = "a", "A1", "a-b.c", "0", "x" * 300
    bad = "", " ", "-a", "a-", ".", "a b", "a_b", "a/b", "\u00e4", "a\n"
    for text in (*good, *bad):
        for request in (named(name=text), named(version=text)):
            answer = talk.do(request, talk.version, of="main")
            keys = "keys" if answer.api_keys else "no keys"
            talk.note(
                f"{request.client_software_name[:9]!r} {request.client_software_version[:9]!r}",
                [answer.error_code, keys],
            )
    talk.ask(named(name="a b"), label="the whole answer")
    talk.ask(named(), label="and then a good name", arrange=in_order)


@scenario(ApiVersionsRequest, versions="0")
def newer_than_the_broker(talk: Talk) -> None:
    """Told in the words of v0, whatever the request looks like."""
    for version in (6, 7, 99, 32767):
        for label, rest in (
            ("as v3", b"\x00\x02a\x02b\x00"),
            ("no body", b"\x00"),
            ("an unknown body", b"\x00\xff\xff\xff\xff\xff"),
            ("tags in the header", b"\x01\x05\x01x\x02a\x02b\x00"),
            ("a header without tags", b""),
        ):
            tell(talk, f"v{version}, {label}", frame(head(API_VERSIONS, version) + rest), ApiVersionsRequest, 0)
    for version in (-1, -32768):
        for label, rest in (("no body", b""), ("tags", b"\x00")):
            tell(talk, f"v{version}, {label}", frame(head(API_VERSIONS, version) + rest), ApiVersionsRequest, 0)


@scenario(ApiVersionsRequest)
def asked_again_on_the_same_connection(talk: Talk) -> None:
    link = Link(talk, "main")
    link.send_bytes(frame(head(API_VERSIONS, 77, correlation_id=5) + b"\x00"))
    hear(talk, link, "v77", ApiVersionsRequest, 0)
    end = b"\x00\x02a\x02b" + rest_of(talk.version) if talk.version >= 3 else b""
    link.send_bytes(frame(head(API_VERSIONS, talk.version, correlation_id=6) + end))
    talk.note("a known version then", link.receive_bytes() is not None)
    link.close()


def rest_of(version: int, tags: bytes = b"\x00") -> bytes:
    """What comes behind the software: from v5 on no cluster and no broker that are meant."""
    return (b"\x00\xff\xff\xff\xff" if version >= 5 else b"") + tags


@scenario(ApiVersionsRequest, versions="3+")
def bodies_that_cannot_be_read(talk: Talk) -> None:
    rest = rest_of(talk.version)
    for label, body in (
        ("a null name", b"\x00\x02b" + rest),
        ("a null version", b"\x02a\x00" + rest),
        ("nothing", b""),
        ("without tags", b"\x02a\x02b" + rest[:-1]),
        ("a name beyond the end", b"\x20a\x02b" + rest),
    ):
        data = frame(head(API_VERSIONS, talk.version, tags=b"\x00") + body)
        tell(talk, label, data, ApiVersionsRequest, talk.version)
    for label, body in (
        ("a tag of the future", b"\x02a\x02b" + rest_of(talk.version, b"\x01\x09\x01x")),
        ("more behind it", b"\x02a\x02b" + rest + b"garbage"),
        ("a name that is not UTF-8", b"\x02\xff\x02b" + rest),
    ):
        data = frame(head(API_VERSIONS, talk.version, tags=b"\x00") + body)
        tell(talk, label, data, ApiVersionsRequest, talk.version, only_error)


@scenario(ApiVersionsRequest, versions="5+")
def whom_the_client_means(talk: Talk) -> None:
    """v5 brought it: somebody else may live at an address that the client learnt long ago."""
    known = talk.do(DescribeClusterRequest(include_cluster_authorized_operations=False))
    here, node_id = known.cluster_id, known.brokers[0].broker_id
    for label, cluster_id, node in (
        ("nobody", None, -1),
        ("this broker", here, node_id),
        ("another broker", here, node_id + 1),
        ("another cluster", "another", node_id),
        ("both are others", "another", node_id + 1),
        ("a cluster without a name", "", node_id),
        ("other capitals", here.swapcase(), node_id),
        ("a broker of no cluster", None, node_id),
        ("no broker of this cluster", here, -1),
        ("a broker that cannot be", here, -2),
        ("a broker that cannot be of no cluster", None, -2),
    ):
        talk.ask(named(cluster_id=cluster_id, node_id=node), label=label, arrange=only_error)
        talk.ask(named("a b", cluster_id=cluster_id, node_id=node), label=f"{label}, a bad name", arrange=only_error)
