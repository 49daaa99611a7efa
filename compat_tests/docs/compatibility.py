"""docs/compatibility.md, made from declarations: `python -m compat_tests.docs.compatibility` writes it.

What is served is asked of the routes, what Apache Kafka serves of its own answer among the golden files, and which clients
are proven of `clients.py`.
"""

import json
import re
import textwrap

from compat_tests.docs.clients import CLIENTS
from compat_tests.docs.pages import DOCS, ROOT

from ottla.server.dispatch.apis import APIS, NOT_SERVED
from ottla.server.dispatch.dispatch import Route, all_routes

PAGE = DOCS / "compatibility.md"
GOLDEN = ROOT / "compat_tests" / "differential" / "golden" / "api_versions" / "what_is_served.txt"

NOTES = {
    "Produce": "acks 0, 1, all; idempotent producers; all codecs; v0-2 carry magic 0/1 and are converted",
    "Fetch": "sessions, long poll, topic ids, epochs, zero copy; v0-3 are converted down to magic 0/1",
    "ListOffsets": "by time and all special timestamps; there is no tier, so -5 and -6 find nothing",
    "Metadata": "creates missing topics if `auto.create.topics.enable`",
    "JoinGroup": "classic groups of any protocol type, static members",
    "AddPartitionsToTxn": "since version 4 between brokers",
    "WriteTxnMarkers": "between brokers, and of tools that end hanging transactions",
    "CreateAcls": "kept as Kafka 3.9 keeps them",
    "DescribeConfigs": "topics, brokers and their loggers, groups, client metrics",
    "AlterConfigs": "likewise, except loggers",
    "CreateDelegationToken": "kept as Kafka 3.9 keeps them",
    "IncrementalAlterConfigs": "as DescribeConfigs",
    "AlterClientQuotas": "kept as Kafka 3.9 keeps them",
    "AlterUserScramCredentials": "kept as Kafka 3.9 keeps them",
    "DescribeQuorum": "UNSUPPORTED_VERSION: there is no metadata quorum",
    "UpdateFeatures": "refused while brokers of Kafka 3.9 are in the cluster, as by them",
    "UnregisterBroker": "it forgets nobody",
    "GetTelemetrySubscriptions": "only with the HTTP endpoint, as by a Kafka broker only with a plugin that takes the metrics",
    "PushTelemetry": "likewise",
    "ShareFetch": "with acknowledgements, sessions, record limits, renewals",
    "AddRaftVoter": "as DescribeQuorum",
    "RemoveRaftVoter": "as DescribeQuorum",
    "InitializeShareGroupState": "the share coordinator, which the leaders of share partitions ask",
    "ReadShareGroupState": "likewise",
    "WriteShareGroupState": "likewise",
    "DeleteShareGroupState": "likewise",
    "ReadShareGroupStateSummary": "likewise",
    "StreamsGroupTopologyDescriptionUpdate": "refused, as by a Kafka broker without a plugin for it",
    "UnregisterController": "as UnregisterBroker",
}

HEAD = """\
# What is compatible

This page is made by `python -m compat_tests.docs.compatibility` from what the broker and its tests declare; a test fails when it is not
up to date.

To clients Ottla looks like one Apache Kafka {release} broker that also still understands the oldest Produce and Fetch requests. With
`older.api.versions.enable=true` it serves, as Kafka 3.9 does, all versions that Kafka 4 has dropped: Burrow and other old tools send
them.

{older}

Every version of every request is [told to both and compared field by field](../compat_tests/README.md).

## Clients

Unmodified, in the version that the tests pin. Where it is a Python package the tests take the newest from that version on.

| client | language | version | what the tests do with it | tests |
| - | - | - | - | - |
"""

REQUESTS = """
## Requests

This is the whole list. A request that is not here is not advertised, and closes the connection.

| key | request | Ottla | Apache Kafka {release} | notes |
| - | - | - | - | - |
"""

MISSING = """
## What Kafka advertises and Ottla does not

| key | request | Apache Kafka {release} |
| - | - | - |
"""

END = """
## Beyond requests

| | Ottla |
| - | - |
| files of logs | Kafka's: segments, indexes, leader epochs, producer snapshots, checkpoints; each opens what the other wrote |
| internal topics | Kafka's own records in `__consumer_offsets`, `__transaction_state` and `__share_group_state` |
| clusters | Kafka 3.9's ZooKeeper mode: the same nodes, the same requests between brokers, mixed clusters; on one machine also without ZooKeeper |
| settings | Kafka's names: [all of them](settings.md), with those that have no effect |
| features | `group.version`, `share.version`, `streams.version`, `transaction.version`, and of a broker that is alone `eligible.leader.replicas.version`, told and changed as by Kafka 4.4; none beside brokers of Kafka 3.9 |
| groups | settings of their own (`kafka-configs.sh --entity-type groups`) |
| logins | TLS certificates, PLAIN, SCRAM, OAUTHBEARER, GSSAPI, by clients and between brokers; delegation tokens |
| metrics | the names of the usual rules of the JMX exporter; those that clients push (KIP-714) |
| not served | tiered storage, KRaft, classes of your own on the broker |
"""


def _older() -> str:
    told = [
        f"{api.name} v{'0' if api.older.last == 0 else f'0-{api.older.last}'}" for api in APIS if api.older is not None
    ]
    return textwrap.fill(f"They are {', '.join(told[:-1])} and {told[-1]}.", 130)


def page() -> str:
    release, theirs = kafka()
    routes = all_routes()
    clients = [
        f"| {each.name} | {each.language} | {each.version()} | {each.what} | {_tests(each.proven_by)} |\n"
        for each in CLIENTS
    ]
    requests = [_row(route, theirs.get(key, "")) for key, route in sorted(routes.items())]
    missing = [f"| {key} | {NOT_SERVED[key]} | {span} |\n" for key, span in sorted(theirs.items()) if key not in routes]
    return "".join(
        [
            HEAD.format(release=release, older=_older()),
            *clients,
            REQUESTS.format(release=release),
            *requests,
            *([MISSING.format(release=release), *missing] if missing else []),
            END,
        ]
    )


def kafka() -> tuple[str, dict[int, str]]:
    """The release that the golden files are of, and the versions of each request that it serves."""
    text = GOLDEN.read_text()
    release = re.findall(r"^# Apache Kafka ([\d.]+),", text, re.MULTILINE)
    answers = re.findall(r"^main ApiVersions: (\{.*\})$", text, re.MULTILINE)
    served = json.loads(answers[-1])["api_keys"]
    return release[-1], {each["api_key"]: _span(each["min_version"], each["max_version"]) for each in served}


def _row(route: Route, theirs: str) -> str:
    notes = [NOTES[route.name]] if route.name in NOTES else []
    if route.unadvertised:
        notes.append("only in a cluster, between brokers, for what only the controller does (KIP-590)")
    elif route.in_cluster_only:
        notes.append("only in a cluster, between brokers; Kafka 3.9 has it")
    elif route.alone_only:
        notes.append("only by a broker that is alone, as with Kafka")
    return f"| {route.api_key} | {route.name} | {_span(route.versions.first, route.versions.last)} | {theirs or '-'} | {'; '.join(notes)} |\n"


def _span(first: int, last: int) -> str:
    return str(first) if first == last else f"{first}-{last}"


def _tests(names: tuple[str, ...]) -> str:
    return ", ".join(f"[{name.partition('/test_')[2].removesuffix('.py')}](../compat_tests/{name})" for name in names)


if __name__ == "__main__":
    PAGE.write_text(page())
