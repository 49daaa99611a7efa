"""Kafka's broker settings that have no effect in Ottla.

They are accepted, checked for type and range, and described to clients, so that a `server.properties` written for Apache
Kafka starts unchanged. The start banner names those that were given a value other than their default. One line each:

    name type default [allowed] [per-broker|cluster-wide] [internal]: what it is for in Apache Kafka

'-' is no value, '' an empty one. `internal` settings are accepted but not described. A setting that comes to have an
effect moves to the dataclass of its consumer.
"""

from collections.abc import Mapping
from functools import cache
from typing import Any

from ottla.wire.settings import Setting, SettingType, parse_value

_TABLE = """
background.threads int 10 1.. cluster-wide: Threads that Kafka has for work in the background, such as deleting files.
broker.heartbeat.interval.ms int 2000: Time between two heartbeats of a broker to a KRaft controller.
broker.session.timeout.ms int 9000: Silence after which a KRaft controller takes a broker to be gone.
client.quota.callback.class class -: Class of a plug-in that decides about client quotas.
controller.performance.always.log.threshold.ms long 2000 0.. internal: Time from which on Kafka logs every slow event of its KRaft controller.
controller.performance.sample.period.ms long 60000 100.. internal: Time between two log entries about the speed of a KRaft controller.
controller.quorum.append.linger.ms int 25 0..: How long a KRaft controller gathers records before it writes them.
controller.quorum.auto.join.enable boolean false: Whether a KRaft controller joins the voters by itself.
controller.quorum.bootstrap.servers list '': Addresses by which a node finds the quorum of KRaft controllers.
controller.quorum.election.backoff.max.ms int 1000 0..: Longest pause before a new election among KRaft controllers.
controller.quorum.election.timeout.ms int 1000 0..: Longest wait for votes in an election among KRaft controllers.
controller.quorum.fetch.max.bytes int 1048576 1..: Most bytes of the metadata log that one fetch of a KRaft node asks for.
controller.quorum.fetch.snapshot.max.bytes int 1048576 1..: Most bytes of a metadata snapshot that one fetch of a KRaft node asks for.
controller.quorum.fetch.timeout.ms int 2000 0..: Time without a fetch from the leader after which a KRaft controller starts an election.
controller.quorum.request.timeout.ms int 2000 0..: Longest wait of a KRaft node for an answer of a controller.
controller.quorum.retry.backoff.ms int 20 0..: Pause before a KRaft node tries a request to a controller again.
controller.quorum.voters list '': The KRaft controllers that vote, as id@host:port.
delete.records.purgatory.purge.interval.requests int 1: How many finished DeleteRecords requests Kafka keeps before it clears them away.
early.start.listeners list -: Listeners that Kafka opens before its authorizer is ready.
fetch.purgatory.purge.interval.requests int 1000: How many finished fetch requests Kafka keeps before it clears them away.
follower.fetch.last.tiered.offset.enable boolean false cluster-wide: Whether a new follower begins behind what tiered storage holds.
group.consumer.assignor.offload.enable boolean true cluster-wide internal: Whether assignments of consumer groups are computed beside their coordinator.
group.coordinator.append.linger.ms int -1 -1..: How long a group coordinator gathers records before it writes them; -1: as long as it is busy.
group.coordinator.background.threads int 2 1..: Threads that compute assignments for a group coordinator.
group.coordinator.cached.buffer.max.bytes int 1048588 524288.. cluster-wide: Largest buffer that a group coordinator keeps to write with.
group.coordinator.threads int 4 1..: Threads of a group coordinator.
group.share.assignor.offload.enable boolean true cluster-wide internal: Whether assignments of share groups are computed beside their coordinator.
group.share.assignors list simple: Assignors of share groups.
group.share.dlq.manager.class.name string org.apache.kafka.server.share.dlq.DefaultShareGroupDLQManager internal: Class that writes what share groups gave up to dead-letter queues.
group.share.persister.class.name string org.apache.kafka.server.share.persister.DefaultStatePersister internal: Class that keeps the state of share groups.
group.streams.assignor.offload.enable boolean true cluster-wide internal: Whether assignments of streams groups are computed beside their coordinator.
group.streams.assignors list sticky: Assignors of streams groups.
group.streams.num.warmup.replicas int 2 0.. internal: Warm-up tasks that a streams group may have at a time.
group.streams.topology.description.plugin.class class -: Class of a plug-in that keeps descriptions of the topologies of streams groups.
initial.broker.registration.timeout.ms int 60000: How long a starting broker tries to register with the KRaft controllers.
internal.metadata.delete.delay.millis long 60000 internal: How long deleted files of the metadata log stay on disk.
internal.metadata.log.segment.bytes int - internal: Segment size of the metadata log, for Kafka's own tests.
internal.metadata.max.batch.size.in.bytes int 8388608 internal: Largest batch of the metadata log, for Kafka's own tests.
kafka.metrics.polling.interval.secs int 10 1..: Time between two reports of metrics to kafka.metrics.reporters.
kafka.metrics.reporters list '': Classes that report Kafka's older kind of metrics.
log.dir.failure.timeout.ms long 30000 1..: How long a broker of Kafka may take to tell the controller of a broken disk before it stops.
log.initial.task.delay.ms long 30000 0.. internal: How long Kafka waits after a start before it looks after its logs.
metadata.log.dir string -: Directory of the metadata log.
metadata.log.max.record.bytes.between.snapshots long 20971520 1..: Bytes of the metadata log after which a snapshot is made.
metadata.log.max.snapshot.interval.ms long 3600000 0..: Time after which a snapshot of the metadata log is made.
metadata.log.segment.bytes int 1073741824 8388608..: Segment size of the metadata log.
metadata.log.segment.ms long 604800000: Age at which a new segment of the metadata log is begun.
metadata.max.idle.interval.ms int 500 0..: Time between two records that an idle KRaft controller writes to show that it lives.
metadata.max.retention.bytes long 104857600: Size of the metadata log above which its oldest parts are deleted.
metadata.max.retention.ms long 604800000: Age above which parts of the metadata log are deleted.
metric.reporters list org.apache.kafka.common.metrics.JmxReporter cluster-wide: Classes of plug-ins that report metrics.
metrics.num.samples int 2 1..: Samples that Kafka computes a metric from.
metrics.recording.level string INFO: How detailed the metrics are that Kafka records.
metrics.sample.window.ms long 30000 1..: Length of a sample that Kafka computes a metric from.
num.io.threads int 8 1.. cluster-wide: Threads that work off requests in Kafka. Here one event loop does.
num.network.threads int 3 1.. cluster-wide: Threads that read requests and send answers in Kafka. Here one event loop does.
num.replica.alter.log.dirs.threads int -: Threads that move replicas between data directories in Kafka.
offsets.load.buffer.size int 5242880 1..: Bytes that Kafka reads at a time when it loads committed offsets.
offsets.topic.compression.codec int 0: Codec of the offsets topic; 0: none.
principal.builder.class class org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder per-broker: Class that says who a client is, from what it has proven. Only Kafka's own is known here.
producer.purgatory.purge.interval.requests int 1000: How many finished produce requests Kafka keeps before it clears them away.
queued.max.requests int 500 1..: Requests that may wait for a thread in Kafka before it reads no more.
remote.fetch.max.wait.ms int 500 1.. cluster-wide: Longest wait of a fetch for tiered storage.
remote.list.offsets.request.timeout.ms long 30000 1.. cluster-wide: Longest wait of a look-up by time for tiered storage.
remote.log.index.file.cache.total.size.bytes long 1073741824 1.. cluster-wide: Room for indexes of tiered segments on the local disk.
remote.log.index.file.cache.ttl.ms long 900000 -1.. internal: How long unused indexes of tiered segments stay on the local disk.
remote.log.manager.copier.thread.pool.size int 10 1.. cluster-wide: Threads that copy segments to tiered storage.
remote.log.manager.copy.max.bytes.per.second long 9223372036854775807 1.. cluster-wide: Most bytes that are copied to tiered storage in a second.
remote.log.manager.copy.quota.window.num int 11 1..: Windows that the rate of copies to tiered storage is measured over.
remote.log.manager.copy.quota.window.size.seconds int 1 1..: Length of a window that the rate of copies to tiered storage is measured over.
remote.log.manager.expiration.thread.pool.size int 10 1.. cluster-wide: Threads that delete old segments from tiered storage.
remote.log.manager.fetch.max.bytes.per.second long 9223372036854775807 1.. cluster-wide: Most bytes that are read from tiered storage in a second.
remote.log.manager.fetch.quota.window.num int 11 1..: Windows that the rate of reads from tiered storage is measured over.
remote.log.manager.fetch.quota.window.size.seconds int 1 1..: Length of a window that the rate of reads from tiered storage is measured over.
remote.log.manager.follower.thread.pool.size int 2 1.. cluster-wide: Threads by which followers keep up with what tiered storage holds.
remote.log.manager.task.interval.ms long 30000 1..: Time between two looks for segments to copy to tiered storage.
remote.log.manager.task.retry.backoff.max.ms long 30000 1.. internal: Longest pause before a failed copy to tiered storage is tried again.
remote.log.manager.task.retry.backoff.ms long 500 1.. internal: First pause before a failed copy to tiered storage is tried again.
remote.log.manager.task.retry.jitter double 0.2 0..0.5 internal: Random part of the pause before a failed copy to tiered storage is tried again.
remote.log.manager.thread.pool.size int 2 1..: Threads that look after tiered storage.
remote.log.metadata.custom.metadata.max.bytes int 128 0..: Most bytes that a plug-in of tiered storage may note about a segment.
remote.log.metadata.manager.class.name string org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager: Class of the plug-in that notes what tiered storage holds.
remote.log.metadata.manager.class.path string -: Where the class of remote.log.metadata.manager.class.name is.
remote.log.metadata.manager.impl.prefix string rlmm.config.: How the names of settings begin that are meant for remote.log.metadata.manager.class.name.
remote.log.metadata.manager.listener.name string -: Listener by which the plug-in that notes what tiered storage holds reaches the brokers.
remote.log.reader.max.pending.tasks int 100 1..: Reads from tiered storage that may wait for a thread.
remote.log.reader.threads int 10 1.. cluster-wide: Threads that read from tiered storage.
remote.log.storage.manager.class.name string -: Class of the plug-in that tiered storage is reached by.
remote.log.storage.manager.class.path string -: Where the class of remote.log.storage.manager.class.name is.
remote.log.storage.manager.impl.prefix string rsm.config.: How the names of settings begin that are meant for remote.log.storage.manager.class.name.
sasl.client.callback.handler.class class -: Class that a client's side of SASL gets names and passwords from.
sasl.kerberos.kinit.cmd string /usr/bin/kinit per-broker: Path of Kerberos' kinit.
sasl.kerberos.min.time.before.relogin long 60000 per-broker: Shortest time between two renewals of a Kerberos ticket.
sasl.kerberos.ticket.renew.jitter double 0.05 per-broker: Random part of the time at which a Kerberos ticket is renewed.
sasl.kerberos.ticket.renew.window.factor double 0.8 per-broker: Share of its life after which a Kerberos ticket is renewed.
sasl.login.class class -: Class that logs in by SASL.
sasl.mechanism.controller.protocol string GSSAPI: SASL mechanism that KRaft nodes use towards controllers.
sasl.oauthbearer.assertion.algorithm string RS256 es256/rs256: Algorithm that assertions towards an OAuth server are signed with.
sasl.oauthbearer.assertion.claim.aud string -: Audience of assertions towards an OAuth server.
sasl.oauthbearer.assertion.claim.exp.seconds int 300 0..86400: How long an assertion towards an OAuth server is good for.
sasl.oauthbearer.assertion.claim.iss string -: Issuer of assertions towards an OAuth server.
sasl.oauthbearer.assertion.claim.jti.include boolean false: Whether an assertion towards an OAuth server has an id of its own.
sasl.oauthbearer.assertion.claim.nbf.seconds int 60 0..3600: How long before it is made an assertion towards an OAuth server is good.
sasl.oauthbearer.assertion.claim.sub string -: Subject of assertions towards an OAuth server.
sasl.oauthbearer.assertion.file string -: File with a finished assertion towards an OAuth server.
sasl.oauthbearer.assertion.private.key.file string -: PEM file with the key that assertions towards an OAuth server are signed with.
sasl.oauthbearer.assertion.private.key.passphrase password -: Password of sasl.oauthbearer.assertion.private.key.file.
sasl.oauthbearer.assertion.template.file string -: File with further claims of assertions towards an OAuth server.
security.providers string -: Classes of plug-ins that provide cryptography to the Java machine.
server.max.startup.time.ms long 9223372036854775807 0.. internal: Longest time that a start of Kafka may take.
share.coordinator.append.linger.ms int -1 -1..: How long a share coordinator gathers records before it writes them; -1: as long as it is busy.
share.coordinator.cached.buffer.max.bytes int 1048588 524288.. cluster-wide: Largest buffer that a share coordinator keeps to write with.
share.coordinator.load.buffer.size int 5242880 1..: Bytes that Kafka reads at a time when it loads the state of share groups.
share.coordinator.state.topic.compression.codec int 0: Codec of the share state topic; 0: none.
share.coordinator.threads int 1 1..: Threads of a share coordinator.
share.fetch.purgatory.purge.interval.requests int 1000: How many finished fetches of share groups Kafka keeps before it clears them away.
ssl.engine.factory.class class - per-broker: Class that makes the engines of TLS.
ssl.keymanager.algorithm string SunX509 per-broker: Algorithm by which Java chooses a key.
ssl.provider string - per-broker: Java's provider of TLS.
ssl.secure.random.implementation string - per-broker: Java's source of random numbers for TLS.
ssl.trustmanager.algorithm string PKIX per-broker: Algorithm by which Java judges certificates.
transaction.state.log.load.buffer.size int 5242880 1..: Bytes that Kafka reads at a time when it loads the states of transactions.
transaction.two.phase.commit.enable boolean false: Whether producers may leave it to another coordinator when their transactions end (KIP-939).
unclean.leader.election.interval.ms long 300000 1.. internal: Time between two looks of a KRaft controller for partitions that may elect an unclean leader.
unstable.api.versions.enable boolean false internal: Whether versions of requests are served that are not final yet.
unstable.feature.versions.enable boolean false internal: Whether levels of features may be used that are not final yet.
"""

_OLDER_TABLE = """
alter.config.policy.kraft.compatibility.enable boolean false: Whether a policy is shown all settings of a resource, or those that change.
auto.include.jmx.reporter boolean true: Whether metrics are reported by JMX although metric.reporters does not say so.
broker.id.generation.enable boolean true: Whether a broker that is not told its id gets one from ZooKeeper.
eligible.leader.replicas.enable boolean false: Whether the controller keeps a list of replicas that may lead although they are not in sync.
group.share.max.groups short 10 1..100: Most share groups of a broker.
log.message.downconversion.enable boolean true cluster-wide: Whether records are converted for clients that know only older formats. Here they are.
log.message.format.version string 3.0-IV1: Version of the format that records are kept in.
log.message.timestamp.difference.max.ms long 9223372036854775807 0.. cluster-wide: How far a record's timestamp and the broker's clock may differ.
offsets.commit.required.acks short -1: Acknowledgements that a committed offset waits for.
reserved.broker.max.id int 1000 0..: Largest id that may be given to a broker by hand.
zookeeper.clientCnxnSocket string -: Class by which Java connects to ZooKeeper.
zookeeper.max.in.flight.requests int 10 1..: Requests that a broker sends to ZooKeeper before it waits for an answer.
zookeeper.metadata.migration.enable boolean false: Whether the cluster is moving from ZooKeeper to KRaft.
zookeeper.ssl.cipher.suites list -: Cipher suites that may be used towards ZooKeeper.
zookeeper.ssl.crl.enable boolean false: Whether lists of revoked certificates are asked for ZooKeeper's.
zookeeper.ssl.enabled.protocols list -: Versions of TLS that may be used towards ZooKeeper.
zookeeper.ssl.ocsp.enable boolean false: Whether somebody is asked if ZooKeeper's certificate was revoked.
zookeeper.ssl.protocol string TLSv1.2: Version of TLS that is used towards ZooKeeper.
"""

FORMER_SETTINGS = frozenset(
    [line.partition(" ")[0] for line in _OLDER_TABLE.split("\n")[1:-1]]
    # Those of Kafka's authorizer, and one that Kafka 3.9 does not describe.
    + ["allow.everyone.if.no.acl.found", "group.coordinator.new.enable", "super.users"]
)
"""Settings that Kafka 4 has no more, or that are its authorizer's: accepted. Members of a cluster describe those of 3.9."""


@cache
def inert_settings() -> Mapping[str, Setting]:
    """Return the settings without effect, by Kafka's names. The table is read on first use."""
    return {declared.name: declared for declared in map(_parsed, _TABLE.split("\n")[1:-1])}


@cache
def older_settings() -> Mapping[str, Setting]:
    """Return the settings without effect that only Kafka 3.9 has; cluster members describe them."""
    return {declared.name: declared for declared in map(_parsed, _OLDER_TABLE.split("\n")[1:-1])}


def _parsed(line: str) -> Setting:
    columns, _, doc = line.partition(": ")
    name, kind, default, *details = columns.split()
    settled: dict[str, Any] = {"dynamic": "read-only", "internal": False, "nullable": default == "-", "doc": doc}
    for detail in details:
        if detail in ("per-broker", "cluster-wide"):
            settled["dynamic"] = detail
        elif detail == "exact":
            settled["ignore_case"] = False
        elif detail == "internal":
            settled["internal"] = True
        elif ".." in detail:
            low, _, high = detail.partition("..")
            settled |= {"minimum": _number(low), "maximum": _number(high)}
        else:
            settled |= {"choices": tuple(detail.split("/")), "ignore_case": True}
    settled |= {"name": name, "kind": SettingType[kind.upper()], "effective": False}
    without = Setting(default=None, **settled)
    if default == "-":
        return without
    return Setting(default=parse_value(without, "" if default == "''" else default), **settled)


def _number(text: str) -> float | None:
    return None if not text else float(text) if "." in text else int(text)
