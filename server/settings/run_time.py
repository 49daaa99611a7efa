"""What a change of a setting does while the broker runs, for those who ask before they change one (`ottla settings`).

One line for each setting that can be changed at run time and has an effect: the name, and a sentence. A setting of all
topics, such as log.retention.ms, has the sentence of the topic setting that it is the default of. This is read when somebody
asks, and not at start.
"""

from collections.abc import Mapping
from functools import cache

from ottla.replication.config import LogConfig
from ottla.wire.settings import Setting, settings_of

_OF_BROKERS = """
config.providers: Refused: there are no providers.
cordoned.log.dirs: Holds for the next partition or move; what is in a directory stays there.
errors.deadletterqueue.auto.create.topics.enable: Holds for the next record that goes to a dead-letter queue.
errors.deadletterqueue.topic.name.prefix: Holds for the next record that goes to a dead-letter queue.
follower.replication.throttled.rate: Holds from the next fetch of a throttled follower on.
group.consumer.assignment.interval.ms: Holds for the next assignment of each group that has no value of its own.
group.share.assignment.interval.ms: Holds for the next assignment of each group that has no value of its own.
group.streams.assignment.interval.ms: Holds for the next assignment of each group that has no value of its own.
leader.replication.throttled.rate: Holds from the next fetch for a throttled replica on.
listener.security.protocol.map: Refused: listeners are bound once, when the broker starts.
listeners: Refused: listeners are bound once, when the broker starts.
log.cleaner.backoff.ms: Holds for the cleaner's next pause; one that has begun is as long as it was.
log.cleaner.dedupe.buffer.size: Holds for the next log that is compacted.
log.cleaner.io.buffer.load.factor: Holds for the next log that is compacted.
log.cleaner.io.buffer.size: Holds for the next log that is compacted.
log.cleaner.io.max.bytes.per.second: Taken up at once, also by a compaction that has begun.
log.cleaner.threads: Holds for the cleaner's next round; if it was made smaller, for the next log already.
max.connection.creation.rate: Holds for the next connection; who is connected stays.
max.connections: Taken up at once: new connections wait while there are too many, and who is connected stays.
max.connections.per.ip: Holds for the next connection; who is connected stays.
max.connections.per.ip.overrides: Holds for new connections as soon as names among the addresses are looked up; who is connected stays.
num.recovery.threads.per.data.dir: Nothing before the next start, which recovers logs with it.
num.replica.fetchers: Taken up by each fetcher before its next fetch; partitions are spread over the new number.
producer.id.expiration.ms: Holds when idle producers are looked for the next time.
replica.alter.log.dirs.io.max.bytes.per.second: Holds from the next piece that is copied on.
sasl.enabled.mechanisms: Holds for the next login, also of who is connected and has to log in again.
sasl.jaas.config: Holds for the next login; the lines of OAUTHBEARER and GSSAPI are settled at the start.
sasl.kerberos.principal.to.local.rules: Holds for the next login, also of who is connected and has to log in again.
sasl.kerberos.service.name: Nothing: how brokers log in at each other is settled when they start, by server.properties.
sasl.login.refresh.buffer.seconds: Nothing: how brokers log in at each other is settled when they start, by server.properties.
sasl.login.refresh.min.period.seconds: Nothing: how brokers log in at each other is settled when they start, by server.properties.
sasl.login.refresh.window.factor: Nothing: how brokers log in at each other is settled when they start, by server.properties.
sasl.login.refresh.window.jitter: Nothing: how brokers log in at each other is settled when they start, by server.properties.
sasl.mechanism.inter.broker.protocol: Nothing: how brokers log in at each other is settled when they start, by server.properties.
ssl.cipher.suites: Holds for new connections.
ssl.client.auth: Holds for new connections.
ssl.enabled.protocols: Holds for new connections.
ssl.endpoint.identification.algorithm: Holds for new connections to other brokers.
ssl.key.password: Only for one listener, by its prefix; holds for new connections.
ssl.keystore.certificate.chain: Only for one listener, by its prefix; holds for new connections.
ssl.keystore.key: Only for one listener, by its prefix; holds for new connections.
ssl.keystore.location: Only for one listener, by its prefix; holds for new connections, as does a file that is written over.
ssl.keystore.password: Only for one listener, by its prefix; holds for new connections.
ssl.keystore.type: Only for one listener, by its prefix; holds for new connections.
ssl.protocol: Checked, and nothing else: ssl.enabled.protocols decides.
ssl.truststore.certificates: Only for one listener, by its prefix; holds for new connections.
ssl.truststore.location: Only for one listener, by its prefix; holds for new connections, as does a file that is written over.
ssl.truststore.password: Only for one listener, by its prefix; holds for new connections.
ssl.truststore.type: Only for one listener, by its prefix; holds for new connections.
transaction.partition.verification.enable: Holds for the next transaction in each partition.
"""

_OF_TOPICS = """
cleanup.policy: Holds when old segments or logs to compact are looked for the next time; a compacted topic refuses records without a key at once.
compression.gzip.level: Holds from the next append on; what is stored stays as it is.
compression.lz4.level: Holds from the next append on; what is stored stays as it is.
compression.type: Holds from the next append on; what is stored stays as it is.
compression.zstd.level: Holds from the next append on; what is stored stays as it is.
delete.retention.ms: Holds for the next compaction that finds a marker for the first time; markers that were found keep their time.
errors.deadletterqueue.group.enable: Holds for the next record that goes to a dead-letter queue.
file.delete.delay.ms: Holds for files that are given up from now on.
flush.messages: Holds from the next append on: with any value but the largest, each append is forced to disk before its acknowledgement.
flush.ms: Holds from the next append on: with any value but the largest, each append is forced to disk before its acknowledgement.
follower.replication.throttled.replicas: Holds from the next fetch of a follower on.
index.interval.bytes: Holds from the next append on; entries that are there stay.
leader.replication.throttled.replicas: Holds from the next fetch of a follower on.
max.compaction.lag.ms: Holds from the next append and the cleaner's next round on.
max.decompressed.message.bytes: Holds from the next append on.
max.message.bytes: Holds from the next append on; larger batches that are stored are served all the same.
message.timestamp.after.max.ms: Holds from the next append on.
message.timestamp.before.max.ms: Holds from the next append on.
message.timestamp.type: Holds from the next append on; records that are stored keep their timestamps.
min.cleanable.dirty.ratio: Holds for the cleaner's next round.
min.compaction.lag.ms: Holds for the cleaner's next round.
min.insync.replicas: Taken up at once, also by requests that wait for replicas.
retention.bytes: Holds when old segments are looked for the next time, see log.retention.check.interval.ms.
retention.ms: Holds when old segments are looked for the next time, see log.retention.check.interval.ms.
segment.bytes: Holds from the next append on; segments that are full stay as they are.
segment.index.bytes: Holds from the next index entry on: a segment whose indexes are full then is followed by a new one.
segment.jitter.ms: Holds from the next append on.
segment.ms: Holds from the next append on: a segment that is too old then is followed by a new one.
unclean.leader.election.enable: Taken up at once: the controller looks for partitions without a leader that may have one now.
"""

_OF_GROUPS = """
consumer.assignment.interval.ms: Holds for the group's next assignment.
consumer.heartbeat.interval.ms: Each member hears of it with its next heartbeat.
consumer.session.timeout.ms: Holds for each member from its next heartbeat on.
errors.deadletterqueue.copy.record.enable: Holds for the next record that goes to the dead-letter queue.
errors.deadletterqueue.topic.name: Holds for the next record that goes to the dead-letter queue.
share.assignment.interval.ms: Holds for the group's next assignment.
share.auto.offset.reset: Holds for partitions that the group begins to read.
share.delivery.count.limit: Holds from the next time on that a record is delivered or given back.
share.heartbeat.interval.ms: Each member hears of it with its next heartbeat.
share.isolation.level: Holds from the next fetch on.
share.partition.max.record.locks: Holds from the next fetch on; records that are in flight stay so.
share.record.lock.duration.ms: Holds for records that are acquired or renewed from now on.
share.renew.acknowledge.enable: Holds from the next acknowledgement on.
share.session.timeout.ms: Holds for each member from its next heartbeat on.
streams.acceptable.recovery.lag: Each member hears of it with its next heartbeat.
streams.assignment.interval.ms: Holds for the group's next assignment.
streams.heartbeat.interval.ms: Each member hears of it with its next heartbeat.
streams.initial.rebalance.delay.ms: Holds when the group is empty the next time.
streams.num.standby.replicas: The next heartbeat of a member begins a new assignment with it.
streams.rack.aware.assignment.tags: The next heartbeat of a member begins a new assignment with it.
streams.session.timeout.ms: Holds for each member from its next heartbeat on.
streams.task.offset.interval.ms: Each member hears of it with its next heartbeat.
"""

OF_NO_EFFECT = "Nothing: the setting has no effect here."
OF_SUBSCRIPTION = "A client hears of it with its next request about metrics."


def effect_on_broker(declared: Setting) -> str:
    """What a change of a setting of brokers does. KeyError: nobody has said it yet."""
    if not declared.effective:
        return OF_NO_EFFECT
    topic_name = _topic_settings().get(declared.name)
    if topic_name is None:
        return _sentences(_OF_BROKERS)[declared.name]
    return f"For topics without a {topic_name} of their own. {_sentences(_OF_TOPICS)[topic_name]}"


def effect_on_topic(declared: Setting) -> str:
    """The same of a setting of topics."""
    return _sentences(_OF_TOPICS)[declared.name] if declared.effective else OF_NO_EFFECT


def effect_on_group(declared: Setting) -> str:
    """The same of a setting of groups."""
    return _sentences(_OF_GROUPS)[declared.name] if declared.effective else OF_NO_EFFECT


def described_names() -> tuple[frozenset[str], frozenset[str], frozenset[str]]:
    """The settings of brokers, topics and groups that have a sentence here."""
    of_brokers, of_topics, of_groups = (frozenset(_sentences(each)) for each in (_OF_BROKERS, _OF_TOPICS, _OF_GROUPS))
    return of_brokers, of_topics, of_groups


@cache
def _sentences(lines: str) -> Mapping[str, str]:
    parts = (line.partition(": ") for line in lines.strip().split("\n"))
    return {name: sentence for name, _, sentence in parts}


@cache
def _topic_settings() -> Mapping[str, str]:
    """Names of settings of brokers, each with the topic setting that it is the default of."""
    topics = settings_of(LogConfig).values()
    return {synonym.name: declared.name for declared in topics for synonym in declared.synonyms}
