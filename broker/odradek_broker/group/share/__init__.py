"""Share groups in the group coordinator (KIP-932): members, epochs, assignment.

Members of a share group do not own partitions: a partition may be assigned to several of them, and
a new assignment needs no revocation. So there is one step, not three: the target is computed, and a
member has it with its next heartbeat.

    records     keys and values in `__consumer_offsets`, in Kafka's encoding
    config      the settings group.share.*
    group       ShareGroup and ShareMember; only `replay` changes them
    assignor    the assignor "simple"
    heartbeat   the effect of a member's heartbeat
    offsets     which partitions have state in the share coordinator; describe, alter, delete
    requests    the same as decisions on a shard; SHARE is the kind of group for group/kinds.py
    service     ShareGroupService: routes requests, and initializes state. Does I/O

Before a partition is assigned, its state is initialized in the share coordinator: the partition is
first recorded as initializing, then as initialized, which raises the group's epoch.
"""
