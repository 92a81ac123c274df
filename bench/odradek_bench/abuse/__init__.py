"""Abuse of a broker, the same for both engines, and its effect on another client (`make abuse`).

A victim (a process with librdkafka) writes a record every few milliseconds with acks=all, while a
scenario abuses the brokers for some seconds. The result is what the victim measured in that time
(latency, the longest time without an acknowledgement, errors) and the state of the brokers: memory,
exits, whether they serve again afterwards.
"""
