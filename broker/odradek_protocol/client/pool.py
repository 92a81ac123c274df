"""The open connections of a client, one per address."""

from __future__ import annotations

import threading
import time

from odradek_protocol.client.connection import Connection
from odradek_protocol.client.deadline import Deadline
from odradek_protocol.client.errors import ClientError, UnsupportedApiError
from odradek_protocol.client.retries import READ_ONLY
from odradek_protocol.client.settings import Address, ClientSettings
from odradek_protocol.messages.api_keys import ApiKey
from odradek_protocol.messages.struct import Struct


class ConnectionPool:
    """Safe for threads. A connection on which a call failed is closed, and never used again."""

    def __init__(self, settings: ClientSettings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._open: dict[Address, Connection] = {}
        self._failed_at: dict[Address, float] = {}  # time.monotonic() of the last failure

    def get(self, address: Address, deadline: Deadline) -> Connection:
        """An open connection to this address, made if there is none."""
        with self._lock:
            connection = self._open.get(address)
        if connection is not None:
            if not connection.is_stale():
                return connection
            self._drop(connection)
        try:
            made = Connection(address, self._settings, deadline)
        except ClientError:
            self._failed_at[address] = time.monotonic()
            raise
        with self._lock:
            kept = self._open.setdefault(address, made)
        if kept is not made:  # another thread was faster
            made.close()
        return kept

    def call(
        self,
        address: Address,
        api: ApiKey,
        request: Struct,
        deadline: Deadline,
        max_version: int | None = None,
    ) -> Struct:
        settings = self._settings
        limit_s = settings.read_timeout_s if api in READ_ONLY else settings.request_timeout_s
        connection = self.get(address, deadline)
        try:
            return connection.call(api, request, deadline.within(limit_s), max_version)
        except UnsupportedApiError:
            raise
        except BaseException:  # also KeyboardInterrupt: the answer would come to the next call
            self._failed_at[address] = time.monotonic()
            self._drop(connection)
            raise

    def preferred(self, addresses: list[Address]) -> list[Address]:
        """The same addresses: open ones first, then those that failed longest ago or never."""
        with self._lock:
            is_open = set(self._open)
        return sorted(
            dict.fromkeys(addresses),
            key=lambda one: (one not in is_open, self._failed_at.get(one, 0.0)),
        )

    def close(self) -> None:
        with self._lock:
            connections, self._open = list(self._open.values()), {}
        for connection in connections:
            connection.close()

    def _drop(self, connection: Connection) -> None:
        with self._lock:
            if self._open.get(connection.address) is connection:
                del self._open[connection.address]
        connection.close()
