"""The operator: KafkaCluster and Topic resources become brokers and topics."""
