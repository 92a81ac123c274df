"""Names for the values that every layer passes around. Imports nothing of the layers above."""

from odradek_broker.model import _kio_import  # noqa: F401  # before anything imports kio
