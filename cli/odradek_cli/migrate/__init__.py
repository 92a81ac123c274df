"""`odradek migrate`: from one cluster to another, for example from embedded to Apache Kafka.

    odradek migrate --from old:9092 --to new:9092 --follow      copy, while the source is in use
    odradek migrate --from old:9092 --to new:9092 --cut-over    the last run, after producers and
                                                                consumers have stopped

`clusters` makes topics, `copy` copies records in transactions together with the `state` of each
partition, `verify` reads the destination again and compares counts and checksums, `groups`
translates committed offsets. A run that was killed is repeated: docs/how-to/move-to-apache.md.
"""
