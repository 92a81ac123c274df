"""Kafka's wire protocol: messages of every API, record batches, compression, and a typed client.

`messages/` encodes and decodes requests and responses from kio's schemas, `records/` reads and
builds record batches, `client/` talks to a cluster. Only `client/` does I/O. Broker, operator,
command line, benchmark and tests use this package; it imports none of them.
"""

from odradek_protocol import _compiled

_compiled.use("odradek_protocol", __path__)

from odradek_protocol import _kio_import  # noqa: E402, F401  # before anything imports kio
