"""Share groups (KIP-932): queues over the partitions of topics.

Three parts of the broker serve a share group. The group coordinator (`group/share/`) knows its
members and assigns partitions to them. The leader of a partition delivers its records, locks them
and takes acknowledgements. The share coordinator keeps, in `__share_group_state`, what of this must
survive the leader. The last two are here:

    states           delivery states of a record and their transitions: a table
    runs             offsets with the same state, as runs
    share_partition  SharePartition: the delivery state of a partition's records
    metrics          counters of deliveries and acknowledgements
    sessions         share sessions: which partitions a member fetches, and its epochs
    records          keys and values in `__share_group_state`, in Kafka's encoding
    state            SharePartitionState: what is kept about a group and a partition
    shard            ShareShard: all of it for one partition of `__share_group_state`
    coordinator      ShareCoordinator: finds the shard of a key. Does I/O
    persister        reads and writes state through the share coordinator of a key. Does I/O
    service          ShareService: the share partitions of the partitions that this broker leads.
                     Does I/O

Data goes: ShareFetch → service → share_partition (acquire) → response; ShareAcknowledge → service →
share_partition (an update) → persister → coordinator → shard → log; then the response.
"""
