"""A shop whose parts talk through Kafka."""
