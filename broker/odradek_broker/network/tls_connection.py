"""A client connection over TLS: the handshake first, then as every other (`connection.py`).

The socket behaves as a plain one (runtime/tls_socket.py); what differs is here. Ranges of logs are
read and encrypted in this process, so they cannot go by sendfile. The rest of a large frame is
awaited in parts of AWAITED_BYTES, because clients send it in small records.

A handshake has a deadline, and only so many run at a time (`server.py`): the memory of clients that
connect and stay silent is bounded.
"""

import socket
import ssl
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from odradek_broker.log.types import FileRange
from odradek_broker.model.principal import Principal
from odradek_broker.network.connection import Connection
from odradek_broker.runtime.poller import READABLE, WRITABLE
from odradek_broker.runtime.tls_socket import TlsSocket
from odradek_protocol.security.errors import SecurityError

if TYPE_CHECKING:
    from odradek_broker.network.server import Server

HANDSHAKE_FAILED: Final = "TLS handshake failed"
NOT_TRUSTED: Final = "the client's certificate is not accepted"
NOT_TLS: Final = "no TLS"
# The first byte of a TLS connection: a record of type handshake.
HANDSHAKE_RECORD: Final = b"\x16"
# Of the rest of a large frame. A wake-up costs as much as decrypting 20 KB, for both sides. Small
# against the 32 KB that have to arrive in each window of time (receiving.py).
AWAITED_BYTES: Final = 16 * 1024
# While this much is missing, the socket will certainly get AWAITED_BYTES: the memory BIO and
# OpenSSL have at most a record of it each.
AWAIT_FROM_BYTES: Final = 64 * 1024


class TlsConnection(Connection):
    __slots__ = (
        "_awaited",
        "_first_seen",
        "_handshake_wants",
        "_on_pending",
        "_to_principal",
        "_watches_reply",
        "tls",
    )

    def __init__(
        self,
        server: "Server",
        sock: TlsSocket,
        listener: str,
        client_host: str,
        to_principal: Callable[[TlsSocket], Principal],
    ) -> None:
        self.tls = sock
        self._to_principal = to_principal
        self._handshake_wants = "read"  # "" when it is complete
        self._first_seen = False
        self._on_pending = False
        self._awaited = 1  # bytes that make an event
        self._watches_reply = False
        super().__init__(server, sock, listener, client_host)

    def on_ready(self, events: int) -> None:
        if self._handshake_wants:
            self._shake_hands()
            return
        if self._reading and (events & ~WRITABLE or self.tls.read_wants_write):
            self._read()
            self._watch_reply()
            self._await_frame()
        if self._writing and events & ~READABLE and not self.closed:
            super().on_ready(WRITABLE)
        if not self.closed and self._reading and self.tls.pending():
            self._read_later()

    def _watch(self) -> None:
        if not self.closed and self._handshake_wants:
            events = WRITABLE if self._handshake_wants == "write" else READABLE
            self.server.poller.watch(self.sock.fileno(), self, events)
            return
        super()._watch()
        if not self._reading or self.closed:
            return
        if self._watches_reply:
            self.server.poller.watch(self.sock.fileno(), self, READABLE | WRITABLE)
        elif self.tls.pending():  # reading goes on: what has arrived already makes no event
            self._read_later()

    # --- handshake -----------------------------------------------------------------------

    def _shake_hands(self) -> None:
        try:
            if not self._first_seen:
                first = self.tls.peek(1)
                if first and first != HANDSHAKE_RECORD:
                    self.close(
                        f"{NOT_TLS}: a client without TLS on listener {self.listener}, which has "
                        "TLS; set security.protocol of the client"
                    )
                    return
                self._first_seen = True
            wants = self.tls.handshake()
        except BlockingIOError:
            return
        except ssl.SSLCertVerificationError as error:
            self.close(f"{NOT_TRUSTED}: listener {self.listener}: {error.verify_message}")
            return
        except (OSError, ValueError) as error:
            self.close(f"{HANDSHAKE_FAILED}: listener {self.listener}: {_reason(error)}")
            return
        self.last_active_ms = self.server.pass_ms()
        if wants != self._handshake_wants:
            self._handshake_wants = wants
            self._watch()
        if not wants:
            self.server.handshake_ended(self)
            try:
                self.principal = self._to_principal(self.tls)
            except SecurityError as error:
                self.close(f"{NOT_TRUSTED}: listener {self.listener}: {error}")
                return
            self._watch_reply()
            if self.tls.pending():
                self._read_later()

    # --- bytes that are decrypted already ------------------------------------------------

    def _read_later(self) -> None:
        if not self._on_pending:
            self._on_pending = True
            self.server.poller.call_soon(self._read_pending)

    def _read_pending(self) -> None:
        self._on_pending = False
        if not self.closed and self._reading and self.tls.pending():
            self.on_ready(READABLE)

    def _watch_reply(self) -> None:
        """The read waits for a write: TLS has to answer a key update first."""
        if self.tls.read_wants_write != self._watches_reply and not self.closed:
            self._watches_reply = self.tls.read_wants_write
            self._watch()

    def _await_frame(self) -> None:
        """A record of 1 KB makes no event while most of a large frame is missing."""
        frame = self._frame
        awaited = 1
        if frame is not None and frame.size - frame.filled >= AWAIT_FROM_BYTES:
            awaited = AWAITED_BYTES
        if awaited != self._awaited and not self.closed:
            self._awaited = awaited
            self.tls.expect(awaited)

    # --- sending -------------------------------------------------------------------------

    def _send_range(self, part: FileRange) -> int:
        sent = self.tls.send_file(
            part.file.fileno(), part.position + self._progress, part.length - self._progress
        )
        return self._range_sent(part, sent)


def _reason(error: Exception) -> str:
    if isinstance(error, ssl.SSLEOFError | ConnectionError):
        return "closed by the client"
    if isinstance(error, ssl.SSLError):
        return (error.reason or str(error)).replace("_", " ").lower()
    if isinstance(error, socket.error):
        return error.strerror or str(error)
    return str(error)
