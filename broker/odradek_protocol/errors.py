"""The error of malformed bytes; errors with a Kafka code are in error_codes.py."""


class DecodeError(Exception):
    """Bytes that cannot be decoded: the connection they came from is closed.

    The only exception that decoding raises, whatever the bytes are.
    """
