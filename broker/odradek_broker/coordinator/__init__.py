"""Coordinators over an internal compacted topic: what groups and transactions share.

A coordinator is a set of shards, one per partition of its topic (`__consumer_offsets`,
`__transaction_state`); a key (group id, transactional id) belongs to the partition
`partition_for(key, partitions)`, and the broker that leads that partition coordinates it.

    hashing        which partition a key belongs to
    result         what a decision is: Result, CoordinatorRecord, Ticket, Moment
    shard          the protocol of the pure state of one partition: Shard
    timers         deadlines by key, for shards
    record_schema  the encoding of keys and values, declared field by field
    host           one shard with its log: append, replay, answer when committed; pure
    loading        batches of the log into a shard; pure
    internal_topics what the internal topics look like when they are created; pure
    service        CoordinatorService: all hosts of this broker. The only part that does I/O

**The contract for a shard.** It is pure: no clock, no asyncio, no log. `decide` functions look at
it and return a `Result`; only `replay` changes what the records say, so a leader, a new leader
and a restarted one share one path. What is in no record (who waits, when a session ends) may
be changed by a decision directly; a decision that does so *and* returns records says
`volatile=True`, and the shard is loaded anew if those records cannot be appended.

    def commit(shard: GroupShard, now: Moment) -> Result[Struct]:
        return Result([CoordinatorRecord(key, value)], response)

    answer = await service.write(service.partition_of(group_id), commit)

`write` runs the decision at once, appends its records as one batch, replays them at once, and
answers when the high watermark has passed them. So two requests that overlap decide in order,
and nobody hears of what could still be lost: `read` (and a decision without records) answers
when all that the shard knew at that moment is committed. Both raise KafkaError:

    NOT_COORDINATOR              the partition is led elsewhere, or moved while one waited
    COORDINATOR_LOAD_IN_PROGRESS the shard is being loaded
    COORDINATOR_NOT_AVAILABLE    too few in-sync replicas, or not committed within the timeout
    what `decide` raised         nothing was written

A request that has to wait for others (JoinGroup) is parked: the decision returns a `Ticket` as its
response, and a later Result, of whatever decision or timer, has `(ticket, answer)` in `answers`.
Whoever is parked when the shard is unloaded hears NOT_COORDINATOR.

Transactions: `write(…, producer=Producer(id, epoch))` makes the batch transactional; the shard
sees the producer id in `replay` and the outcome in `replay_end_transaction`. Whoever writes a
marker into a partition of such a topic does it with `write_marker`, so that the shard hears it.
"""
