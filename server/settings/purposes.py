"""What the settings without effect are for in Apache Kafka, for the documentation that DescribeConfigs tells.

One line each: the name, and a sentence about what the setting says. It is read when a client first asks for documentation,
which few do, and not at start.
"""

from collections.abc import Mapping
from functools import cache

from ottla.wire.settings import Setting

WITHOUT_EFFECT = "It has no effect here."

_SENTENCES = """
background.threads: Threads that Kafka has for work in the background, such as deleting files.
broker.heartbeat.interval.ms: Time between two heartbeats of a broker to a KRaft controller.
broker.session.timeout.ms: Silence after which a KRaft controller takes a broker to be gone.
client.quota.callback.class: Class of a plug-in that decides about client quotas.
controller.performance.always.log.threshold.ms: Time from which on Kafka logs every slow event of its KRaft controller.
controller.performance.sample.period.ms: Time between two log entries about the speed of a KRaft controller.
controller.quorum.append.linger.ms: How long a KRaft controller gathers records before it writes them.
controller.quorum.auto.join.enable: Whether a KRaft controller joins the voters by itself.
controller.quorum.bootstrap.servers: Addresses by which a node finds the quorum of KRaft controllers.
controller.quorum.election.backoff.max.ms: Longest pause before a new election among KRaft controllers.
controller.quorum.election.timeout.ms: Longest wait for votes in an election among KRaft controllers.
controller.quorum.fetch.max.bytes: Most bytes of the metadata log that one fetch of a KRaft node asks for.
controller.quorum.fetch.snapshot.max.bytes: Most bytes of a metadata snapshot that one fetch of a KRaft node asks for.
controller.quorum.fetch.timeout.ms: Time without a fetch from the leader after which a KRaft controller starts an election.
controller.quorum.request.timeout.ms: Longest wait of a KRaft node for an answer of a controller.
controller.quorum.retry.backoff.ms: Pause before a KRaft node tries a request to a controller again.
controller.quorum.voters: The KRaft controllers that vote, as id@host:port.
delete.records.purgatory.purge.interval.requests: How many finished DeleteRecords requests Kafka keeps before it clears them away.
early.start.listeners: Listeners that Kafka opens before its authorizer is ready.
fetch.purgatory.purge.interval.requests: How many finished fetch requests Kafka keeps before it clears them away.
follower.fetch.last.tiered.offset.enable: Whether a new follower begins behind what tiered storage holds.
group.consumer.assignor.offload.enable: Whether assignments of consumer groups are computed beside their coordinator.
group.coordinator.append.linger.ms: How long a group coordinator gathers records before it writes them; -1: as long as it is busy.
group.coordinator.background.threads: Threads that compute assignments for a group coordinator.
group.coordinator.cached.buffer.max.bytes: Largest buffer that a group coordinator keeps to write with.
group.coordinator.threads: Threads of a group coordinator.
group.share.assignor.offload.enable: Whether assignments of share groups are computed beside their coordinator.
group.share.assignors: Assignors of share groups.
group.share.dlq.manager.class.name: Class that writes what share groups gave up to dead-letter queues.
group.share.persister.class.name: Class that keeps the state of share groups.
group.streams.assignor.offload.enable: Whether assignments of streams groups are computed beside their coordinator.
group.streams.assignors: Assignors of streams groups.
group.streams.num.warmup.replicas: Warm-up tasks that a streams group may have at a time.
group.streams.topology.description.plugin.class: Class of a plug-in that keeps descriptions of the topologies of streams groups.
initial.broker.registration.timeout.ms: How long a starting broker tries to register with the KRaft controllers.
internal.metadata.delete.delay.millis: How long deleted files of the metadata log stay on disk.
internal.metadata.log.segment.bytes: Segment size of the metadata log, for Kafka's own tests.
internal.metadata.max.batch.size.in.bytes: Largest batch of the metadata log, for Kafka's own tests.
kafka.metrics.polling.interval.secs: Time between two reports of metrics to kafka.metrics.reporters.
kafka.metrics.reporters: Classes that report Kafka's older kind of metrics.
log.dir.failure.timeout.ms: How long a broker of Kafka may take to tell the controller of a broken disk before it stops.
log.initial.task.delay.ms: How long Kafka waits after a start before it looks after its logs.
metadata.log.dir: Directory of the metadata log.
metadata.log.max.record.bytes.between.snapshots: Bytes of the metadata log after which a snapshot is made.
metadata.log.max.snapshot.interval.ms: Time after which a snapshot of the metadata log is made.
metadata.log.segment.bytes: Segment size of the metadata log.
metadata.log.segment.ms: Age at which a new segment of the metadata log is begun.
metadata.max.idle.interval.ms: Time between two records that an idle KRaft controller writes to show that it lives.
metadata.max.retention.bytes: Size of the metadata log above which its oldest parts are deleted.
metadata.max.retention.ms: Age above which parts of the metadata log are deleted.
metric.reporters: Classes of plug-ins that report metrics.
metrics.num.samples: Samples that Kafka computes a metric from.
metrics.recording.level: How detailed the metrics are that Kafka records.
metrics.sample.window.ms: Length of a sample that Kafka computes a metric from.
num.io.threads: Threads that work off requests in Kafka. Here one event loop does.
num.network.threads: Threads that read requests and send answers in Kafka. Here one event loop does.
num.replica.alter.log.dirs.threads: Threads that move replicas between data directories in Kafka.
offsets.load.buffer.size: Bytes that Kafka reads at a time when it loads committed offsets.
offsets.topic.compression.codec: Codec of the offsets topic; 0: none.
principal.builder.class: Class that says who a client is, from what it has proven. Only Kafka's own is known here.
producer.purgatory.purge.interval.requests: How many finished produce requests Kafka keeps before it clears them away.
queued.max.requests: Requests that may wait for a thread in Kafka before it reads no more.
remote.fetch.max.wait.ms: Longest wait of a fetch for tiered storage.
remote.list.offsets.request.timeout.ms: Longest wait of a look-up by time for tiered storage.
remote.log.index.file.cache.total.size.bytes: Room for indexes of tiered segments on the local disk.
remote.log.index.file.cache.ttl.ms: How long unused indexes of tiered segments stay on the local disk.
remote.log.manager.copier.thread.pool.size: Threads that copy segments to tiered storage.
remote.log.manager.copy.max.bytes.per.second: Most bytes that are copied to tiered storage in a second.
remote.log.manager.copy.quota.window.num: Windows that the rate of copies to tiered storage is measured over.
remote.log.manager.copy.quota.window.size.seconds: Length of a window that the rate of copies to tiered storage is measured over.
remote.log.manager.expiration.thread.pool.size: Threads that delete old segments from tiered storage.
remote.log.manager.fetch.max.bytes.per.second: Most bytes that are read from tiered storage in a second.
remote.log.manager.fetch.quota.window.num: Windows that the rate of reads from tiered storage is measured over.
remote.log.manager.fetch.quota.window.size.seconds: Length of a window that the rate of reads from tiered storage is measured over.
remote.log.manager.follower.thread.pool.size: Threads by which followers keep up with what tiered storage holds.
remote.log.manager.task.interval.ms: Time between two looks for segments to copy to tiered storage.
remote.log.manager.task.retry.backoff.max.ms: Longest pause before a failed copy to tiered storage is tried again.
remote.log.manager.task.retry.backoff.ms: First pause before a failed copy to tiered storage is tried again.
remote.log.manager.task.retry.jitter: Random part of the pause before a failed copy to tiered storage is tried again.
remote.log.manager.thread.pool.size: Threads that look after tiered storage.
remote.log.metadata.custom.metadata.max.bytes: Most bytes that a plug-in of tiered storage may note about a segment.
remote.log.metadata.manager.class.name: Class of the plug-in that notes what tiered storage holds.
remote.log.metadata.manager.class.path: Where the class of remote.log.metadata.manager.class.name is.
remote.log.metadata.manager.impl.prefix: How the names of settings begin that are meant for remote.log.metadata.manager.class.name.
remote.log.metadata.manager.listener.name: Listener by which the plug-in that notes what tiered storage holds reaches the brokers.
remote.log.reader.max.pending.tasks: Reads from tiered storage that may wait for a thread.
remote.log.reader.threads: Threads that read from tiered storage.
remote.log.storage.manager.class.name: Class of the plug-in that tiered storage is reached by.
remote.log.storage.manager.class.path: Where the class of remote.log.storage.manager.class.name is.
remote.log.storage.manager.impl.prefix: How the names of settings begin that are meant for remote.log.storage.manager.class.name.
sasl.client.callback.handler.class: Class that a client's side of SASL gets names and passwords from.
sasl.kerberos.kinit.cmd: Path of Kerberos' kinit.
sasl.kerberos.min.time.before.relogin: Shortest time between two renewals of a Kerberos ticket.
sasl.kerberos.ticket.renew.jitter: Random part of the time at which a Kerberos ticket is renewed.
sasl.kerberos.ticket.renew.window.factor: Share of its life after which a Kerberos ticket is renewed.
sasl.login.class: Class that logs in by SASL.
sasl.mechanism.controller.protocol: SASL mechanism that KRaft nodes use towards controllers.
sasl.oauthbearer.assertion.algorithm: Algorithm that assertions towards an OAuth server are signed with.
sasl.oauthbearer.assertion.claim.aud: Audience of assertions towards an OAuth server.
sasl.oauthbearer.assertion.claim.exp.seconds: How long an assertion towards an OAuth server is good for.
sasl.oauthbearer.assertion.claim.iss: Issuer of assertions towards an OAuth server.
sasl.oauthbearer.assertion.claim.jti.include: Whether an assertion towards an OAuth server has an id of its own.
sasl.oauthbearer.assertion.claim.nbf.seconds: How long before it is made an assertion towards an OAuth server is good.
sasl.oauthbearer.assertion.claim.sub: Subject of assertions towards an OAuth server.
sasl.oauthbearer.assertion.file: File with a finished assertion towards an OAuth server.
sasl.oauthbearer.assertion.private.key.file: PEM file with the key that assertions towards an OAuth server are signed with.
sasl.oauthbearer.assertion.private.key.passphrase: Password of sasl.oauthbearer.assertion.private.key.file.
sasl.oauthbearer.assertion.template.file: File with further claims of assertions towards an OAuth server.
security.providers: Classes of plug-ins that provide cryptography to the Java machine.
server.max.startup.time.ms: Longest time that a start of Kafka may take.
share.coordinator.append.linger.ms: How long a share coordinator gathers records before it writes them; -1: as long as it is busy.
share.coordinator.cached.buffer.max.bytes: Largest buffer that a share coordinator keeps to write with.
share.coordinator.load.buffer.size: Bytes that Kafka reads at a time when it loads the state of share groups.
share.coordinator.state.topic.compression.codec: Codec of the share state topic; 0: none.
share.coordinator.threads: Threads of a share coordinator.
share.fetch.purgatory.purge.interval.requests: How many finished fetches of share groups Kafka keeps before it clears them away.
ssl.engine.factory.class: Class that makes the engines of TLS.
ssl.keymanager.algorithm: Algorithm by which Java chooses a key.
ssl.provider: Java's provider of TLS.
ssl.secure.random.implementation: Java's source of random numbers for TLS.
ssl.trustmanager.algorithm: Algorithm by which Java judges certificates.
transaction.state.log.load.buffer.size: Bytes that Kafka reads at a time when it loads the states of transactions.
transaction.two.phase.commit.enable: Whether producers may leave it to another coordinator when their transactions end (KIP-939).
unclean.leader.election.interval.ms: Time between two looks of a KRaft controller for partitions that may elect an unclean leader.
unstable.api.versions.enable: Whether versions of requests are served that are not final yet.
unstable.feature.versions.enable: Whether levels of features may be used that are not final yet.
alter.config.policy.kraft.compatibility.enable: Whether a policy is shown all settings of a resource, or those that change.
auto.include.jmx.reporter: Whether metrics are reported by JMX although metric.reporters does not say so.
broker.id.generation.enable: Whether a broker that is not told its id gets one from ZooKeeper.
eligible.leader.replicas.enable: Whether the controller keeps a list of replicas that may lead although they are not in sync.
group.share.max.groups: Most share groups of a broker.
log.message.downconversion.enable: Whether records are converted for clients that know only older formats. Here they are.
log.message.format.version: Version of the format that records are kept in.
log.message.timestamp.difference.max.ms: How far a record's timestamp and the broker's clock may differ.
offsets.commit.required.acks: Acknowledgements that a committed offset waits for.
reserved.broker.max.id: Largest id that may be given to a broker by hand.
zookeeper.clientCnxnSocket: Class by which Java connects to ZooKeeper.
zookeeper.max.in.flight.requests: Requests that a broker sends to ZooKeeper before it waits for an answer.
zookeeper.metadata.migration.enable: Whether the cluster is moving from ZooKeeper to KRaft.
zookeeper.ssl.cipher.suites: Cipher suites that may be used towards ZooKeeper.
zookeeper.ssl.crl.enable: Whether lists of revoked certificates are asked for ZooKeeper's.
zookeeper.ssl.enabled.protocols: Versions of TLS that may be used towards ZooKeeper.
zookeeper.ssl.ocsp.enable: Whether somebody is asked if ZooKeeper's certificate was revoked.
zookeeper.ssl.protocol: Version of TLS that is used towards ZooKeeper.
"""


def documentation(declared: Setting) -> str:
    """What a setting is for, and whether it does nothing here."""
    sentence = declared.doc or purposes().get(declared.name, "")
    return sentence if declared.effective else f"{sentence} {WITHOUT_EFFECT}".strip()


@cache
def purposes() -> Mapping[str, str]:
    """Kafka's name -> a sentence, for the settings of the table without effect."""
    lines = (line.partition(": ") for line in _SENTENCES.strip().split("\n"))
    return {name: sentence for name, _, sentence in lines}
