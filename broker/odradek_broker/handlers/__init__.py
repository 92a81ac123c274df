"""The handlers of Kafka's APIs: one file per API, `registry.py` is the table."""
