"""What goes wrong with bytes from outside."""


class DecodeError(Exception):
    """Bytes that are not what they claim to be: the connection they came from is closed.

    The only exception that decoding raises, whatever the bytes are.
    """
