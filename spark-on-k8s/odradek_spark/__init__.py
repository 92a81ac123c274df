"""Pipelines on Spark through PySpark. Not yet: the place is kept."""
