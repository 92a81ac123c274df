"""A Kafka server with scripted answers, for behaviour that a real broker shows only when it fails.

    with ScriptedServer() as server:
        server.on(ApiKey.METADATA, lambda request: Struct(brokers=[server.node(1)], …))

A script is a function from request to answer. It may return `Struct` (encoded in the version of
the request), `bytes` (sent as they are, after which the connection is closed) or None (the
connection is closed without an answer). `requests` has every request in the order of arrival.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self

from odradek_protocol.client.settings import Address
from odradek_protocol.messages.api import decode_request, encode_response
from odradek_protocol.messages.api_keys import ApiKey
from odradek_protocol.messages.headers import (
    parse_request_header,
    response_header,
    supported_versions,
)
from odradek_protocol.messages.struct import Struct

Script = Callable[[Struct], Struct | bytes | None]


class ScriptedServer:
    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        host, port = self._listener.getsockname()[:2]
        self.address = Address(host, port)
        self.bootstrap = str(self.address)
        self.versions = {api: supported_versions(api) for api in ApiKey}
        self.requests: list[tuple[ApiKey, int, Struct]] = []
        self.connections = 0
        self._scripts: dict[ApiKey, Script] = {}
        self._open: list[socket.socket] = []
        self._lock = threading.Lock()
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.close_connections()
        for thread in self._threads:
            thread.join()

    def on(self, api: ApiKey, script: Script) -> None:
        self._scripts[api] = script

    def lead(self, broker_id: int = 1, topics: list[Struct] | None = None) -> None:
        """Metadata of a cluster in which this server is the only broker and the controller."""
        self.on(
            ApiKey.METADATA,
            lambda _: Struct(
                brokers=[self.node(broker_id)],
                cluster_id="scripted",
                controller_id=broker_id,
                topics=topics or [],
            ),
        )

    def node(self, broker_id: int) -> Struct:
        return Struct(node_id=broker_id, host=self.address.host, port=self.address.port)

    def count(self, api: ApiKey) -> int:
        return sum(one[0] == api for one in self.requests)

    def close_connections(self) -> None:
        with self._lock:
            sockets, self._open = self._open, []
        for one in sockets:
            with contextlib.suppress(OSError):  # the client closed first
                one.shutdown(socket.SHUT_RDWR)

    # -- the server's side -------------------------------------------------------------------------

    def _accept(self) -> None:
        while True:
            try:
                accepted, _ = self._listener.accept()
            except OSError:
                return
            with self._lock:
                self._open.append(accepted)
                self.connections += 1
            thread = threading.Thread(target=self._serve, args=(accepted,))
            self._threads.append(thread)
            thread.start()

    def _serve(self, accepted: socket.socket) -> None:
        with accepted:
            while self._answer_one(accepted):
                pass
            with self._lock:
                if accepted in self._open:
                    self._open.remove(accepted)

    def _answer_one(self, accepted: socket.socket) -> bool:
        try:
            head = accepted.recv(4, socket.MSG_WAITALL)
            if len(head) < 4:
                return False
            frame = accepted.recv(struct.unpack(">i", head)[0], socket.MSG_WAITALL)
            header = parse_request_header(frame)
            api, version = ApiKey(header.api_key), header.api_version
            answer, version = self._answer(api, version, frame, header.body_at)
            if isinstance(answer, Struct):
                body = response_header(api, version, header.correlation_id)
                body += encode_response(api, version, answer)
                accepted.sendall(struct.pack(">i", len(body)) + body)
                return True
            accepted.sendall(answer or b"")
        except OSError:
            pass
        return False

    def _answer(
        self, api: ApiKey, version: int, frame: bytes, at: int
    ) -> tuple[Struct | bytes | None, int]:
        if version not in self.versions[api]:
            assert api == ApiKey.API_VERSIONS, f"{api.name} version {version} was not offered"
            return Struct(error_code=35, api_keys=self._offered()[:1]), 0
        request = decode_request(api, version, frame, at)
        self.requests.append((api, version, request))
        if api == ApiKey.API_VERSIONS and api not in self._scripts:
            return Struct(api_keys=self._offered()), version
        return self._scripts[api](request), version

    def _offered(self) -> list[Struct]:
        """ApiVersions first: an answer to an unsupported version of it names only that API."""
        spans = sorted(self.versions.items(), key=lambda one: one[0] != ApiKey.API_VERSIONS)
        return [
            Struct(api_key=api, min_version=span.start, max_version=span.stop - 1)
            for api, span in spans
            if span
        ]
