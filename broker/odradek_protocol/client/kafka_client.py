"""A client of one cluster: finds the right broker for a request, retries where it may.

The docstring of the package shows how it is used.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from types import TracebackType
from typing import Self

from odradek_protocol.client.deadline import BackOff, Deadline
from odradek_protocol.client.errors import (
    AddressError,
    ClientError,
    NoBrokerError,
    UnknownBrokerError,
    raise_error_in,
)
from odradek_protocol.client.fan_out import fan_out
from odradek_protocol.client.metadata import Metadata, Node
from odradek_protocol.client.pool import ConnectionPool
from odradek_protocol.client.retries import may_repeat, moved_error
from odradek_protocol.client.routes import AnyBroker, CoordinatorType, Route
from odradek_protocol.client.settings import Address, ClientSettings, parse_bootstrap
from odradek_protocol.client.versions import Features
from odradek_protocol.messages.api_keys import ApiKey
from odradek_protocol.messages.struct import Struct

DEFAULT_SETTINGS = ClientSettings()


class KafkaClient:
    """Connects at the first request. Safe for threads; `close` when no call is running."""

    def __init__(self, bootstrap: str, settings: ClientSettings = DEFAULT_SETTINGS) -> None:
        self.bootstrap = parse_bootstrap(bootstrap)
        if not self.bootstrap:
            raise AddressError("no bootstrap address: expected host:port[,host:port…]")
        self.settings = settings
        self._pool = ConnectionPool(settings)
        self._lock = threading.Lock()
        self._brokers: dict[int, Node] = {}  # of the last metadata
        self._brokers_current = False  # False: ask for metadata before they are used
        self._controller_id = -1
        self._coordinators: dict[tuple[CoordinatorType, str], Node] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        self._pool.close()

    # -- requests ----------------------------------------------------------------------------------

    def call(
        self,
        route: Route,
        api: ApiKey,
        request: Struct,
        *,
        max_version: int | None = None,
        deadline: Deadline | None = None,
    ) -> Struct:
        """The answer of the broker that `route` names; ClientError when there is none.

        Error codes in the answer are the caller's business, except those that mean "ask another
        broker": then the broker is looked up again and the request repeated until the deadline.
        """
        deadline = deadline or Deadline(self.settings.deadline_s)
        back_off = BackOff()
        while True:
            try:
                address = route.find(self, deadline)
                answer = self._pool.call(address, api, request, deadline, max_version)
            except ClientError as error:
                route.forget(self)
                if not may_repeat(error, route, api) or not back_off.pause(deadline):
                    raise
            else:
                moved = moved_error(answer, route.moved)
                if moved is None:
                    return answer
                route.forget(self)
                if not back_off.pause(deadline):
                    raise moved

    def each_broker(
        self,
        api: ApiKey,
        request: Struct,
        brokers: Mapping[int, Address] | None = None,
        timeout_s: float | None = None,
        repeat: frozenset[int] = frozenset(),
    ) -> dict[int, Struct | ClientError]:
        """Asks every live broker, or those at the given addresses, at once.

        A request is sent again only to brokers that answer with an error code in `repeat`.
        """
        if brokers is None:
            brokers = {one.broker_id: one.address for one in self.metadata(()).brokers.values()}
        deadline = Deadline(self.settings.deadline_s if timeout_s is None else timeout_s)
        asks: dict[int, Callable[[], Struct]] = {
            broker_id: partial(self._call_one, address, api, request, deadline, repeat)
            for broker_id, address in brokers.items()
        }
        return fan_out(asks)

    def _call_one(
        self,
        address: Address,
        api: ApiKey,
        request: Struct,
        deadline: Deadline,
        repeat: frozenset[int],
    ) -> Struct:
        back_off = BackOff()
        while True:
            answer = self._pool.call(address, api, request, deadline)
            error = moved_error(answer, repeat)
            if error is None:
                return answer
            if not back_off.pause(deadline):
                raise error

    def metadata(
        self, topics: Iterable[str] | None = None, deadline: Deadline | None = None
    ) -> Metadata:
        """Brokers and the named topics, or all topics; topics are never created by this."""
        wanted = None if topics is None else [Struct(name=name) for name in topics]
        request = Struct(topics=wanted, allow_auto_topic_creation=False)
        answer = self.call(AnyBroker(), ApiKey.METADATA, request, deadline=deadline)
        found = Metadata.of(answer)
        with self._lock:
            self._brokers, self._brokers_current = found.brokers, True
            self._controller_id = found.controller_id
        return found

    def features(self) -> Features:
        """The feature levels that the queried broker supports, and the cluster's finalized ones."""
        deadline = Deadline(self.settings.deadline_s)
        return self._pool.get(self.find_any(deadline), deadline).versions.features

    # -- look-up: called by the routes -------------------------------------------------------------

    def find_any(self, deadline: Deadline) -> Address:
        """A broker to which there is a connection, or the first to which one can be made."""
        with self._lock:
            known = [node.address for node in self._brokers.values()]
        failures: list[ClientError] = []
        for address in self._pool.preferred([*self.bootstrap, *known]):
            if failures and not deadline.left_s():
                break
            try:
                self._pool.get(address, deadline)
            except ClientError as error:
                failures.append(error)
            else:
                return address
        raise NoBrokerError("; ".join(map(str, failures)))

    def find_broker(self, broker_id: int, deadline: Deadline) -> Address:
        with self._lock:
            node = self._brokers.get(broker_id) if self._brokers_current else None
        if node is None:
            brokers = self.metadata((), deadline).brokers
            if broker_id not in brokers:
                live = ", ".join(map(str, sorted(brokers)))
                raise UnknownBrokerError(
                    f"there is no live broker {broker_id} in the cluster; live are: {live}"
                )
            node = brokers[broker_id]
        return node.address

    def find_controller(self, deadline: Deadline) -> Address:
        with self._lock:
            node = self._brokers.get(self._controller_id) if self._brokers_current else None
        if node is None:
            found = self.metadata((), deadline)
            node = found.brokers.get(found.controller_id)
        return node.address if node is not None else self.find_any(deadline)

    def find_coordinator(
        self, kind: CoordinatorType, key: str, deadline: Deadline | None = None
    ) -> Node:
        """Raises BrokerError: COORDINATOR_NOT_AVAILABLE while the internal topic is being made."""
        with self._lock:
            node = self._coordinators.get((kind, key))
        if node is not None:
            return node
        request = Struct(key=key, key_type=kind, coordinator_keys=[key])
        answer = self.call(AnyBroker(), ApiKey.FIND_COORDINATOR, request, deadline=deadline)
        found = answer.coordinators[0] if answer.coordinators else answer  # before version 4
        raise_error_in(found)
        node = Node(found.node_id, Address(found.host, found.port), None)
        with self._lock:
            self._coordinators[kind, key] = node
        return node

    def forget_brokers(self) -> None:
        with self._lock:
            self._brokers_current = False  # their addresses still serve to find any broker

    def forget_coordinator(self, kind: CoordinatorType, key: str) -> None:
        with self._lock:
            self._coordinators.pop((kind, key), None)
