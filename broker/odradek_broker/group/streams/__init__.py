"""Groups of the streams protocol (KIP-1071): the coordinator plans tasks for Kafka Streams.

Members send the topology of their application once. The coordinator checks its topics, says which
internal ones are missing, and assigns tasks (a subtopology and a partition) instead of partitions:
active ones that process, and standby ones that only keep a copy of the state.

    tasks       sets of tasks: active, standby, warm-up
    topology    the application's subtopologies, as members send them and as records keep them
    topics      the topology and the cluster's topics → tasks, missing topics, or an error
    member      a member, and the tasks that it has or must give back
    group       a group: members, topology, target assignment, epochs; only `replay` changes it
    records     Kafka's records of it in `__consumer_offsets`, keys 17 and 19–23
    assignor    sticky: tasks stay where they are as far as the balance allows
    reconcile   one member's next step towards its target: the table of member states
    context     the inputs of a decision besides the group, and its result
    heartbeat   StreamsGroupHeartbeat: join, stay, leave
    endpoints   which partitions are at which instance, for interactive queries
    describe    StreamsGroupDescribe
    requests    the same as decisions on a shard; STREAMS is the kind of group for group/kinds.py
    service     StreamsGroupService: routes requests to the shard of the group
"""
