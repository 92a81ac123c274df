"""Resource types of odradek.dev: KafkaCluster, Topic, SparkPipeline; parser and CRDs."""
