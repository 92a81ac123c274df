"""Abuse of a broker, the same for both engines, and what other clients notice of it (`make abuse`).

A victim (a process of its own with librdkafka) writes a record every few milliseconds with
acks=all. A scenario abuses the brokers for some seconds. What counts is what the victim measured
meanwhile: latency, the longest time without an acknowledgement, errors; and what became of the
brokers: memory, whether they run, whether they serve again afterwards.
"""
