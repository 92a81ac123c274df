"""Odradek's broker: Kafka's wire protocol, storage engine and state machines in Python.

The layers and what each may import are in DESIGN.md; `main.py` puts them together.
"""
