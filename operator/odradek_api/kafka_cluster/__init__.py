"""KafkaCluster: its spec, the rules between its fields, and its status."""
