"""SparkPipeline: its spec, rules, status and job file, shared by operator, CLI and Spark driver.

The three programs do not import each other; they agree on these types (spark-on-k8s/adr/0001).
This package needs msgspec and cronsim and nothing else, because Spark's image carries it.
"""
