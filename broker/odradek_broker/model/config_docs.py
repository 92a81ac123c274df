"""The documentation of each setting that Odradek honours, one sentence each.

Shown by DescribeConfigs when a client asks for documentation. Few clients do, so the text is parsed
at first use. A name may be a setting of topics, of brokers, or of both.
"""

from functools import cache

WITHOUT_EFFECT = "Known from Apache Kafka; has no effect in Odradek."

_TEXT = """
add.partitions.to.txn.retry.backoff.max.ms | How long a verification is retried while another transaction ends.
add.partitions.to.txn.retry.backoff.ms | Pause before the verification of a transaction is retried.
advertised.listeners | Addresses for clients; those of `listeners` if not set.
authorizer.class.name | Kafka's StandardAuthorizer (org.apache.kafka.metadata.authorizer.StandardAuthorizer) turns ACLs on.
auto.create.topics.enable | Whether a metadata request for a missing topic creates it.
auto.leader.rebalance.enable | Whether leadership moves back to preferred replicas automatically.
broker.heartbeat.interval.ms | Interval of a broker's heartbeats to the controller.
broker.id | Older name of node.id.
broker.rack | The rack (zone) of this broker; replicas of a partition spread over racks.
broker.session.timeout.ms | A broker without a heartbeat for this long is fenced.
cleanup.policy | `delete` removes old segments, `compact` keeps the last value of each key.
compression.gzip.level | Level used when the broker itself compresses with gzip.
compression.lz4.level | Level used when the broker itself compresses with lz4.
compression.type | Codec of stored batches; `producer` keeps what the producer chose.
compression.zstd.level | Level used when the broker itself compresses with zstd.
config.providers | Providers of values in the settings file; only `env` is supported.
connection.failed.authentication.delay.ms | A failed login is answered, and its connection closed, after this long.
connections.max.idle.ms | A connection without a request for this long is closed.
connections.max.reauth.ms | Clients have to authenticate again within this long; 0 turns it off.
consumer.assignment.interval.ms | group.consumer.assignment.interval.ms of this group.
consumer.heartbeat.interval.ms | group.consumer.heartbeat.interval.ms of this group.
consumer.session.timeout.ms | group.consumer.session.timeout.ms of this group.
controlled.shutdown.enable | Whether a broker hands over its leaderships before it stops.
controller.listener.names | Names of listeners that are for the metadata quorum and the controller only.
controller.quorum.bootstrap.servers | Brokers of the cluster that a new broker contacts first.
controller.quorum.election.backoff.max.ms | Longest wait after an election without a winner.
controller.quorum.election.timeout.ms | A voter without a leader for this long starts an election.
controller.quorum.fetch.max.bytes | Most bytes of the metadata log in one fetch.
controller.quorum.fetch.snapshot.max.bytes | Most bytes of a metadata snapshot in one fetch.
controller.quorum.fetch.timeout.ms | A voter that cannot fetch from the leader for this long starts an election.
controller.quorum.request.timeout.ms | How long a request to another node may take.
controller.quorum.retry.backoff.ms | Pause before a request to another node is tried again.
controller.quorum.voters | The nodes that form a new cluster: id@host:port, separated by commas.
controller.quota.window.num | Windows over which controller_mutation_rate is averaged.
controller.quota.window.size.seconds | Length of a window of controller_mutation_rate.
default.replication.factor | Replication factor of a new topic that does not set one.
delegation.token.expiry.check.interval.ms | How often the controller removes expired delegation tokens.
delegation.token.expiry.time.ms | A delegation token expires after this long unless it is renewed.
delegation.token.max.lifetime.ms | No delegation token lives longer than this, however often it is renewed.
delegation.token.secret.key | Makes the secrets of delegation tokens; the same on all brokers. Empty: no tokens.
delete.retention.ms | How long a compacted topic keeps tombstones (deleted keys).
delete.topic.enable | Whether topics may be deleted.
fetch.max.bytes | Maximum bytes of records in one fetch response.
file.delete.delay.ms | Time between marking a file as deleted and removing it.
flush.messages | Number of records after which a log is flushed to disk.
flush.ms | Time after which written records are flushed to disk.
follower.replication.throttled.rate | Bytes per second that throttled replicas here may fetch.
follower.replication.throttled.replicas | Replicas (partition:broker, or *) that fetch slowly.
group.consumer.assignment.interval.ms | Minimum time between two assignments of a group.
group.consumer.assignors | Assignors that members may ask for; the first is the default.
group.consumer.heartbeat.interval.ms | How often members of the consumer protocol send heartbeats.
group.consumer.max.assignment.interval.ms | Longest assignment interval that may be set.
group.consumer.max.heartbeat.interval.ms | Longest heartbeat interval that may be set.
group.consumer.max.session.timeout.ms | Longest session timeout that may be set.
group.consumer.max.size | Maximum number of members of a group of the consumer protocol.
group.consumer.migration.policy | Directions in which a group with members may change its protocol.
group.consumer.min.assignment.interval.ms | Shortest assignment interval that may be set.
group.consumer.min.heartbeat.interval.ms | Shortest heartbeat interval that may be set.
group.consumer.min.session.timeout.ms | Shortest session timeout that may be set.
group.consumer.regex.refresh.interval.ms | How often regular expressions are matched again, at the latest.
group.consumer.session.timeout.ms | A member without a heartbeat for this long is fenced.
group.initial.rebalance.delay.ms | How long a new group waits for more members.
group.max.session.timeout.ms | Longest session timeout that a member may request.
group.max.size | Maximum members of a group.
group.min.session.timeout.ms | Shortest session timeout that a member may request.
group.coordinator.rebalance.protocols | Without `streams` this broker refuses streams groups; the other protocols are always served.
group.share.assignment.interval.ms | Minimum time between two assignments of a share group.
group.share.delivery.count.limit | How often a record of a share group is delivered at most.
group.share.heartbeat.interval.ms | How often members of share groups send heartbeats.
group.share.initialize.retry.interval.ms | Pause before the state of share partitions is initialized again.
group.share.max.assignment.interval.ms | Longest assignment interval that a share group may set.
group.share.max.delivery.count.limit | Largest delivery count limit that a share group may set.
group.share.max.heartbeat.interval.ms | Longest heartbeat interval that a share group may set.
group.share.max.partition.max.record.locks | Largest number of record locks that a share group may set.
group.share.max.record.lock.duration.ms | Longest record lock that a share group may set.
group.share.max.session.timeout.ms | Longest session timeout that a share group may set.
group.share.max.share.sessions | Share sessions that this broker keeps at most.
group.share.max.size | Members of a share group at most.
group.share.min.assignment.interval.ms | Shortest assignment interval that a share group may set.
group.share.min.delivery.count.limit | Smallest delivery count limit that a share group may set.
group.share.min.heartbeat.interval.ms | Shortest heartbeat interval that a share group may set.
group.share.min.partition.max.record.locks | Smallest number of record locks that a share group may set.
group.share.min.record.lock.duration.ms | Shortest record lock that a share group may set.
group.share.min.session.timeout.ms | Shortest session timeout that a share group may set.
group.share.partition.max.record.locks | Records of a partition that a share group has in flight at most.
group.share.record.lock.duration.ms | How long a member of a share group has a record before it is delivered again.
group.share.session.timeout.ms | A member of a share group without a heartbeat for this long is removed.
group.streams.assignment.interval.ms | Minimum time between two assignments of a streams group.
group.streams.heartbeat.interval.ms | How often members of streams groups send heartbeats.
group.streams.initial.rebalance.delay.ms | How long the first assignment of a streams group waits for more members.
group.streams.max.assignment.interval.ms | Longest assignment interval that a streams group may set.
group.streams.max.heartbeat.interval.ms | Longest heartbeat interval that a streams group may set.
group.streams.max.session.timeout.ms | Longest session timeout that a streams group may set.
group.streams.max.size | Members of a streams group at most.
group.streams.max.standby.replicas | Largest number of standby replicas that a streams group may set.
group.streams.min.assignment.interval.ms | Shortest assignment interval that a streams group may set.
group.streams.min.heartbeat.interval.ms | Shortest heartbeat interval that a streams group may set.
group.streams.min.session.timeout.ms | Shortest session timeout that a streams group may set.
group.streams.num.standby.replicas | Copies of each task's state that a streams group keeps on other processes.
group.streams.session.timeout.ms | A member of a streams group without a heartbeat for this long is removed.
index.interval.bytes | Bytes of records between two entries of the offset index.
inter.broker.listener.name | The listener that brokers use to reach each other.
internal.segment.bytes | Like segment.bytes, without its lower limit; for tests.
leader.imbalance.check.interval.seconds | How often the balance of leaders is checked.
leader.replication.throttled.rate | Bytes per second that this broker sends to throttled replicas.
leader.replication.throttled.replicas | Replicas (partition:broker, or *) that are sent throttled.
listener.security.protocol.map | Security protocol of each listener name; only PLAINTEXT works.
listeners | Addresses to accept connections on: name://host:port, separated by commas.
log.cleaner.backoff.ms | Pause of a cleaner thread that found nothing to clean.
log.cleaner.dedupe.buffer.size | Memory for the offset maps of all cleaner threads together.
log.cleaner.delete.retention.ms | delete.retention.ms of topics that do not set it.
log.cleaner.enable | Whether logs are compacted.
log.cleaner.io.buffer.load.factor | How full an offset map may get before a cleaning pass ends.
log.cleaner.io.buffer.size | Memory for reading and writing of all cleaner threads together.
log.cleaner.io.max.bytes.per.second | Maximum bytes per second that cleaners read and write.
log.cleaner.max.compaction.lag.ms | max.compaction.lag.ms of topics that do not set it.
log.cleaner.min.cleanable.ratio | min.cleanable.dirty.ratio of topics that do not set it.
log.cleaner.min.compaction.lag.ms | min.compaction.lag.ms of topics that do not set it.
log.cleaner.threads | Threads that compact logs.
log.cleanup.policy | cleanup.policy of topics that do not set it.
log.dir | The directory for logs, if log.dirs is not set.
log.dirs | Directories for logs; a new partition goes to the one with the fewest.
log.flush.interval.messages | flush.messages of topics that do not set it.
log.flush.interval.ms | flush.ms of topics that do not set it.
log.flush.offset.checkpoint.interval.ms | How often recovery points are checkpointed.
log.flush.scheduler.interval.ms | How often logs are checked for data to sync.
log.flush.start.offset.checkpoint.interval.ms | How often log start offsets are checkpointed.
log.index.interval.bytes | index.interval.bytes of topics that do not set it.
log.index.size.max.bytes | segment.index.bytes of topics that do not set it.
log.message.timestamp.after.max.ms | message.timestamp.after.max.ms of topics without it.
log.message.timestamp.before.max.ms | message.timestamp.before.max.ms of topics without it.
log.message.timestamp.type | message.timestamp.type of topics that do not set it.
log.preallocate | preallocate of topics that do not set it.
log.retention.bytes | retention.bytes of topics that do not set it.
log.retention.check.interval.ms | How often logs are checked for segments to delete.
log.retention.hours | Retention in hours; log.retention.minutes and .ms take precedence.
log.retention.minutes | Retention in minutes; log.retention.ms takes precedence.
log.retention.ms | retention.ms of topics that do not set it; -1 keeps everything.
log.roll.hours | Hours after which a segment is rolled; log.roll.ms takes precedence.
log.roll.jitter.hours | Random spread of rolls in hours; log.roll.jitter.ms takes precedence.
log.roll.jitter.ms | segment.jitter.ms of topics that do not set it.
log.roll.ms | segment.ms of topics that do not set it.
log.segment.bytes | segment.bytes of topics that do not set it.
log.segment.delete.delay.ms | file.delete.delay.ms of topics that do not set it.
max.compaction.lag.ms | Maximum time that a record stays uncompacted.
max.connection.creation.rate | New connections per second; a listener delays connections above it.
max.connections | Maximum connections to this broker.
max.connections.per.ip | Maximum connections from one address.
max.connections.per.ip.overrides | Other maximums for single addresses: address:number, separated by commas.
max.incremental.fetch.session.cache.slots | Maximum number of incremental fetch sessions.
max.message.bytes | Largest batch of records that is accepted, in its compressed size.
max.request.partition.size.limit | Maximum partitions in one page of DescribeTopicPartitions.
message.max.bytes | max.message.bytes of topics that do not set it.
message.timestamp.after.max.ms | How far in the future a record's timestamp may be.
message.timestamp.before.max.ms | How far in the past a record's timestamp may be.
message.timestamp.type | Timestamp of records: the producer's (CreateTime) or LogAppendTime.
metadata.log.dir | The directory for the metadata log; the first log directory if not set.
metadata.log.max.record.bytes.between.snapshots | Bytes of metadata after which a snapshot is written.
metadata.log.max.snapshot.interval.ms | Time after which a snapshot is written; 0: never.
metadata.log.segment.bytes | Size at which a segment of the metadata log is closed.
metadata.log.segment.ms | Time after which a segment of the metadata log is closed.
min.cleanable.dirty.ratio | Share of uncleaned bytes from which the log is worth cleaning.
min.compaction.lag.ms | Time for which a record is not cleaned.
min.insync.replicas | With fewer in-sync replicas, writes with acks=all are refused.
node.id | The id of this broker in its cluster.
num.partitions | Partitions of a new topic that does not set a number.
num.recovery.threads.per.data.dir | Threads per directory that load and recover logs at start.
odradek.add.scram.file | Users (SCRAM) that a new cluster begins with; ignored at later starts.
odradek.admin.listener | host:port of the HTTP server for health and metrics; empty for none.
odradek.cluster.id | Id of the cluster, for the first start; generated if not set.
odradek.controlled.shutdown.timeout.ms | How long a stopping broker waits until other brokers lead.
odradek.inter.broker.listener.names | Listeners that take requests of other brokers in addition to the inter-broker listener, while brokers move from one to another.
odradek.leader.imbalance.per.broker.percentage | Share of non-preferred leaders from which leadership moves back.
odradek.log.dir.reserve.bytes | Free bytes of a log directory below which produce requests are refused.
odradek.quorum.auto.join.enable | Whether the controller may make this broker a voter automatically.
odradek.request.receive.timeout.ms | Time in which 32 KB of a request, or its rest, must arrive.
odradek.sasl.oauthbearer.unsecured.enable | Accepts OAUTHBEARER tokens without a signature; for tests only.
odradek.ssl.handshake.timeout.ms | A TLS handshake that takes longer is ended.
odradek.ssl.reload.interval.ms | Interval at which key and trust stores are looked at for changes.
offset.metadata.max.bytes | Longest text that a client may store with an offset.
offsets.commit.timeout.ms | How long a commit may wait for the in-sync replicas.
offsets.retention.check.interval.ms | How often expired offsets are removed.
offsets.retention.minutes | How long offsets are kept that no member of their group uses.
offsets.topic.compression.codec | Codec of records in __consumer_offsets; 0: none.
offsets.topic.num.partitions | Partitions of __consumer_offsets, when it is created.
offsets.topic.replication.factor | Replicas of __consumer_offsets; unset: 3, or all if fewer.
offsets.topic.segment.bytes | segment.bytes of __consumer_offsets, when it is created.
preallocate | Whether a new segment's file gets its full size at once.
process.roles | Roles of this node: broker, or broker and controller.
producer.id.expiration.ms | State of an idempotent producer that is inactive for this long is removed.
queued.max.request.bytes | Bytes of requests in memory beyond which no more are read; -1: 256 MB.
quota.window.num | Windows over which client quotas are averaged.
quota.window.size.seconds | Length of a window of client quotas.
replica.alter.log.dirs.io.max.bytes.per.second | Bytes per second that move between log directories.
replica.fetch.backoff.ms | Longest pause before a follower fetches again after an error.
replica.fetch.max.bytes | Bytes per partition and fetch of a follower; one batch may exceed it.
replica.fetch.min.bytes | Bytes that a follower waits for, unless replica.fetch.wait.max.ms is over.
replica.fetch.response.max.bytes | Bytes of one response to a follower; one batch may exceed it.
replica.fetch.wait.max.ms | How long a leader delays a follower's fetch while there are no records.
replica.high.watermark.checkpoint.interval.ms | How often high watermarks are checkpointed.
replica.lag.time.max.ms | A follower that was not caught up for this long leaves the ISR.
replica.selector.class | RackAwareReplicaSelector sends consumers to a replica in their rack.
replica.socket.timeout.ms | How long a follower waits for the response to a fetch.
request.timeout.ms | How long a broker waits for the response of another broker.
retention.bytes | Size beyond which the oldest segments of a partition are deleted; -1: no limit.
retention.ms | Age beyond which segments are deleted; -1: no limit.
sasl.enabled.mechanisms | SASL mechanisms of a listener: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER.
sasl.jaas.config | Users of PLAIN, and the broker's own credentials; set it per listener and mechanism.
sasl.mechanism.controller.protocol | The mechanism with which brokers authenticate on a listener of controller.listener.names.
sasl.mechanism.inter.broker.protocol | The mechanism with which brokers authenticate to each other.
sasl.oauthbearer.client.credentials.client.id | Client id for tokens of this broker's own connections.
sasl.oauthbearer.client.credentials.client.secret | Client secret for tokens of this broker's own connections.
sasl.oauthbearer.clock.skew.seconds | Difference of clocks that is tolerated when a token's times are checked.
sasl.oauthbearer.expected.audience | Audiences of which a token must name one.
sasl.oauthbearer.expected.issuer | The issuer that a token must have.
sasl.oauthbearer.jwks.endpoint.refresh.ms | Interval at which the keys of the identity provider are read again.
sasl.oauthbearer.jwks.endpoint.url | Keys of the identity provider, an https or file URL.
sasl.oauthbearer.scope | Scope of tokens for this broker's own connections.
sasl.oauthbearer.sub.claim.name | The claim of a token that is the user's name.
sasl.oauthbearer.token.endpoint.url | Where this broker gets tokens for its own connections; an https or file URL.
sasl.server.max.receive.size | The largest request before a client is authenticated.
security.inter.broker.protocol | Name of the inter-broker listener, if inter.broker.listener.name is not set.
segment.bytes | Size at which a segment is closed and a new one begun.
segment.index.bytes | Largest offset index of a segment.
segment.jitter.ms | Spreads the rolls of segment.ms at random over this time.
segment.ms | Age at which a segment is closed although it is not full.
share.assignment.interval.ms | group.share.assignment.interval.ms of this group.
share.auto.offset.reset | Where a share group starts in a partition: earliest, latest, by_duration:PnDTnHnMn.nS.
share.coordinator.cold.partition.snapshot.interval.ms | How often unchanged share partitions get a new snapshot if it is due.
share.coordinator.snapshot.update.records.per.snapshot | Updates of a share partition before a new snapshot is written.
share.coordinator.state.topic.compression.codec | Codec of batches in __share_group_state: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd.
share.coordinator.state.topic.min.isr | min.insync.replicas of __share_group_state, when it is created.
share.coordinator.state.topic.num.partitions | Partitions of __share_group_state, when it is created.
share.coordinator.state.topic.prune.interval.ms | How often obsolete records of __share_group_state are deleted.
share.coordinator.state.topic.replication.factor | Replicas of __share_group_state; unset: 3, or all if fewer.
share.coordinator.state.topic.segment.bytes | segment.bytes of __share_group_state, when it is created.
share.coordinator.write.timeout.ms | How long a write of the share coordinator waits for its commit.
share.delivery.count.limit | group.share.delivery.count.limit of this group.
share.heartbeat.interval.ms | group.share.heartbeat.interval.ms of this group.
share.isolation.level | read_committed hides records of aborted transactions from a share group.
share.partition.max.record.locks | group.share.partition.max.record.locks of this group.
share.record.lock.duration.ms | group.share.record.lock.duration.ms of this group.
share.renew.acknowledge.enable | Whether members of this share group may renew their locks.
share.session.timeout.ms | group.share.session.timeout.ms of this group.
streams.assignment.interval.ms | group.streams.assignment.interval.ms of this group.
streams.heartbeat.interval.ms | group.streams.heartbeat.interval.ms of this group.
streams.initial.rebalance.delay.ms | group.streams.initial.rebalance.delay.ms of this group.
streams.num.standby.replicas | group.streams.num.standby.replicas of this group.
streams.session.timeout.ms | group.streams.session.timeout.ms of this group.
telemetry.max.bytes | Largest push of client metrics, before and after decompression.
socket.listen.backlog.size | Connections that may wait to be accepted.
socket.receive.buffer.bytes | Receive buffer of a client's socket; -1: the system's default.
socket.request.max.bytes | Largest request that is accepted.
socket.send.buffer.bytes | Send buffer of a client's socket; -1: the system's choice.
ssl.cipher.suites | Cipher suites that are accepted; empty for all.
ssl.client.auth | Whether clients present a certificate: required, requested or none.
ssl.enabled.protocols | Versions of TLS: TLSv1.2, TLSv1.3.
ssl.endpoint.identification.algorithm | `https` checks host names of brokers that this one connects to; empty does not.
ssl.key.password | Password of the private key.
ssl.keystore.certificate.chain | Certificate chain in PEM format, the broker's own first.
ssl.keystore.key | Private key in PEM format.
ssl.keystore.location | File with private key and certificates.
ssl.keystore.password | Password of the key store.
ssl.keystore.type | PEM or PKCS12; JKS is not supported.
ssl.principal.mapping.rules | Rules that make the user's name of a certificate's distinguished name.
ssl.truststore.certificates | Trusted certificates in PEM format.
ssl.truststore.location | File with trusted certificates.
ssl.truststore.password | Password of the trust store.
ssl.truststore.type | PEM or PKCS12; JKS is not supported.
transaction.abort.timed.out.transaction.cleanup.interval.ms | How often timed-out transactions are aborted.
transaction.max.timeout.ms | Longest transaction timeout that a producer may ask for.
transaction.partition.verification.enable | Whether a write is verified to belong to an open transaction.
transaction.remove.expired.transaction.cleanup.interval.ms | How often expired transactional ids are removed.
transaction.state.log.min.isr | min.insync.replicas of __transaction_state, when it is created.
transaction.state.log.num.partitions | Partitions of __transaction_state, when it is created.
transaction.state.log.replication.factor | Replicas of __transaction_state; unset: 3, or all if fewer.
transaction.state.log.segment.bytes | segment.bytes of __transaction_state, when it is created.
transactional.id.expiration.ms | A transactional id that was not used for this long is removed.
unclean.leader.election.enable | Whether a replica outside of the ISR may lead when no other is alive.
unclean.leader.election.interval.ms | How often an unclean election is tried for partitions without a leader.
"""  # noqa: E501


@cache
def _table() -> dict[str, str]:
    table = {}
    for line in _TEXT.strip().splitlines():
        name, text = line.split(" | ", 1)
        table[name] = text
    return table


def documentation(name: str) -> str:
    return _table().get(name, WITHOUT_EFFECT)
