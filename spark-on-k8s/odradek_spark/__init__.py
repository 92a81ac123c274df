"""Pipelines on Spark: a declared spec becomes DataFrames and Structured Streaming queries.

Layers, each imports only what is below: main > jobs > sources | sinks | session > transforms >
schemas > config. The spec itself is odradek_api.pipeline's.
"""
