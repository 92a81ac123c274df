"""kafka-python 3.0 leaves the socket of a failed connection open until the garbage collector
finds it. An operator asks for brokers that restart all day: here such a socket is closed at once.

`install()` replaces the one method that opens sockets; called by kafka_admin.py when it is
imported. It can go when kafka-python closes them itself.
"""

from __future__ import annotations

import socket
from typing import Any

from kafka.net.inet import KafkaNetSocket

_connect = KafkaNetSocket.connect


async def _connect_or_close(self: Any, net: Any, addrinfo: Any, *args: Any, **kwargs: Any) -> Any:
    opened: list[socket.socket] = []

    def open_socket(*how: Any) -> socket.socket:
        opened.append(socket.socket(*how))
        return opened[0]

    self.socket = open_socket
    try:
        return await _connect(self, net, addrinfo, *args, **kwargs)
    except BaseException:
        for sock in opened:
            sock.close()
        raise


def install() -> None:
    KafkaNetSocket.connect = _connect_or_close
