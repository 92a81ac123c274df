"""KafkaRebalance: a proposal that balances a KafkaCluster, its approval and its progress."""
