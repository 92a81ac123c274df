"""Groups of consumers and their offsets: the coordinator over `__consumer_offsets`.

    states         the states of a classic group and its transitions: a table
    records        keys and values in the log, in Kafka's encoding
    config         the settings of groups
    turn           one decision in progress: the time, the timers, its records and responses
    group          the protocol that every kind of group implements (Group)
    classic_group  a classic group: members, generation, the steps of a rebalance
    classic_join, classic_sync  the effect of a member's request on its group
    classic_requests   the same as decisions on a shard
    offsets        committed offsets, and those of open transactions
    offset_requests, offset_expiry   commit, fetch, delete, expire
    admin          describe, list and delete groups
    shard          GroupShard: all groups of one partition; replays records, runs timers
    kinds          the kinds of groups that a shard supports
    service        GroupService: finds the shard of a group. Does I/O, as `lag` does

A new kind of group is a class with the methods of `Group`, its own decision functions, and a
`GroupKind` with its record types and timers, which kinds.py lists.
"""
