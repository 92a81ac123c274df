"""Consumer groups and their offsets. Not yet: the place is kept, clients assign partitions."""
