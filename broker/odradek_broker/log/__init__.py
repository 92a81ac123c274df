"""The storage engine: Kafka's files, segment by segment. Other packages use `log.py` and
`manager.py`.

Owned by the event loop's thread; flushes, recovery and compaction run in threads of their own.
"""
