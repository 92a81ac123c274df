"""What the broker does for each Kafka API: one file per API, `registry.py` is the table."""
