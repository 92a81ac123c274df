"""A Kafka for a test, a session or a script; the package's docstring shows how it is used."""

from __future__ import annotations

import asyncio
import itertools
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from odradek.testing.aio import AsyncKafka
from odradek.testing.brokers import Broker
from odradek.testing.engines import (
    ENGINES,
    VOTERS_MAX,
    make_servers,
    start_all,
    text_of,
)
from odradek.testing.errors import UnsupportedError
from odradek.testing.exchange import fetch, places_of, produce, spans, topic_of
from odradek.testing.groups import Groups
from odradek.testing.records import Data, Difference, Expected, Record, Records
from odradek.testing.security import SCRAM, Login, Security, add_scram_user, allow, remove_all_acls
from odradek.testing.topics import Topics
from odradek_cli.processes import StartFailedError
from odradek_protocol.client import ClientSettings, KafkaClient
from odradek_protocol.client.admin.groups import delete_groups, list_groups
from odradek_protocol.client.admin.partitions import (
    ElectionType,
    alter_reassignments,
    elect_leaders,
    list_reassignments,
)
from odradek_protocol.client.admin.quorum import describe_quorum
from odradek_protocol.client.errors import BrokerError
from odradek_protocol.client.metadata import NO_LEADER
from odradek_protocol.error_codes import ErrorCode
from odradek_protocol.ids import TopicPartition
from odradek_testkit.launching import launcher
from odradek_testkit.waiting import DEADLINE_S, wait_until

# Another process may take a port between the moment when it was found free and the broker's bind.
START_ATTEMPTS = 5
PORT_TAKEN = ("cannot bind", "Address already in use")
POLL_S = 0.005
# Another broker is asked soon if the first one is paused.
CLIENT = ClientSettings(client_id="odradek-testing", read_timeout_s=2.0)
_numbers = itertools.count(1)


class Kafka:
    """One to many brokers as child processes; a context manager, also for `async with`."""

    def __init__(
        self,
        brokers: int = 1,
        *,
        racks: Sequence[str] = (),
        config: Mapping[str, object] | None = None,
        engine: str = "odradek",
        tls: bool = False,
        sasl: str | None = None,
        acls: bool = False,
    ) -> None:
        """`config` has Kafka's broker settings, `engine` is "odradek" or "apache".

        With `tls`, `sasl` ("PLAIN", "SCRAM-SHA-512") or `acls`, clients need `client_settings`.
        """
        if engine not in ENGINES:
            raise ValueError(f"engine {engine!r}: expected one of {', '.join(ENGINES)}")
        if brokers < 1:
            raise ValueError(f"brokers={brokers}: expected at least 1")
        if engine != "odradek" and (tls or sasl or acls):
            raise UnsupportedError('tls, sasl and acls: only with engine="odradek"')
        self.security = Security(tls=tls, sasl=sasl, acls=acls)
        self.engine = engine
        self._count = brokers
        self._racks = tuple(racks)
        self._config = {name: text_of(value) for name, value in (config or {}).items()}
        self.brokers: list[Broker] = []
        self.touched = False  # a test changed more than topics and groups: see `reset`
        self._client: KafkaClient | None = None
        self._directory: Path | None = None

    # -- start and end -----------------------------------------------------------------------------

    def start(self) -> Self:
        assert not self.brokers, "it is started already"
        self._directory = launcher().directory / f"kafka-{next(_numbers)}"
        for attempt in range(1, START_ATTEMPTS + 1):
            self.security.directory = self._directory / "security"
            config = {**self.security.broker_settings(), **self._config}
            protocol = self.security.protocol
            servers = make_servers(
                self.engine, self._count, self._racks, config, self._directory, protocol
            )
            self.security.write_files()
            self.brokers = [Broker(n, s, self._fault) for n, s in enumerate(servers, 1)]
            try:
                start_all(servers)
                break
            except StartFailedError as error:
                self.close()
                if attempt == START_ATTEMPTS or not any(t in error.log for t in PORT_TAKEN):
                    raise
            except BaseException:
                self.close()
                raise
        secured = replace(CLIENT, security=self.security.own_client())
        self._client = KafkaClient(self.bootstrap, secured)
        if self._count > 1:
            wait_until(self._is_formed, "all brokers are voters and unfenced", poll_s=POLL_S)
        self.topics = Topics(self._client)
        self.groups = Groups(self._client)
        if self.security.user is not None and self.security.user.mechanism in SCRAM:
            add_scram_user(self._client, self.security.user)
        return self

    def _is_formed(self) -> bool:
        """From then on the cluster survives the loss of any broker."""
        live = len(self.client.metadata(()).brokers)
        voters = len(describe_quorum(self.client).voters)
        return live == self._count and voters >= (VOTERS_MAX if live >= VOTERS_MAX else 1)

    def close(self) -> str:
        """Ends every broker and removes its files; the logs of brokers that died by themselves."""
        if self._client is not None:
            self._client.close()
            self._client = None
        died = "".join([broker.end() for broker in self.brokers])
        self.brokers = []
        if self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)
        return died

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        died = self.close()
        if died and kind is None:  # do not hide the test's own failure
            raise AssertionError(died)

    async def __aenter__(self) -> Self:
        return await asyncio.to_thread(self.start)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await asyncio.to_thread(self.__exit__, kind, error, trace)

    @property
    def aio(self) -> AsyncKafka:
        """The calls that wait, as coroutines."""
        return AsyncKafka(self)

    def reset(self) -> bool:
        """Deletes all topics and groups, so that the next test finds an empty Kafka.

        False if that is not enough: a broker was stopped, or the test changed time or disk. Then
        the fixture starts a new Kafka, which is quicker than undoing all of it.
        """
        if self.touched or not self.is_usable():
            return False
        if self.security.acls:
            remove_all_acls(self.client)
        if names := self.topics.list():
            self.topics.delete(*names)
        groups = [listing.group_id for listing in list_groups(self.client)]
        return not delete_groups(self.client, groups)  # refused: a consumer is still a member

    def is_usable(self) -> bool:
        """Whether every broker runs, as far as can be seen without asking them."""
        return bool(self.brokers) and all(broker.is_alive() for broker in self.brokers)

    def _fault(self) -> None:
        self.touched = True

    # -- what it has -------------------------------------------------------------------------------

    @property
    def bootstrap(self) -> str:
        """For `bootstrap.servers`: "127.0.0.1:20123", or several separated by commas."""
        return ",".join(broker.address for broker in self.brokers)

    def client_settings(
        self, form: str = "confluent", *, login: Login | None = None
    ) -> dict[str, Any]:
        """The settings with which a client connects, as `kafka.user` or another user of `add_user`.

        `form` is "confluent" (also for librdkafka's others), "aiokafka" (keyword arguments) or
        "java" (properties, also of `odradek --client-config`).
        """
        return self.security.client_settings(form, self.bootstrap, login or self.security.user)

    @property
    def ca_file(self) -> Path | None:
        """With `tls`: the certificate that clients have to trust."""
        return self.security.ca_file if self.security.tls else None

    @property
    def user(self) -> str | None:
        """With `sasl`: the user of the program under test; it has no rights until `allow`."""
        return self.security.user.user if self.security.user else None

    @property
    def password(self) -> str | None:
        return self.security.user.password if self.security.user else None

    def add_user(self, user: str, password: str) -> Login:
        """Another user, with `sasl` SCRAM-SHA-256 or -512; for `client_settings(login=…)`."""
        if self.security.sasl not in SCRAM:
            raise UnsupportedError('users are added at run time only with sasl="SCRAM-SHA-512"')
        self._fault()  # the next test must not find this user
        login = Login(user, password, self.security.sasl)
        add_scram_user(self.client, login)
        return login

    def allow(self, *operations: str, user: str | None = None, **resource: str) -> None:
        """With `acls`: `kafka.allow("READ", "WRITE", topic="orders")`, for `kafka.user` or `user`.

        Resources are topic, group, cluster, transactional_id; "orders*" is a prefix, "*" all.
        Without operations: ALL.
        """
        who = user or self.user
        if not self.security.acls or who is None:
            raise UnsupportedError("there are no ACLs: use Kafka(sasl=…, acls=True)")
        allow(self.client, who, operations, **resource)

    @property
    def client(self) -> KafkaClient:
        """Any request of Kafka's protocol (odradek_protocol.client)."""
        if self._client is None:
            raise AssertionError("this Kafka is not running: use `with Kafka() as kafka:`")
        return self._client

    def broker(self, broker_id: int) -> Broker:
        """Ids start at 1."""
        found = next((broker for broker in self.brokers if broker.id == broker_id), None)
        if found is None:
            raise ValueError(f"there is no broker {broker_id}; there are 1 to {len(self.brokers)}")
        return found

    def logs(self) -> dict[int, str]:
        """The log of each broker."""
        return {broker.id: broker.log() for broker in self.brokers}

    # -- records -----------------------------------------------------------------------------------

    def produce(
        self, topic: str, *values: Expected, key: Data = None, partition: int | None = None
    ) -> Records:
        """Appends values or Records, with acks=all; returns them with partition and offset.

        `key` and `partition` are for plain values. A topic that does not exist is created with the
        broker's defaults. Records with a key go where Kafka's Java producer would put them.
        """
        records = [
            v if isinstance(v, Record) else Record(v, key, partition=partition) for v in values
        ]
        try:
            info = topic_of(self.client, topic)
        except BrokerError as error:
            if error.code != ErrorCode.unknown_topic_or_partition.value:
                raise
            self.topics.create(topic)
            info = topic_of(self.client, topic)
        return produce(self.client, info, records)

    def read(
        self,
        topic: str,
        n: int | None = None,
        *,
        partition: int | None = None,
        timeout_s: float = DEADLINE_S,
    ) -> Records:
        """All committed records of a topic, from its start; no group is involved.

        With `n`, waits until there are at least so many and returns the first `n`; an
        AssertionError after `timeout_s` shows those that are there. Records of several partitions
        are merged by their time.
        """
        found = Records()

        def enough() -> bool:
            nonlocal found
            found = self._read_all(topic, partition, missing_is_empty=n is not None)
            return n is None or len(found) >= n

        try:
            wait_until(enough, "", timeout_s, poll_s=POLL_S)
        except AssertionError:
            shown = "".join(f"\n  {record!r} ({record.place})" for record in found)
            raise AssertionError(
                f"expected {n} records in {topic!r}, found {len(found)} after {timeout_s:g} s"
                f"{':' if found else ''}{shown}"
            ) from None
        return found if n is None else Records(found[:n])

    def _read_all(self, topic: str, partition: int | None, *, missing_is_empty: bool) -> Records:
        try:
            info = topic_of(self.client, topic)
        except BrokerError as error:
            if missing_is_empty and error.code == ErrorCode.unknown_topic_or_partition.value:
                return Records()  # the program under test may create it yet
            raise
        places = [p for p in places_of(info) if partition is None or p.partition == partition]
        return fetch(self.client, info, spans(self.client, places))

    def assert_records(
        self,
        topic: str,
        expected: Iterable[Expected],
        *,
        ordered: bool = True,
        timeout_s: float = DEADLINE_S,
    ) -> None:
        """Waits until the topic has exactly these records; else an AssertionError with the diff.

        As soon as there are as many records as expected they are compared: records that come
        later are not seen.
        """
        wanted = list(expected)
        found = Records()

        def enough() -> bool:
            nonlocal found
            found = self._read_all(topic, None, missing_is_empty=True)
            return len(found) >= len(wanted)

        try:
            wait_until(enough, "", timeout_s, poll_s=POLL_S)
        except AssertionError:
            difference = Difference(wanted, found, ordered)
            raise AssertionError(f"{topic!r} after {timeout_s:g} s: {difference}") from None
        if difference := Difference(wanted, found, ordered):
            raise AssertionError(f"{topic!r}: {difference}")

    # -- groups ------------------------------------------------------------------------------------

    def wait_for(self, group: str, *, lag: int = 0, timeout_s: float = DEADLINE_S) -> None:
        """Waits until the group's consumers are at most `lag` records behind, in total."""
        self.groups.wait_for(group, lag, timeout_s)

    def expire_member(self, group: str, member_id: str | None = None) -> None:
        """Removes a member from its group, as if its session had timed out; None: all members."""
        self.groups.expire_member(group, member_id)

    # -- faults and time: only with our engine -----------------------------------------------------

    def fail_next(self, api: str, error: str, times: int = 1) -> None:
        """On every running broker: see `Broker.fail_next`. Counted on each broker."""
        for broker in self._running():
            broker.fail_next(api, error, times)

    def delay_next(self, api: str, delay_ms: int, times: int = 1) -> None:
        """On every running broker: see `Broker.delay_next`."""
        for broker in self._running():
            broker.delay_next(api, delay_ms, times)

    def cut(self, broker: Broker, *, clients: bool = False) -> None:
        """Isolates a broker from all other brokers in both directions, and from clients on request.

        Requests are held back, as by a network that loses packets; `heal` lets them through.
        """
        broker.cut(clients=clients)
        for other in self._running():
            if other is not broker:
                other.control(
                    do="fault", apis=None, hold=True, clients=False, of_brokers=[broker.id]
                )

    def heal(self) -> None:
        """Ends all faults of requests, disks and pauses; killed brokers stay down."""
        for broker in self.brokers:
            broker.heal()

    def advance(
        self, *, hours: float = 0.0, minutes: float = 0.0, seconds: float = 0.0, ms: float = 0.0
    ) -> None:
        """Time jumps forward for logs, groups and transactions of every running broker.

        What became due happens before this returns: retention deletes segments, members whose
        session ended leave, transactions time out, offsets of old groups expire. Clients, the
        quorum and replication keep the real time, so a cluster does not lose its leaders.
        """
        jump_ms = round(((hours * 60 + minutes) * 60 + seconds) * 1000 + ms)
        if jump_ms < 0:
            raise ValueError("time does not go back")
        for broker in self._running():
            broker.control(do="advance", ms=jump_ms)

    def _running(self) -> list[Broker]:
        return [broker for broker in self.brokers if broker.running]

    # -- leaders -----------------------------------------------------------------------------------

    def leader_of(self, topic: str, partition: int = 0) -> Broker:
        """Waits while the partition has no leader."""
        found = NO_LEADER

        def led() -> bool:
            nonlocal found
            partitions = topic_of(self.client, topic).partitions
            if partition not in partitions:
                raise AssertionError(f"{topic!r} has no partition {partition}")
            found = partitions[partition].leader
            return found != NO_LEADER

        wait_until(led, f"a leader of {topic}-{partition}", poll_s=POLL_S)
        return self.broker(found)

    def move_leader(self, topic: str, partition: int = 0, to: int | None = None) -> Broker:
        """Makes another in-sync replica the leader: broker `to`, or any; returns the new leader."""
        place = TopicPartition(topic, partition)
        info = topic_of(self.client, topic).partitions[partition]
        others = [one for one in info.isr if one != info.leader]
        target = to if to is not None else next(iter(others), None)
        if target == info.leader:
            return self.broker(target)
        if target not in others:
            raise AssertionError(
                f"{place} cannot move to broker {target}: its leader is {info.leader}, its other "
                f"in-sync replicas are {others}"
            )
        assert target is not None
        replicas = [target, *(one for one in info.replicas if one != target)]
        for error in alter_reassignments(self.client, {place: replicas}).values():
            raise BrokerError(error.code, f"move the leader of {place}: {error.detail}")
        wait_until(lambda: place not in list_reassignments(self.client), "reassigned")
        elect_leaders(self.client, ElectionType.PREFERRED, [place])
        wait_until(
            lambda: self.leader_of(topic, partition).id == target,
            f"broker {target} leads {place}",
            poll_s=POLL_S,
        )
        return self.broker(target)
