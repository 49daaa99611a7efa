"""Kafka's broker settings that have no effect in Ottla.

They are accepted, checked for type and range, and described to clients, so that a `server.properties` written for Apache
Kafka starts unchanged. The start banner names those that were given a value other than their default. One line each:

    name type default [allowed] [per-broker|cluster-wide] [internal]

'-' is no value, '' an empty one. `internal` settings are accepted but not described. A setting that comes to have an
effect moves to the dataclass of its consumer. `purposes.py` says what each is for, to clients that ask.
"""

from collections.abc import Mapping
from functools import cache
from typing import Any

from ottla.wire.settings import Setting, SettingType, parse_value

_TABLE = """
background.threads int 10 1.. cluster-wide
broker.heartbeat.interval.ms int 2000
broker.session.timeout.ms int 9000
client.quota.callback.class class -
controller.performance.always.log.threshold.ms long 2000 0.. internal
controller.performance.sample.period.ms long 60000 100.. internal
controller.quorum.append.linger.ms int 25 0..
controller.quorum.auto.join.enable boolean false
controller.quorum.bootstrap.servers list ''
controller.quorum.election.backoff.max.ms int 1000 0..
controller.quorum.election.timeout.ms int 1000 0..
controller.quorum.fetch.max.bytes int 1048576 1..
controller.quorum.fetch.snapshot.max.bytes int 1048576 1..
controller.quorum.fetch.timeout.ms int 2000 0..
controller.quorum.request.timeout.ms int 2000 0..
controller.quorum.retry.backoff.ms int 20 0..
controller.quorum.voters list ''
delete.records.purgatory.purge.interval.requests int 1
early.start.listeners list -
fetch.purgatory.purge.interval.requests int 1000
follower.fetch.last.tiered.offset.enable boolean false cluster-wide
group.consumer.assignor.offload.enable boolean true cluster-wide internal
group.coordinator.append.linger.ms int -1 -1..
group.coordinator.background.threads int 2 1..
group.coordinator.cached.buffer.max.bytes int 1048588 524288.. cluster-wide
group.coordinator.threads int 4 1..
group.share.assignor.offload.enable boolean true cluster-wide internal
group.share.assignors list simple
group.share.dlq.manager.class.name string org.apache.kafka.server.share.dlq.DefaultShareGroupDLQManager internal
group.share.persister.class.name string org.apache.kafka.server.share.persister.DefaultStatePersister internal
group.streams.assignor.offload.enable boolean true cluster-wide internal
group.streams.assignors list sticky
group.streams.num.warmup.replicas int 2 0.. internal
group.streams.topology.description.plugin.class class -
initial.broker.registration.timeout.ms int 60000
internal.metadata.delete.delay.millis long 60000 internal
internal.metadata.log.segment.bytes int - internal
internal.metadata.max.batch.size.in.bytes int 8388608 internal
kafka.metrics.polling.interval.secs int 10 1..
kafka.metrics.reporters list ''
log.dir.failure.timeout.ms long 30000 1..
log.initial.task.delay.ms long 30000 0.. internal
metadata.log.dir string -
metadata.log.max.record.bytes.between.snapshots long 20971520 1..
metadata.log.max.snapshot.interval.ms long 3600000 0..
metadata.log.segment.bytes int 1073741824 8388608..
metadata.log.segment.ms long 604800000
metadata.max.idle.interval.ms int 500 0..
metadata.max.retention.bytes long 104857600
metadata.max.retention.ms long 604800000
metric.reporters list org.apache.kafka.common.metrics.JmxReporter cluster-wide
metrics.num.samples int 2 1..
metrics.recording.level string INFO
metrics.sample.window.ms long 30000 1..
num.io.threads int 8 1.. cluster-wide
num.network.threads int 3 1.. cluster-wide
num.replica.alter.log.dirs.threads int -
offsets.load.buffer.size int 5242880 1..
offsets.topic.compression.codec int 0
principal.builder.class class org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder per-broker
producer.purgatory.purge.interval.requests int 1000
queued.max.requests int 500 1..
remote.fetch.max.wait.ms int 500 1.. cluster-wide
remote.list.offsets.request.timeout.ms long 30000 1.. cluster-wide
remote.log.index.file.cache.total.size.bytes long 1073741824 1.. cluster-wide
remote.log.index.file.cache.ttl.ms long 900000 -1.. internal
remote.log.manager.copier.thread.pool.size int 10 1.. cluster-wide
remote.log.manager.copy.max.bytes.per.second long 9223372036854775807 1.. cluster-wide
remote.log.manager.copy.quota.window.num int 11 1..
remote.log.manager.copy.quota.window.size.seconds int 1 1..
remote.log.manager.expiration.thread.pool.size int 10 1.. cluster-wide
remote.log.manager.fetch.max.bytes.per.second long 9223372036854775807 1.. cluster-wide
remote.log.manager.fetch.quota.window.num int 11 1..
remote.log.manager.fetch.quota.window.size.seconds int 1 1..
remote.log.manager.follower.thread.pool.size int 2 1.. cluster-wide
remote.log.manager.task.interval.ms long 30000 1..
remote.log.manager.task.retry.backoff.max.ms long 30000 1.. internal
remote.log.manager.task.retry.backoff.ms long 500 1.. internal
remote.log.manager.task.retry.jitter double 0.2 0..0.5 internal
remote.log.manager.thread.pool.size int 2 1..
remote.log.metadata.custom.metadata.max.bytes int 128 0..
remote.log.metadata.manager.class.name string org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager
remote.log.metadata.manager.class.path string -
remote.log.metadata.manager.impl.prefix string rlmm.config.
remote.log.metadata.manager.listener.name string -
remote.log.reader.max.pending.tasks int 100 1..
remote.log.reader.threads int 10 1.. cluster-wide
remote.log.storage.manager.class.name string -
remote.log.storage.manager.class.path string -
remote.log.storage.manager.impl.prefix string rsm.config.
sasl.client.callback.handler.class class -
sasl.kerberos.kinit.cmd string /usr/bin/kinit per-broker
sasl.kerberos.min.time.before.relogin long 60000 per-broker
sasl.kerberos.ticket.renew.jitter double 0.05 per-broker
sasl.kerberos.ticket.renew.window.factor double 0.8 per-broker
sasl.login.class class -
sasl.mechanism.controller.protocol string GSSAPI
sasl.oauthbearer.assertion.algorithm string RS256 es256/rs256
sasl.oauthbearer.assertion.claim.aud string -
sasl.oauthbearer.assertion.claim.exp.seconds int 300 0..86400
sasl.oauthbearer.assertion.claim.iss string -
sasl.oauthbearer.assertion.claim.jti.include boolean false
sasl.oauthbearer.assertion.claim.nbf.seconds int 60 0..3600
sasl.oauthbearer.assertion.claim.sub string -
sasl.oauthbearer.assertion.file string -
sasl.oauthbearer.assertion.private.key.file string -
sasl.oauthbearer.assertion.private.key.passphrase password -
sasl.oauthbearer.assertion.template.file string -
security.providers string -
server.max.startup.time.ms long 9223372036854775807 0.. internal
share.coordinator.append.linger.ms int -1 -1..
share.coordinator.cached.buffer.max.bytes int 1048588 524288.. cluster-wide
share.coordinator.load.buffer.size int 5242880 1..
share.coordinator.state.topic.compression.codec int 0
share.coordinator.threads int 1 1..
share.fetch.purgatory.purge.interval.requests int 1000
ssl.engine.factory.class class - per-broker
ssl.keymanager.algorithm string SunX509 per-broker
ssl.provider string - per-broker
ssl.secure.random.implementation string - per-broker
ssl.trustmanager.algorithm string PKIX per-broker
transaction.state.log.load.buffer.size int 5242880 1..
transaction.two.phase.commit.enable boolean false
unclean.leader.election.interval.ms long 300000 1.. internal
unstable.api.versions.enable boolean false internal
unstable.feature.versions.enable boolean false internal
"""

_OLDER_TABLE = """
alter.config.policy.kraft.compatibility.enable boolean false
auto.include.jmx.reporter boolean true
broker.id.generation.enable boolean true
eligible.leader.replicas.enable boolean false
group.share.max.groups short 10 1..100
log.message.downconversion.enable boolean true cluster-wide
log.message.format.version string 3.0-IV1
log.message.timestamp.difference.max.ms long 9223372036854775807 0.. cluster-wide
offsets.commit.required.acks short -1
reserved.broker.max.id int 1000 0..
zookeeper.clientCnxnSocket string -
zookeeper.max.in.flight.requests int 10 1..
zookeeper.metadata.migration.enable boolean false
zookeeper.ssl.cipher.suites list -
zookeeper.ssl.crl.enable boolean false
zookeeper.ssl.enabled.protocols list -
zookeeper.ssl.ocsp.enable boolean false
zookeeper.ssl.protocol string TLSv1.2
"""

FORMER_SETTINGS = frozenset(
    [line.partition(" ")[0] for line in _OLDER_TABLE.split("\n")[1:-1]]
    # Those of Kafka's authorizer, and one that Kafka 3.9 does not describe.
    + ["allow.everyone.if.no.acl.found", "group.coordinator.new.enable", "super.users"]
)
"""Settings that Kafka 4 has no more, or that are its authorizer's: accepted. Members of a cluster describe those of 3.9."""


@cache
def inert_settings() -> Mapping[str, Setting]:
    """Kafka's name -> setting, read from the table on first use."""
    return {declared.name: declared for declared in map(_parsed, _TABLE.split("\n")[1:-1])}


@cache
def older_settings() -> Mapping[str, Setting]:
    """The same for those of Kafka 3.9 that members of a cluster describe."""
    return {declared.name: declared for declared in map(_parsed, _OLDER_TABLE.split("\n")[1:-1])}


def _parsed(line: str) -> Setting:
    name, kind, default, *details = line.split()
    settled: dict[str, Any] = {"dynamic": "read-only", "internal": False, "nullable": default == "-"}
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
