"""Clients under chaos: one process each, which records what it did and saw until SIGTERM.

    python -m odradek_e2e.chaos.workloads NAME '{"bootstrap": "…", "directory": "…", …}'

    writers    idempotent producers, consecutive numbers per producer and partition
    readers    followers of the same topics, one of them from the nearest replica
    bank       transactions of two records; some aborted on purpose
    lists      transactions that read and append
    copying    consume, transform, produce: exactly once, in a group
    members    groups that commit offsets, whose members come and go
    keys       a key-value model on a compacted topic
    watch      offsets of every partition and group, as the brokers report them
    admin      reassignments, elections, DeleteRecords, topics that come and go under one name
    java       Apache Kafka's own VerifiableProducer
    final      reads everything once, when all faults are over

All of them are unmodified librdkafka (but for `java`), with its defaults for retries.
"""
