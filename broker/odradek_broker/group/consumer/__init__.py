"""Groups of the consumer protocol (KIP-848): the coordinator assigns, members reconcile.

    member.py      a member, and the partitions that it has or must give back
    group.py       a group: members, target assignment, epochs; changed by `replay` only
    records.py     Kafka's records of it in `__consumer_offsets`, keys 3–8 and 16
    assignors/     uniform and range
    target.py      from subscriptions to a target assignment, as records
    reconcile.py   one member's next step towards its target: the table of member states
    regex.py       subscriptions by regular expression, RE2's syntax
    heartbeat.py   ConsumerGroupHeartbeat: join, stay, leave
    classic.py     members of a consumer group that still use the classic protocol
    convert.py     converts a classic group to a consumer group, and back
    embedded.py    the consumer's own protocol inside classic JoinGroup and SyncGroup
    describe.py    ConsumerGroupDescribe

Only service.py does I/O: time, ids and the cluster's metadata are arguments (`context.py`).
"""
