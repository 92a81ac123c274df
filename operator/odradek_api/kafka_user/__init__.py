"""KafkaUser: a user of a KafkaCluster with its credentials, ACLs, quotas and Secret."""
