"""Limits and fixed ports of a KafkaCluster."""

BROKERS_MAX = 1000
LISTENERS_MAX = 8
CONTROLLER_PORT = 9093  # of engine apache on Kubernetes, between its nodes only
CONTROLLER_TLS_PORT = 9090  # the same in a cluster with TLS
REPLICATION_PORT = 9091  # on Kubernetes, between brokers and for the operator, if there is TLS
