"""The methods of a non-blocking socket that connections use: of a plain one or of one with TLS."""

from collections.abc import Sequence
from typing import Any, Protocol


class ByteStream(Protocol):
    """A `socket.socket`, or a TlsSocket (tls_socket.py). BlockingIOError: not now."""

    def fileno(self) -> int: ...

    def recv(self, buflen: int, /) -> bytes: ...

    def recv_into(self, buffer: Any, nbytes: int = 0, /) -> int: ...

    def send(self, data: Any, /) -> int: ...

    def sendmsg(
        self, buffers: Sequence[Any], ancdata: Sequence[Any] = (), flags: int = 0, /
    ) -> int: ...

    def close(self) -> None: ...
