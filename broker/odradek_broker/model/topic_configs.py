"""The table of every topic setting of Apache Kafka 4.3, one per line.

The same format as `model/broker_configs.py`, but the last column is the broker setting with the
default of the topic setting:

    + retention.ms  long  604800000  -1..  log.retention.ms
"""

TOPIC_CONFIGS_TEXT = """
+ segment.bytes                   int     1073741824 1048576..   log.segment.bytes
+ segment.ms                      long    604800000  1..         log.roll.ms
+ segment.jitter.ms               long    0          0..         log.roll.jitter.ms
+ segment.index.bytes             int     10485760   4..         log.index.size.max.bytes
+ flush.messages                  long    LONG_MAX   1..         log.flush.interval.messages
+ flush.ms                        long    LONG_MAX   0..         log.flush.interval.ms
+ retention.bytes                 long    -1         -           log.retention.bytes
+ retention.ms                    long    604800000  -1..        log.retention.ms
+ max.message.bytes               int     1048588    0..         message.max.bytes
+ index.interval.bytes            int     4096       0..         log.index.interval.bytes
+ delete.retention.ms             long    86400000   0..         log.cleaner.delete.retention.ms
+ min.compaction.lag.ms           long    0          0..         log.cleaner.min.compaction.lag.ms
+ max.compaction.lag.ms           long    LONG_MAX   1..         log.cleaner.max.compaction.lag.ms
+ file.delete.delay.ms            long    60000      0..         log.segment.delete.delay.ms
+ min.cleanable.dirty.ratio       double  0.5        0..1        log.cleaner.min.cleanable.ratio
+ cleanup.policy                  list    delete     compact|delete log.cleanup.policy
+ unclean.leader.election.enable  boolean false      -           unclean.leader.election.enable
+ min.insync.replicas             int     1          1..         min.insync.replicas
+ compression.type                string  producer   uncompressed|zstd|lz4|snappy|gzip|producer compression.type
+ compression.gzip.level          int     -1         1..9|-1     compression.gzip.level
+ compression.lz4.level           int     9          1..17       compression.lz4.level
+ compression.zstd.level          int     3          -131072..22 compression.zstd.level
+ preallocate                     boolean false      -           log.preallocate
+ message.timestamp.type          string  CreateTime CreateTime|LogAppendTime log.message.timestamp.type
+ message.timestamp.before.max.ms long    LONG_MAX   0..         log.message.timestamp.before.max.ms
+ message.timestamp.after.max.ms  long    3600000    0..         log.message.timestamp.after.max.ms
+ leader.replication.throttled.replicas list ""      throttled   -
+ follower.replication.throttled.replicas list ""    throttled   -
- remote.storage.enable           boolean false      -           -
- local.retention.ms              long    -2         -2..        log.local.retention.ms
- local.retention.bytes           long    -2         -2..        log.local.retention.bytes
- remote.log.copy.disable         boolean false      -           -
- remote.log.delete.on.disable    boolean false      -           -
+ internal.segment.bytes          int     null       -           -
"""  # noqa: E501
