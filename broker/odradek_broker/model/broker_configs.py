"""The table of every broker setting of Apache Kafka 4.3, one per line.

One table, although it is long: a setting is found in one place. Read by `model/config_table.py`. A
line is

    + log.retention.hours  int  168  -  ro
    | name                 type default valid how it is updated

`+`: Odradek honours it. `-`: it is known, but has no effect (a warning at start says so).
Valid: `1..9` a range of numbers (both ends included, either may be left out), `1..9|-1` that range
or one other value, `a|b` one of these words (each element of a list), `~a|b` the same in any case,
`nonempty`, or `-` for every value of the type. LONG_MAX and INT_MAX stand for their numbers.
Update: `ro` at start only, `broker` dynamically for one broker, `cluster` dynamically for one
broker or for all. Defaults that are Java classes are `null` here; `node.id` and `process.roles`
have a default so that a single node starts without a file.
"""

BROKER_CONFIGS_TEXT = """
# Identity and roles
+ broker.id                        int     -1                -                 ro
+ config.providers                 list    ""                -                 cluster
- early.start.listeners            list    null              -                 ro
+ broker.rack                      string  null              -                 ro
+ controlled.shutdown.enable       boolean true              -                 ro
- unstable.api.versions.enable     boolean false             -                 ro
- unstable.feature.versions.enable boolean false             -                 ro
+ process.roles                    list    broker,controller broker|controller ro
+ node.id                          int     1                 0..               ro
- server.max.startup.time.ms       long    LONG_MAX          0..               ro
# Listeners and connections
- num.io.threads                            int    8                 1.. cluster
- background.threads                        int    10                1.. cluster
+ request.timeout.ms                        int    30000             -   ro
- socket.connection.setup.timeout.ms        long   10000             -   ro
- socket.connection.setup.timeout.max.ms    long   30000             -   ro
+ controller.listener.names                 list   ""                -   ro
+ listeners                                 list   PLAINTEXT://:9092 -   broker
+ advertised.listeners                      list   null              -   ro
+ listener.security.protocol.map            string SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT - broker
+ socket.send.buffer.bytes                  int    102400            -   ro
+ socket.receive.buffer.bytes               int    102400            -   ro
+ socket.request.max.bytes                  int    104857600         1.. ro
+ socket.listen.backlog.size                int    50                1.. ro
+ max.connections.per.ip                    int    INT_MAX           0.. cluster
+ max.connections.per.ip.overrides          string ""                -   cluster
+ max.connections                           int    INT_MAX           0.. cluster
+ max.connection.creation.rate              int    INT_MAX           0.. cluster
+ connections.max.idle.ms                   long   600000            -   ro
+ connection.failed.authentication.delay.ms int    100               0.. ro
- queued.max.requests                       int    500               1.. ro
+ queued.max.request.bytes                  long   -1                -   ro
- num.network.threads                       int    3                 1.. cluster
+ security.inter.broker.protocol            string PLAINTEXT         PLAINTEXT|SSL|SASL_PLAINTEXT|SASL_SSL ro
+ inter.broker.listener.name                string null              -   ro
# Topics
+ message.max.bytes                   int     1048588  0..         cluster
+ delete.topic.enable                 boolean true     -           ro
+ compression.type                    string  producer uncompressed|zstd|lz4|snappy|gzip|producer cluster
+ compression.gzip.level              int     -1       1..9|-1     cluster
+ compression.lz4.level               int     9        1..17       cluster
+ compression.zstd.level              int     3        -131072..22 cluster
+ default.replication.factor          int     1        -           ro
+ unclean.leader.election.interval.ms long    300000   1..         ro
+ unclean.leader.election.enable      boolean false    -           cluster
+ num.partitions                      int     1        1..         ro
+ auto.create.topics.enable           boolean true     -           ro
+ min.insync.replicas                 int     1        1..         cluster
- create.topic.policy.class.name      class   null     -           ro
- alter.config.policy.class.name      class   null     -           ro
# Logs: directories, segments, retention, flush
- num.replica.alter.log.dirs.threads            int     null            -              ro
+ log.dir                                       list    /tmp/kafka-logs -              ro
+ log.dirs                                      list    null            -              ro
- cordoned.log.dirs                             list    ""              -              broker
+ log.segment.bytes                             int     1073741824      1048576..      cluster
+ log.roll.ms                                   long    null            -              cluster
+ log.roll.hours                                int     168             1..            ro
+ log.roll.jitter.ms                            long    null            -              cluster
+ log.roll.jitter.hours                         int     0               0..            ro
+ log.retention.ms                              long    null            -              cluster
+ log.retention.minutes                         int     null            -              ro
+ log.retention.hours                           int     168             -              ro
+ log.retention.bytes                           long    -1              -              cluster
+ log.retention.check.interval.ms               long    300000          1..            ro
+ log.cleanup.policy                            list    delete          compact|delete cluster
+ log.index.size.max.bytes                      int     10485760        4..            cluster
+ log.index.interval.bytes                      int     4096            0..            cluster
+ log.flush.interval.messages                   long    LONG_MAX        1..            cluster
+ log.segment.delete.delay.ms                   long    60000           0..            cluster
+ log.flush.scheduler.interval.ms               long    LONG_MAX        -              ro
+ log.flush.interval.ms                         long    null            -              cluster
+ log.flush.offset.checkpoint.interval.ms       int     60000           0..            ro
+ log.flush.start.offset.checkpoint.interval.ms int     60000           0..            ro
+ log.preallocate                               boolean false           -              cluster
+ num.recovery.threads.per.data.dir             int     2               1..            cluster
+ log.message.timestamp.type                    string  CreateTime      CreateTime|LogAppendTime cluster
+ log.message.timestamp.before.max.ms           long    LONG_MAX        0..            cluster
+ log.message.timestamp.after.max.ms            long    3600000         0..            cluster
- log.dir.failure.timeout.ms                    long    30000           1..            ro
- log.initial.task.delay.ms                     long    30000           0..            ro
# Logs: compaction
+ log.cleaner.threads                 int     1                      0..  cluster
+ log.cleaner.io.max.bytes.per.second double  1.7976931348623157E308 -    cluster
+ log.cleaner.dedupe.buffer.size      long    134217728              -    cluster
+ log.cleaner.io.buffer.size          int     524288                 0..  cluster
+ log.cleaner.io.buffer.load.factor   double  0.9                    -    cluster
+ log.cleaner.backoff.ms              long    15000                  0..  cluster
+ log.cleaner.min.cleanable.ratio     double  0.5                    0..1 cluster
+ log.cleaner.enable                  boolean true                   -    ro
+ log.cleaner.delete.retention.ms     long    86400000               0..  cluster
+ log.cleaner.min.compaction.lag.ms   long    0                      0..  cluster
+ log.cleaner.max.compaction.lag.ms   long    LONG_MAX               1..  cluster
# Fetch
+ max.incremental.fetch.session.cache.slots        int 1000     0..    ro
+ fetch.max.bytes                                  int 57671680 1024.. ro
+ max.request.partition.size.limit                 int 2000     1..    ro
- fetch.purgatory.purge.interval.requests          int 1000     -      ro
- producer.purgatory.purge.interval.requests       int 1000     -      ro
- delete.records.purgatory.purge.interval.requests int 1        -      ro
- share.fetch.purgatory.purge.interval.requests    int 1000     -      ro
# Replication
+ replica.lag.time.max.ms                        long    30000    -   ro
+ replica.socket.timeout.ms                      int     30000    -   ro
- replica.socket.receive.buffer.bytes            int     65536    -   ro
+ replica.fetch.max.bytes                        int     1048576  0.. ro
+ replica.fetch.wait.max.ms                      int     500      -   ro
+ replica.fetch.backoff.ms                       int     1000     0.. ro
+ replica.fetch.min.bytes                        int     1        -   ro
+ replica.fetch.response.max.bytes               int     10485760 0.. ro
- num.replica.fetchers                           int     1        1.. cluster
+ replica.high.watermark.checkpoint.interval.ms  long    5000     -   ro
+ auto.leader.rebalance.enable                   boolean true     -   ro
+ leader.imbalance.check.interval.seconds        long    300      1.. ro
+ replica.selector.class                         string  null     -   ro
- follower.fetch.last.tiered.offset.enable       boolean false    -   cluster
+ replica.alter.log.dirs.io.max.bytes.per.second long    null     0.. cluster
+ leader.replication.throttled.rate              long    null     0.. cluster
+ follower.replication.throttled.rate            long    null     0.. cluster
# Controller, quorum, broker life cycle
- initial.broker.registration.timeout.ms         int     60000   -        ro
+ broker.heartbeat.interval.ms                   int     500     -        ro
+ broker.session.timeout.ms                      int     2500    -        ro
+ sasl.mechanism.controller.protocol             string  GSSAPI  -        ro
- controller.performance.sample.period.ms        long    60000   100..    ro
- controller.performance.always.log.threshold.ms long    2000    0..      ro
- controller.socket.timeout.ms                   int     30000   -        ro
+ controller.quorum.voters                       list    ""      nonempty ro
+ controller.quorum.bootstrap.servers            list    ""      nonempty ro
+ controller.quorum.election.timeout.ms          int     1000    0..      ro
+ controller.quorum.fetch.timeout.ms             int     2000    0..      ro
+ controller.quorum.election.backoff.max.ms      int     1000    0..      ro
- controller.quorum.append.linger.ms             int     25      0..      ro
+ controller.quorum.request.timeout.ms           int     2000    0..      ro
+ controller.quorum.retry.backoff.ms             int     20      0..      ro
- controller.quorum.auto.join.enable             boolean false   -        ro
+ controller.quorum.fetch.snapshot.max.bytes     int     1048576 1..      ro
+ controller.quorum.fetch.max.bytes              int     1048576 1..      ro
# Metadata log
+ metadata.log.max.record.bytes.between.snapshots long   20971520   1..       ro
+ metadata.log.max.snapshot.interval.ms           long   3600000    0..       ro
+ metadata.log.dir                                string null       -         ro
+ metadata.log.segment.bytes                      int    1073741824 8388608.. ro
+ metadata.log.segment.ms                         long   604800000  -         ro
- metadata.max.retention.bytes                    long   104857600  -         ro
- metadata.max.retention.ms                       long   604800000  -         ro
- metadata.max.idle.interval.ms                   int    500        0..       ro
- internal.metadata.log.segment.bytes             int    null       -         ro
- internal.metadata.max.batch.size.in.bytes       int    8388608    -         ro
- internal.metadata.delete.delay.millis           long   60000      -         ro
# Groups
+ group.coordinator.rebalance.protocols     list  classic,consumer,streams consumer|classic|share|streams ro
- group.coordinator.threads                 int   4                        1..      ro
- group.coordinator.background.threads      int   2                        1..      ro
- group.coordinator.append.linger.ms        int   -1                       -1..     ro
+ offsets.commit.timeout.ms                 int   5000                     1..      ro
- offsets.load.buffer.size                  int   5242880                  1..      ro
+ offsets.topic.replication.factor          short 3                        1..      ro
+ offsets.topic.num.partitions              int   50                       1..      ro
+ offsets.topic.segment.bytes               int   104857600                1..      ro
+ offsets.topic.compression.codec           int   0                        -        ro
- group.coordinator.cached.buffer.max.bytes int   1048588                  524288.. cluster
+ offset.metadata.max.bytes                 int   4096                     -        ro
+ offsets.retention.minutes                 int   10080                    1..      ro
+ offsets.retention.check.interval.ms       long  600000                   1..      ro
+ group.min.session.timeout.ms              int   6000                     -        ro
+ group.max.session.timeout.ms              int   1800000                  -        ro
+ group.initial.rebalance.delay.ms          int   3000                     -        ro
+ group.max.size                            int   INT_MAX                  1..      ro
# Groups: consumer protocol
+ group.consumer.session.timeout.ms         int    45000         1..     ro
+ group.consumer.min.session.timeout.ms     int    45000         1..     ro
+ group.consumer.max.session.timeout.ms     int    60000         1..     ro
+ group.consumer.heartbeat.interval.ms      int    5000          1..     ro
+ group.consumer.min.heartbeat.interval.ms  int    5000          1..     ro
+ group.consumer.max.heartbeat.interval.ms  int    15000         1..     ro
+ group.consumer.max.size                   int    INT_MAX       1..     ro
+ group.consumer.assignors                  list   uniform,range -       ro
+ group.consumer.migration.policy           string bidirectional ~DISABLED|DOWNGRADE|UPGRADE|BIDIRECTIONAL ro
+ group.consumer.assignment.interval.ms     int    1000          0..     cluster
+ group.consumer.min.assignment.interval.ms int    0             0..     ro
+ group.consumer.max.assignment.interval.ms int    15000         0..     ro
+ group.consumer.regex.refresh.interval.ms  int    600000        10000.. ro
# Groups: streams protocol
+ group.streams.session.timeout.ms         int 45000   1.. ro
+ group.streams.min.session.timeout.ms     int 45000   1.. ro
+ group.streams.max.session.timeout.ms     int 60000   1.. ro
+ group.streams.heartbeat.interval.ms      int 5000    1.. ro
+ group.streams.min.heartbeat.interval.ms  int 5000    1.. ro
+ group.streams.max.heartbeat.interval.ms  int 15000   1.. ro
+ group.streams.max.size                   int INT_MAX 1.. ro
+ group.streams.num.standby.replicas       int 0       0.. ro
+ group.streams.max.standby.replicas       int 2       0.. ro
+ group.streams.initial.rebalance.delay.ms int 3000    0.. ro
+ group.streams.assignment.interval.ms     int 1000    0.. cluster
+ group.streams.min.assignment.interval.ms int 0       0.. ro
+ group.streams.max.assignment.interval.ms int 15000   0.. ro
# Groups: share
+ group.share.session.timeout.ms                         int    45000     1..            ro
+ group.share.min.session.timeout.ms                     int    45000     1..            ro
+ group.share.max.session.timeout.ms                     int    60000     1..            ro
+ group.share.heartbeat.interval.ms                      int    5000      1..            ro
+ group.share.min.heartbeat.interval.ms                  int    5000      1..            ro
+ group.share.max.heartbeat.interval.ms                  int    15000     1..            ro
+ group.share.max.size                                   int    200       1..1000        ro
- group.share.assignors                                  list   simple    -              ro
+ group.share.assignment.interval.ms                     int    1000      0..            cluster
+ group.share.min.assignment.interval.ms                 int    0         0..            ro
+ group.share.max.assignment.interval.ms                 int    15000     0..            ro
+ group.share.initialize.retry.interval.ms               int    30000     1..            ro
+ group.share.delivery.count.limit                       int    5         2..10          ro
+ group.share.max.delivery.count.limit                   int    10        5..25          ro
+ group.share.min.delivery.count.limit                   int    2         2..5           ro
+ group.share.record.lock.duration.ms                    int    30000     1000..3600000  ro
+ group.share.min.record.lock.duration.ms                int    15000     1000..30000    ro
+ group.share.max.record.lock.duration.ms                int    60000     30000..3600000 ro
+ group.share.partition.max.record.locks                 int    2000      100..10000     ro
+ group.share.max.partition.max.record.locks             int    4000      2000..10000    ro
+ group.share.min.partition.max.record.locks             int    100       100..2000      ro
+ group.share.max.share.sessions                         int    2000      1..            ro
- group.share.persister.class.name                       string null      -              ro
+ share.coordinator.state.topic.num.partitions           int    50        1..            ro
+ share.coordinator.state.topic.replication.factor       short  3         1..            ro
+ share.coordinator.state.topic.min.isr                  short  2         1..            ro
+ share.coordinator.state.topic.segment.bytes            int    104857600 1..            ro
- share.coordinator.threads                              int    1         1..            ro
+ share.coordinator.snapshot.update.records.per.snapshot int    500       0..500         ro
- share.coordinator.load.buffer.size                     int    5242880   1..            ro
+ share.coordinator.state.topic.compression.codec        int    0         -              ro
- share.coordinator.append.linger.ms                     int    -1        -1..           ro
+ share.coordinator.write.timeout.ms                     int    5000      1..            ro
+ share.coordinator.state.topic.prune.interval.ms        int    300000    1..            ro
+ share.coordinator.cold.partition.snapshot.interval.ms  int    300000    1..            ro
- share.coordinator.cached.buffer.max.bytes              int    1048588   524288..       cluster
# Producers and transactions
+ transaction.state.log.min.isr                               int     2         1.. ro
- transaction.state.log.load.buffer.size                      int     5242880   1.. ro
+ transaction.state.log.replication.factor                    short   3         1.. ro
+ transaction.state.log.num.partitions                        int     50        1.. ro
+ transaction.state.log.segment.bytes                         int     104857600 1.. ro
+ transaction.partition.verification.enable                   boolean true      -   cluster
+ producer.id.expiration.ms                                   int     86400000  1.. cluster
- producer.id.expiration.check.interval.ms                    int     600000    1.. ro
+ transactional.id.expiration.ms                              int     604800000 1.. ro
+ transaction.max.timeout.ms                                  int     900000    1.. ro
+ transaction.abort.timed.out.transaction.cleanup.interval.ms int     10000     1.. ro
+ transaction.remove.expired.transaction.cleanup.interval.ms  int     3600000   1.. ro
- transaction.two.phase.commit.enable                         boolean false     -   ro
+ add.partitions.to.txn.retry.backoff.max.ms                  int     100       0.. ro
+ add.partitions.to.txn.retry.backoff.ms                      int     20        1.. ro
# Quotas
- remote.log.manager.copy.quota.window.num             int   11   1.. ro
- remote.log.manager.copy.quota.window.size.seconds    int   1    1.. ro
- remote.log.manager.fetch.quota.window.num            int   11   1.. ro
- remote.log.manager.fetch.quota.window.size.seconds   int   1    1.. ro
+ quota.window.num                                     int   11   1.. ro
- replication.quota.window.num                         int   11   1.. ro
- alter.log.dirs.replication.quota.window.num          int   11   1.. ro
+ controller.quota.window.num                          int   11   1.. ro
+ quota.window.size.seconds                            int   1    1.. ro
- replication.quota.window.size.seconds                int   1    1.. ro
- alter.log.dirs.replication.quota.window.size.seconds int   1    1.. ro
+ controller.quota.window.size.seconds                 int   1    1.. ro
- client.quota.callback.class                          class null -   ro
# Metrics
- metrics.num.samples                 int    2       1.. ro
- metrics.sample.window.ms            long   30000   1.. ro
- metric.reporters                    list   null    -   cluster
- metrics.recording.level             string INFO    -   ro
- kafka.metrics.reporters             list   ""      -   ro
- kafka.metrics.polling.interval.secs int    10      1.. ro
+ telemetry.max.bytes                 int    1048576 1.. ro
# Tiered storage
- remote.log.storage.system.enable               boolean false        -        ro
- remote.log.storage.manager.impl.prefix         string  rsm.config.  nonempty ro
- remote.log.metadata.manager.impl.prefix        string  rlmm.config. nonempty ro
- remote.log.storage.manager.class.name          string  null         nonempty ro
- remote.log.storage.manager.class.path          string  null         -        ro
- remote.log.metadata.manager.class.name         string  null         nonempty ro
- remote.log.metadata.manager.class.path         string  null         -        ro
- remote.log.metadata.manager.listener.name      string  null         nonempty ro
- remote.log.metadata.custom.metadata.max.bytes  int     128          0..      ro
- remote.log.index.file.cache.total.size.bytes   long    1073741824   1..      cluster
- remote.log.index.file.cache.ttl.ms             long    900000       -1..     ro
- remote.log.manager.thread.pool.size            int     2            1..      ro
- remote.log.manager.copier.thread.pool.size     int     10           1..      cluster
- remote.log.manager.expiration.thread.pool.size int     10           1..      cluster
- remote.log.manager.follower.thread.pool.size   int     2            1..      cluster
- remote.log.manager.task.interval.ms            long    30000        1..      ro
- remote.log.manager.task.retry.backoff.ms       long    500          1..      ro
- remote.log.manager.task.retry.backoff.max.ms   long    30000        1..      ro
- remote.log.manager.task.retry.jitter           double  0.2          0..0.5   ro
- remote.log.reader.threads                      int     10           1..      cluster
- remote.log.reader.max.pending.tasks            int     100          1..      ro
- log.local.retention.ms                         long    -2           -2..     cluster
- log.local.retention.bytes                      long    -2           -2..     cluster
- remote.log.manager.copy.max.bytes.per.second   long    LONG_MAX     1..      cluster
- remote.log.manager.fetch.max.bytes.per.second  long    LONG_MAX     1..      cluster
- remote.fetch.max.wait.ms                       int     500          1..      cluster
- remote.list.offsets.request.timeout.ms         long    30000        1..      cluster
# Security: TLS
+ ssl.client.auth                       string   none            required|requested|none broker
+ ssl.principal.mapping.rules           string   DEFAULT         - ro
- ssl.allow.dn.changes                  boolean  false           - ro
- ssl.allow.san.changes                 boolean  false           - ro
- ssl.protocol                          string   TLSv1.3         - broker
- ssl.provider                          string   null            - broker
+ ssl.enabled.protocols                 list     TLSv1.2,TLSv1.3 - broker
+ ssl.keystore.type                     string   JKS             - broker
+ ssl.keystore.location                 string   null            - broker
+ ssl.keystore.password                 password null            - broker
+ ssl.key.password                      password null            - broker
+ ssl.keystore.key                      password null            - broker
+ ssl.keystore.certificate.chain        password null            - broker
+ ssl.truststore.type                   string   JKS             - broker
+ ssl.truststore.location               string   null            - broker
+ ssl.truststore.password               password null            - broker
+ ssl.truststore.certificates           password null            - broker
- ssl.keymanager.algorithm              string   SunX509         - broker
- ssl.trustmanager.algorithm            string   PKIX            - broker
+ ssl.endpoint.identification.algorithm string   https           - broker
- ssl.secure.random.implementation      string   null            - broker
+ ssl.cipher.suites                     list     ""              - broker
- ssl.engine.factory.class              class    null            - broker
# Security: SASL
+ connections.max.reauth.ms                           long     0              -            ro
+ sasl.server.max.receive.size                        int      524288         -            ro
+ sasl.mechanism.inter.broker.protocol                string   GSSAPI         -            broker
+ sasl.enabled.mechanisms                             list     GSSAPI         -            broker
- sasl.server.callback.handler.class                  class    null           -            ro
- sasl.kerberos.principal.to.local.rules              list     DEFAULT        -            broker
+ sasl.jaas.config                                    password null           -            broker
- sasl.client.callback.handler.class                  class    null           -            ro
- sasl.login.class                                    class    null           -            ro
- sasl.login.callback.handler.class                   class    null           -            ro
- sasl.kerberos.service.name                          string   null           -            broker
- sasl.kerberos.kinit.cmd                             string   /usr/bin/kinit -            broker
- sasl.kerberos.ticket.renew.window.factor            double   0.8            -            broker
- sasl.kerberos.ticket.renew.jitter                   double   0.05           -            broker
- sasl.kerberos.min.time.before.relogin               long     60000          -            broker
- sasl.login.refresh.window.factor                    double   0.8            -            broker
- sasl.login.refresh.window.jitter                    double   0.05           -            broker
- sasl.login.refresh.min.period.seconds               short    60             -            broker
- sasl.login.refresh.buffer.seconds                   short    300            -            broker
- sasl.login.connect.timeout.ms                       int      null           -            ro
- sasl.login.read.timeout.ms                          int      null           -            ro
- sasl.login.retry.backoff.max.ms                     long     10000          -            ro
- sasl.login.retry.backoff.ms                         long     100            -            ro
- sasl.oauthbearer.jwt.retriever.class                class    null           -            ro
- sasl.oauthbearer.jwt.validator.class                class    null           -            ro
+ sasl.oauthbearer.scope                              string   null           -            ro
+ sasl.oauthbearer.client.credentials.client.id       string   null           -            ro
+ sasl.oauthbearer.client.credentials.client.secret   password null           -            ro
- sasl.oauthbearer.assertion.algorithm                string   RS256          ~ES256|RS256 ro
- sasl.oauthbearer.assertion.claim.aud                string   null           -            ro
- sasl.oauthbearer.assertion.claim.exp.seconds        int      300            0..86400     ro
- sasl.oauthbearer.assertion.claim.iss                string   null           -            ro
- sasl.oauthbearer.assertion.claim.jti.include        boolean  false          -            ro
- sasl.oauthbearer.assertion.claim.nbf.seconds        int      60             0..3600      ro
- sasl.oauthbearer.assertion.claim.sub                string   null           -            ro
- sasl.oauthbearer.assertion.file                     string   null           -            ro
- sasl.oauthbearer.assertion.private.key.file         string   null           -            ro
- sasl.oauthbearer.assertion.private.key.passphrase   password null           -            ro
- sasl.oauthbearer.assertion.template.file            string   null           -            ro
- sasl.oauthbearer.scope.claim.name                   string   scope          -            ro
+ sasl.oauthbearer.sub.claim.name                     string   sub            -            ro
+ sasl.oauthbearer.token.endpoint.url                 string   null           -            ro
+ sasl.oauthbearer.jwks.endpoint.url                  string   null           -            ro
+ sasl.oauthbearer.jwks.endpoint.refresh.ms           long     3600000        -            ro
- sasl.oauthbearer.jwks.endpoint.retry.backoff.ms     long     100            -            ro
- sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms long     10000          -            ro
+ sasl.oauthbearer.clock.skew.seconds                 int      30             -            ro
+ sasl.oauthbearer.expected.audience                  list     ""             -            ro
+ sasl.oauthbearer.expected.issuer                    string   null           -            ro
# Security: other
+ authorizer.class.name                     string   ""        |org.apache.kafka.metadata.authorizer.StandardAuthorizer ro
- security.providers                        string   null      -   ro
- principal.builder.class                   class    null      -   broker
+ delegation.token.secret.key               password null      -   ro
+ delegation.token.max.lifetime.ms          long     604800000 1.. ro
+ delegation.token.expiry.time.ms           long     86400000  1.. ro
+ delegation.token.expiry.check.interval.ms long     3600000   1.. ro
# Odradek's own
+ odradek.add.scram.file string "" - ro
+ odradek.admin.listener string 127.0.0.1:0 -        ro
+ odradek.cluster.id     string null        nonempty ro
+ odradek.controlled.shutdown.timeout.ms int 30000 0.. ro
+ odradek.inter.broker.listener.names list "" - ro
+ odradek.leader.imbalance.per.broker.percentage int 0 0..100 ro
+ odradek.log.dir.reserve.bytes long 67108864 0.. ro
+ odradek.quorum.auto.join.enable boolean true - cluster
+ odradek.request.receive.timeout.ms int 30000 1.. ro
+ odradek.sasl.oauthbearer.unsecured.enable boolean false - ro
+ odradek.ssl.handshake.timeout.ms int 10000 1.. ro
+ odradek.ssl.reload.interval.ms int 10000 10.. ro
"""  # noqa: E501

# Settings that DescribeConfigs shows only if they are set.
INTERNAL_BROKER_CONFIGS = frozenset(
    [
        "controller.performance.always.log.threshold.ms",
        "controller.performance.sample.period.ms",
        "follower.replication.throttled.rate",
        "group.consumer.regex.refresh.interval.ms",
        "group.share.initialize.retry.interval.ms",
        "group.share.persister.class.name",
        "internal.metadata.delete.delay.millis",
        "internal.metadata.log.segment.bytes",
        "internal.metadata.max.batch.size.in.bytes",
        "leader.replication.throttled.rate",
        "log.initial.task.delay.ms",
        "producer.id.expiration.check.interval.ms",
        "remote.log.index.file.cache.ttl.ms",
        "remote.log.manager.task.retry.backoff.max.ms",
        "remote.log.manager.task.retry.backoff.ms",
        "remote.log.manager.task.retry.jitter",
        "replica.alter.log.dirs.io.max.bytes.per.second",
        "server.max.startup.time.ms",
        "share.coordinator.cold.partition.snapshot.interval.ms",
        "share.coordinator.state.topic.prune.interval.ms",
        "unclean.leader.election.interval.ms",
        "unstable.api.versions.enable",
        "unstable.feature.versions.enable",
    ]
)
