"""The storage engine: Kafka's files, segment by segment. `log.py` is what the rest sees.

Owned by the event loop's thread; flushes, recovery and compaction run in threads of their own.
"""
