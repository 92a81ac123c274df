"""Odradek's broker: Kafka's storage engine and state machines in Python.

The layers and what each may import are in DESIGN.md; `broker.py` puts them together. The wire
protocol is a package of its own, odradek_protocol.
"""

from odradek_protocol import _compiled

_compiled.use("odradek_broker", __path__)
