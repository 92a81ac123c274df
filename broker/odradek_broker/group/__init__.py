"""Groups of consumers and their offsets: the coordinator over `__consumer_offsets`.

    states         the states of a classic group and what leads from one to another: a table
    records        keys and values in the log, in Kafka's encoding
    config         the settings that groups obey
    turn           one decision under way: the time, the timers, what it wants written and said
    group          what every kind of group has to answer (Group): a new kind plugs in here
    classic_group  a classic group: members, generation, the steps of a rebalance
    classic_join, classic_sync  what a member's request does to its group
    classic_requests   the same as decisions on a shard
    offsets        committed offsets, and those of open transactions
    offset_requests, offset_expiry   commit, fetch, delete, expire
    admin          describe, list and delete groups
    shard          GroupShard: all of it for one partition; replays records, runs timers
    service        GroupService: finds the shard for a group; the only part that does I/O

All but the service is pure. A new kind of group is a class with the methods of `Group`, replay
functions for its record keys in `GroupShard.replayers`, and decision functions of its own.
"""
