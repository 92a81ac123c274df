"""Pipelines on Spark: runs a SparkPipeline's job with DataFrames and Structured Streaming.

Layers, each imports only what is below: main > jobs > sources | sinks | session > transforms >
schemas > config. The spec is in odradek_api.pipeline.
"""
