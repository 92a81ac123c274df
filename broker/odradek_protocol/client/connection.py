"""One connection to one broker: frames, correlation ids, versions, time limits.

    connection = Connection(Address("localhost", 9092), ClientSettings())
    answer = connection.call(ApiKey.METADATA, Struct(topics=None), Deadline(5.0))

The pool (pool.py) opens connections and closes those on which a call failed. A call writes one
frame and waits for its answer; a lock serialises the calls of several threads.
"""

from __future__ import annotations

import select
import socket
import struct
import threading

from odradek_protocol.client.deadline import Deadline
from odradek_protocol.client.errors import (
    AnswerTimeoutError,
    DisconnectedError,
    UnreachableError,
    UnreadableAnswerError,
)
from odradek_protocol.client.settings import Address, ClientSettings
from odradek_protocol.client.versions import SOFTWARE, Versions
from odradek_protocol.error_codes import ErrorCode
from odradek_protocol.errors import DecodeError
from odradek_protocol.messages.api import decode_response, encode_request
from odradek_protocol.messages.api_keys import ApiKey
from odradek_protocol.messages.headers import request_header, response_header, supported_versions
from odradek_protocol.messages.struct import Struct

# Metadata of 200,000 partitions has 20 MB. A larger size means that the peer is no Kafka broker.
ANSWER_BYTES_MAX = 100 * 1024 * 1024
RECEIVE_BYTES = 1 << 18

_SIZE = struct.Struct(">i")
_ERROR_CODE = struct.Struct(">h")


class Connection:
    def __init__(
        self, address: Address, settings: ClientSettings, deadline: Deadline | None = None
    ) -> None:
        """Connects, negotiates versions and authenticates; UnreachableError if that fails."""
        self.address = address
        self._client_id = settings.client_id
        self._correlation_id = 0
        self._lock = threading.Lock()
        limit_s = settings.connect_timeout_s
        deadline = Deadline(limit_s) if deadline is None else deadline.within(limit_s)
        self._socket = self._connect(settings, deadline)
        try:
            self.versions = self._negotiate(deadline)
            settings.security.authenticate(
                lambda api, request: self.call(api, request, deadline)  # for SASL
            )
        except (DisconnectedError, AnswerTimeoutError, UnreadableAnswerError) as error:
            self.close()
            raise UnreachableError(
                f"{address} accepted the connection, but not Kafka's protocol: {error}; check that "
                "the broker is healthy and that the listener's security.protocol is this client's"
            ) from error
        except BaseException:
            self.close()
            raise

    def _connect(self, settings: ClientSettings, deadline: Deadline) -> socket.socket:
        try:
            connected = socket.create_connection(self.address, max(deadline.left_s(), 0.001))
        except (OSError, UnicodeError) as error:  # UnicodeError: an invalid host name
            raise UnreachableError(
                f"cannot connect to {self.address}: {_words(error)}; check the address and that "
                "the broker is running"
            ) from error
        try:
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connected.settimeout(max(deadline.left_s(), 0.001))
            return settings.security.wrap(connected, self.address.host)
        except BaseException:
            connected.close()
            raise

    def close(self) -> None:
        self._socket.close()

    def is_stale(self) -> bool:
        """Whether the broker closed it meanwhile: an idle connection has nothing to read."""
        if not self._lock.acquire(blocking=False):
            return False  # another thread waits for an answer on it
        try:
            if self._socket.fileno() < 0:
                return True  # another thread has closed it
            poll = select.poll()  # not select(), which takes no descriptors above 1023
            poll.register(self._socket, select.POLLIN)
            return bool(poll.poll(0))
        finally:
            self._lock.release()

    # -- requests ----------------------------------------------------------------------------------

    def call(
        self, api: ApiKey, request: Struct, deadline: Deadline, max_version: int | None = None
    ) -> Struct:
        """The answer in the highest version that broker and client have in common."""
        version = self.versions.choose(api, max_version)
        body = self._exchange(api, version, request, deadline)
        return self._decode(api, version, body)

    def _negotiate(self, deadline: Deadline) -> Versions:
        """A broker without our version of ApiVersions answers in version 0, with its own range."""
        version = supported_versions(ApiKey.API_VERSIONS)[-1]
        request = Struct(client_software_name=SOFTWARE[0], client_software_version=SOFTWARE[1])
        body = self._exchange(ApiKey.API_VERSIONS, version, request, deadline)
        if body[: _ERROR_CODE.size] == _ERROR_CODE.pack(ErrorCode.unsupported_version):
            offered = Versions(self.address, self._decode(ApiKey.API_VERSIONS, 0, body))
            version = offered.choose(ApiKey.API_VERSIONS) if offered.known else 0
            body = self._exchange(ApiKey.API_VERSIONS, version, request, deadline)
        return Versions(self.address, self._decode(ApiKey.API_VERSIONS, version, body))

    def _exchange(self, api: ApiKey, version: int, request: Struct, deadline: Deadline) -> bytes:
        """Sends one request; the body of its answer."""
        with self._lock:
            self._correlation_id += 1
            header = request_header(api, version, self._correlation_id, self._client_id)
            frame = header + encode_request(api, version, request)
            try:
                self._socket.settimeout(max(deadline.left_s(), 0.001))
                self._socket.sendall(_SIZE.pack(len(frame)) + frame)
                (size,) = _SIZE.unpack(self._receive(_SIZE.size, deadline))
                if not 0 < size <= ANSWER_BYTES_MAX:
                    raise self._unreadable(api, f"a frame of {size} bytes")
                answer = self._receive(size, deadline)
            except TimeoutError as error:
                raise AnswerTimeoutError(
                    f"{self.address} did not answer {api.name} in time; it may be overloaded or "
                    "stopped"
                ) from error
            except OSError as error:
                raise DisconnectedError(
                    f"{self.address} closed the connection before it answered {api.name}: "
                    f"{_words(error)}"
                ) from error
            expected = response_header(api, version, self._correlation_id)
            if answer[: _SIZE.size] != expected[: _SIZE.size]:
                raise self._unreadable(api, "the answer to another request")
            return answer[len(expected) :]

    def _receive(self, count: int, deadline: Deadline) -> bytes:
        data = bytearray()
        while len(data) < count:
            self._socket.settimeout(max(deadline.left_s(), 0.001))
            part = self._socket.recv(min(count - len(data), RECEIVE_BYTES))
            if not part:
                raise ConnectionError(
                    "the connection ended" + (" in the middle of the answer" if data else "")
                )
            data += part
        return bytes(data)

    def _decode(self, api: ApiKey, version: int, body: bytes) -> Struct:
        try:
            return decode_response(api, version, body)
        except DecodeError as error:
            raise self._unreadable(api, f"version {version}: {error}") from error

    def _unreadable(self, api: ApiKey, why: str) -> UnreadableAnswerError:
        return UnreadableAnswerError(f"{self.address}: unreadable answer to {api.name}: {why}")


def _words(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "no answer in time"
    return (error.strerror if isinstance(error, OSError) else None) or str(error)
