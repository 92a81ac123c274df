"""The test kit: brokers, clusters, load, faults and a Kubernetes control plane for tests.

Tests, the benchmark and the end-to-end suite import it; product packages never do. Everything is
a real process on loopback that a context manager starts and ends:

    from odradek_testkit.cluster import Cluster
    from odradek_testkit.load import Load

    with Cluster(3) as cluster:                          # three brokers, one quorum
        cluster.create_topic("orders", partitions=6)
        with Load(cluster, "orders", partitions=6) as load:
            cluster.kill(cluster.leader("orders", 0))
            load.wait_for_every_partition()
        load.check()                                     # nothing lost, duplicated or reordered

Its modules:

    engines/           one broker: ours (RunningBroker) or Apache Kafka from its Maven artifacts
                       (RunningApacheKafka), and Apache Kafka's command-line tools
    cluster            several of our brokers: kill, pause, restart; leaders, quorum, topics
    clients            produce and consume lists of records with librdkafka
    ask, raw_requests  single requests to one broker: well-formed ones, and arbitrary bytes
    load               producers in the background whose every answer is recorded
    history, checker   that record, and the anomalies in it (lost, duplicate, reordered …)
    faults:            cluster_network and proxy (partitions between brokers), small_disk (a disk
                       that fills up), disk_story (the test that runs on every kind of cluster)
    kubernetes/        programs (etcd, kube-apiserver, kubectl … built from Go modules),
                       control_plane (an API server without kubelets), client (the official Python
                       client), world, fake_kafka and pipeline_world (what stands in for pods)
    launching          processes that end with the test run; brokers are forked, not started
    ports, waiting     free ports; polling with a deadline
    bundles            the certificates in a trust bundle
    pipelines          topics, records and jobs for tests of pipelines
    work               counts executed lines, for tests about complexity
    pytest_plugin      the only module that imports pytest: skips what this machine cannot run
"""
