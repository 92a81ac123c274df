"""SparkPipeline's spec, written once: what the operator, the command line and Spark agree on.

The three programs know nothing of each other; this package is the sentence they share, and knows
none of them (spark-on-k8s/adr/0001). It needs msgspec and nothing else.
"""
