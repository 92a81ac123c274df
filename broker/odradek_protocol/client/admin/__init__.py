"""Admin requests with typed arguments and results; each takes a KafkaClient first.

Functions that change several things return the refused ones, name → BrokerError; an empty dict
means that everything was done. Functions about one thing, and those that only read, raise.
"""
