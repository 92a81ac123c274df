"""A sentence about each setting that Odradek honours, in our own words.

Shown by DescribeConfigs when a client asks for documentation, which few do: so the text is
parsed at first use. A name may be one of a topic, of a broker, or both.
"""

from functools import cache

WITHOUT_EFFECT = "Known from Apache Kafka; has no effect in Odradek."

_TEXT = """
add.partitions.to.txn.retry.backoff.max.ms | Longest time of these retries.
add.partitions.to.txn.retry.backoff.ms | Pause before a retry while the previous transaction ends.
advertised.listeners | Addresses that clients connect to; default: those of `listeners`.
auto.create.topics.enable | Whether a Metadata request for a missing topic creates it.
auto.leader.rebalance.enable | Whether leadership returns to preferred replicas automatically.
broker.heartbeat.interval.ms | Interval of a broker's heartbeats to the controller.
broker.id | Older name of node.id.
broker.rack | The rack (zone) of this broker; replicas of a partition spread over racks.
broker.session.timeout.ms | A broker without a heartbeat for this long is fenced.
cleanup.policy | `delete` removes old segments, `compact` keeps the last value of each key.
compression.gzip.level | Level used when the broker itself compresses with gzip.
compression.lz4.level | Level used when the broker itself compresses with lz4.
compression.type | Codec of stored batches; `producer` keeps what the producer chose.
compression.zstd.level | Level used when the broker itself compresses with zstd.
config.providers | Providers of values in the settings file; `env` is supported.
connections.max.idle.ms | A connection without a request for this long is closed.
controlled.shutdown.enable | Whether a stopping broker hands over its leaderships first.
controller.listener.names | Listeners that are for controllers only.
controller.quorum.bootstrap.servers | Brokers that a new broker contacts to join a cluster.
controller.quorum.election.backoff.max.ms | Longest pause after an election without a winner.
controller.quorum.election.timeout.ms | A voter without a leader for this long starts an election.
controller.quorum.fetch.max.bytes | Maximum bytes of the metadata log in one fetch.
controller.quorum.fetch.snapshot.max.bytes | Maximum bytes of a metadata snapshot in one fetch.
controller.quorum.fetch.timeout.ms | A voter that cannot fetch for this long starts an election.
controller.quorum.request.timeout.ms | Timeout of a request to another node.
controller.quorum.retry.backoff.ms | Pause before a request to another node is retried.
controller.quorum.voters | The nodes that form a new cluster: id@host:port, separated by commas.
default.replication.factor | Replicas of a topic that is created without a replication factor.
delete.retention.ms | How long a compacted topic keeps tombstones (deleted keys).
delete.topic.enable | Whether topics may be deleted.
fetch.max.bytes | Maximum bytes of records in one fetch response.
file.delete.delay.ms | Time between marking a file as deleted and removing it.
flush.messages | Number of records after which a log is flushed to disk.
flush.ms | Time after which written records are flushed to disk.
follower.replication.throttled.rate | Bytes per second that throttled replicas here may fetch.
follower.replication.throttled.replicas | Replicas (partition:broker, or *) that fetch throttled.
group.consumer.assignment.interval.ms | Minimum time between two assignments of a group.
group.consumer.assignors | Assignors that members may request; the first is the default.
group.consumer.heartbeat.interval.ms | How often members of the consumer protocol send heartbeats.
group.consumer.max.assignment.interval.ms | Longest assignment interval that may be set.
group.consumer.max.heartbeat.interval.ms | Longest heartbeat interval that may be set.
group.consumer.max.session.timeout.ms | Longest session timeout that may be set.
group.consumer.max.size | Maximum members of a group of the consumer protocol.
group.consumer.migration.policy | Directions in which a group with members may change its protocol.
group.consumer.min.assignment.interval.ms | Shortest assignment interval that may be set.
group.consumer.min.heartbeat.interval.ms | Shortest heartbeat interval that may be set.
group.consumer.min.session.timeout.ms | Shortest session timeout that may be set.
group.consumer.regex.refresh.interval.ms | Maximum time between two matches of regular expressions.
group.consumer.session.timeout.ms | A member without a heartbeat for this long is fenced.
group.initial.rebalance.delay.ms | How long a new group waits for more members.
group.max.session.timeout.ms | Longest session timeout that a member may request.
group.max.size | Maximum members of a group.
group.min.session.timeout.ms | Shortest session timeout that a member may request.
index.interval.bytes | Bytes of records between two entries of the offset index.
inter.broker.listener.name | The listener that brokers use to reach each other.
internal.segment.bytes | Like segment.bytes, without its lower limit; for tests.
leader.imbalance.check.interval.seconds | Interval of the check of the leader balance.
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
log.flush.offset.checkpoint.interval.ms | Interval at which recovery points are written.
log.flush.scheduler.interval.ms | Interval at which logs are checked for data to flush.
log.flush.start.offset.checkpoint.interval.ms | Interval at which log start offsets are written.
log.index.interval.bytes | index.interval.bytes of topics that do not set it.
log.index.size.max.bytes | segment.index.bytes of topics that do not set it.
log.message.timestamp.after.max.ms | message.timestamp.after.max.ms of topics without it.
log.message.timestamp.before.max.ms | message.timestamp.before.max.ms of topics without it.
log.message.timestamp.type | message.timestamp.type of topics that do not set it.
log.preallocate | preallocate of topics that do not set it.
log.retention.bytes | retention.bytes of topics that do not set it.
log.retention.check.interval.ms | Interval at which logs are checked for segments to delete.
log.retention.hours | Retention in hours; log.retention.minutes and .ms take precedence.
log.retention.minutes | Retention in minutes; log.retention.ms takes precedence.
log.retention.ms | retention.ms of topics that do not set it; -1 keeps everything.
log.roll.hours | Hours after which a segment is closed; log.roll.ms takes precedence.
log.roll.jitter.hours | Random delay of rolls in hours; log.roll.jitter.ms takes precedence.
log.roll.jitter.ms | segment.jitter.ms of topics that do not set it.
log.roll.ms | segment.ms of topics that do not set it.
log.segment.bytes | segment.bytes of topics that do not set it.
log.segment.delete.delay.ms | file.delete.delay.ms of topics that do not set it.
max.compaction.lag.ms | Maximum time that a record stays uncompacted.
max.connections | Maximum connections to this broker.
max.connections.per.ip | Maximum connections from one address.
max.incremental.fetch.session.cache.slots | Maximum number of incremental fetch sessions.
max.message.bytes | Largest batch of records that is accepted, in its compressed size.
max.request.partition.size.limit | Maximum partitions in one page of DescribeTopicPartitions.
message.max.bytes | max.message.bytes of topics that do not set it.
message.timestamp.after.max.ms | How far in the future a record's timestamp may be.
message.timestamp.before.max.ms | How far in the past a record's timestamp may be.
message.timestamp.type | Timestamp of records: the producer's (CreateTime) or LogAppendTime.
metadata.log.dir | The directory for the metadata log; the first log directory if not set.
metadata.log.max.record.bytes.between.snapshots | Bytes of metadata that make a snapshot due.
metadata.log.max.snapshot.interval.ms | Time after which a snapshot is due; 0: never.
metadata.log.segment.bytes | Size at which a segment of the metadata log is closed.
metadata.log.segment.ms | Time after which a segment of the metadata log is closed.
min.cleanable.dirty.ratio | Share of uncompacted bytes from which a log is compacted.
min.compaction.lag.ms | Minimum time that a record stays uncompacted.
min.insync.replicas | In-sync replicas that a write with acks=all needs.
node.id | Id of this broker, unique in its cluster.
num.partitions | Partitions of a topic that is created without a number.
num.recovery.threads.per.data.dir | Threads per directory that load and recover logs at start.
odradek.admin.listener | host:port of the HTTP server for health and metrics; empty for none.
odradek.cluster.id | Id of the cluster, for the first start; default: a random one.
odradek.controlled.shutdown.timeout.ms | How long a stopping broker waits for others to take over.
odradek.leader.imbalance.per.broker.percentage | Share of misplaced leaders that triggers a move.
odradek.log.dir.reserve.bytes | Free bytes of a log directory below which producers are refused.
odradek.quorum.auto.join.enable | Whether the controller may make this broker a voter.
odradek.request.receive.timeout.ms | Interval in which a request must bring 32 KB, or its rest.
offset.metadata.max.bytes | Longest text that a client may store with an offset.
offsets.commit.timeout.ms | How long a commit may wait for the in-sync replicas.
offsets.retention.check.interval.ms | Interval at which offsets are checked for expiry.
offsets.retention.minutes | How long offsets are kept after their group became empty.
offsets.topic.compression.codec | Codec of records in __consumer_offsets; 0: none.
offsets.topic.num.partitions | Partitions of __consumer_offsets when it is created.
offsets.topic.replication.factor | Replicas of __consumer_offsets; default: 3, or all if fewer.
offsets.topic.segment.bytes | segment.bytes of __consumer_offsets when it is created.
preallocate | Whether a new segment's file gets its full size at once.
process.roles | Roles of this node: broker, controller, or both.
producer.id.expiration.ms | State of an idempotent producer that is idle for this long is dropped.
queued.max.request.bytes | Maximum bytes of requests in memory; -1: 256 MB.
replica.alter.log.dirs.io.max.bytes.per.second | Limit of moves between log directories.
replica.fetch.backoff.ms | Longest pause of a follower before it retries after an error.
replica.fetch.max.bytes | Bytes per partition in a follower's fetch; a larger batch is sent whole.
replica.fetch.min.bytes | Minimum bytes of a response, or replica.fetch.wait.max.ms passes.
replica.fetch.response.max.bytes | Maximum bytes of a response; a single batch may exceed it.
replica.fetch.wait.max.ms | How long a leader delays a follower's fetch when there is nothing new.
replica.high.watermark.checkpoint.interval.ms | Interval at which high watermarks are written.
replica.lag.time.max.ms | A follower that is not caught up for this long leaves the ISR.
replica.selector.class | RackAwareReplicaSelector sends consumers to a replica in their rack.
replica.socket.timeout.ms | How long a follower waits for the response to a fetch.
request.timeout.ms | How long a broker waits for the response of another broker.
retention.bytes | Size of a partition above which its oldest segments are deleted; -1: no limit.
retention.ms | Age at which segments are deleted; -1: no limit.
security.inter.broker.protocol | Selects the inter-broker listener if its name is not set.
segment.bytes | Size at which a segment is closed and a new one is created.
segment.index.bytes | Maximum size of a segment's offset index.
segment.jitter.ms | Maximum random delay that is subtracted from segment.ms.
segment.ms | Age at which a segment is closed even if it is not full.
socket.listen.backlog.size | Connections that may wait to be accepted.
socket.receive.buffer.bytes | Receive buffer of a client's socket; -1: the system's default.
socket.request.max.bytes | Largest request that is accepted.
socket.send.buffer.bytes | Send buffer of a client's socket; -1: the system's default.
transaction.abort.timed.out.transaction.cleanup.interval.ms | Interval of these aborts.
transaction.max.timeout.ms | Longest transaction timeout that a producer may request.
transaction.partition.verification.enable | Whether a write is verified with the coordinator.
transaction.remove.expired.transaction.cleanup.interval.ms | Interval of removing unused ids.
transaction.state.log.min.isr | min.insync.replicas of __transaction_state when it is created.
transaction.state.log.num.partitions | Partitions of __transaction_state when it is created.
transaction.state.log.replication.factor | Of __transaction_state; default: 3, or all if fewer.
transaction.state.log.segment.bytes | segment.bytes of __transaction_state when it is created.
transactional.id.expiration.ms | A transactional id that is unused for this long is deleted.
unclean.leader.election.enable | Whether an out-of-sync replica may lead if no other is available.
unclean.leader.election.interval.ms | Interval at which partitions without a leader are checked.
"""


@cache
def _table() -> dict[str, str]:
    table = {}
    for line in _TEXT.strip().splitlines():
        name, text = line.split(" | ", 1)
        table[name] = text
    return table


def documentation(name: str) -> str:
    return _table().get(name, WITHOUT_EFFECT)
