"""The operator: reconciles KafkaClusters, Topics and SparkPipelines, on Kubernetes or locally."""
