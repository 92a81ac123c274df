"""Coordinators over an internal topic: the common part of groups, transactions and share groups.

A coordinator is a set of shards, one per partition of its topic (`__consumer_offsets`,
`__transaction_state`, `__share_group_state`). A key (group id, transactional id, share partition)
belongs to the partition `partition_for(key, partitions)`; the broker that leads this partition
coordinates the key.

    hashing         which partition a key belongs to
    result          CoordinatorResult, CoordinatorRecord, DeferredResponse, Moment
    shard           the protocol that the state of one partition implements: Shard
    timers          deadlines by key, for shards
    record_schema   the encoding of keys and values, declared field by field
    host            one shard with its log: append, replay, respond once committed
    loading         replays batches of the log into a shard
    internal_topics the settings with which the internal topics are created
    broker_calls    requests to the coordinators on other brokers
    service         CoordinatorService: all hosts of this broker. The only module that does I/O

**The contract for a shard.** It does no I/O: it has no clock, no asyncio and no log. Decisions
look at it and return a `CoordinatorResult`. Only `replay` changes state that is in records, so a
leader, a new leader and a restarted one take the same path. State that is in no record (parked
requests, session deadlines) may be changed by a decision directly. A decision that does so *and*
returns records sets `volatile=True`; if those records cannot be appended, the shard is reloaded.

    def commit(shard: GroupShard, now: Moment) -> CoordinatorResult[Struct]:
        return CoordinatorResult([CoordinatorRecord(key, value)], response)

    response = await service.write(service.partition_of(group_id), commit)

`write` makes the decision at once, appends its records as one batch, replays them at once, and
responds when the high watermark has passed them. So concurrent requests are decided in order, and
no client sees anything that could still be lost: `read` (and a decision without records) responds
when everything that the shard knew at that moment is committed. Both raise KafkaError:

    NOT_COORDINATOR              another broker leads the partition, now or since the request came
    COORDINATOR_LOAD_IN_PROGRESS the shard is being loaded
    COORDINATOR_NOT_AVAILABLE    too few in-sync replicas, or not committed within the timeout
    whatever the decision raised nothing was written

A request that has to wait for others (JoinGroup) is parked: the decision returns a
`DeferredResponse`, and a later result, of any decision or timer, has `(deferred, response)` in
`answers`. Requests that are parked when the shard is unloaded get NOT_COORDINATOR.

Transactions: `write(…, producer=Producer(id, epoch))` makes the batch transactional. The shard
gets the producer id in `replay` and the outcome in `replay_end_transaction`. Markers for a
partition of such a topic are written with `write_marker`, so that the shard gets them too.
"""
