"""Bytes on the wire: messages, record batches, compression. Nothing here does I/O."""

from odradek_broker import model as model  # makes kio importable without hypothesis
