"""A Kafka cluster through its public admin protocol: what it says, and what it is told.

    with KafkaAdmin("127.0.0.1:9092") as admin:
        kafka = admin.observe(settings={"log.cleaner.threads"}, topic_settings={"retention.ms"})
        admin.elect([TopicPartition("orders", 0)])

The only module of the operator that knows kafka-python. Works on both engines alike. Calls block,
for at most REQUEST_TIMEOUT_MS each; the callers run them in a thread where that matters. Calls
that act return what was refused, by topic, partition or broker, in Kafka's own words; AdminError
means that nobody answered.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from types import TracebackType
from typing import Any, Self
from uuid import UUID

from kafka import KafkaAdminClient
from kafka import TopicPartition as ClientPartition
from kafka.admin import ConfigResource, ConfigResourceType
from kafka.errors import BrokerResponseError, KafkaError, for_code
from kafka.net.compat import KafkaNetClient

from odradek_operator.admin import kafka_sockets
from odradek_operator.admin.kafka_requests import (
    AddRaftVoterRequest,
    RemoveRaftVoterRequest,
    UnregisterBrokerRequest,
)
from odradek_operator.admin.log_dirs import ask_log_dirs
from odradek_operator.kafka.observed import (
    BrokerSetting,
    Kafka,
    LogDir,
    ObservedTopic,
    Partition,
    TopicPartition,
)

REQUEST_TIMEOUT_MS = 10_000
BOOTSTRAP_TIMEOUT_MS = 5_000
CONNECT_TIMEOUT_S = 2.0
RECONNECT_MAX_MS = 1_000  # a broker that restarts is back within seconds: do not hold back longer
DESCRIBE_MAX = 500  # topics whose settings are asked for in one request
VOTER_LAG_MAX_MS = 10_000  # a voter that was not caught up for longer is not counted upon
LOG_DIRS_EVERY_S = 2.0  # passes may follow one another faster than disks fill
PREFERRED = 0  # ElectLeaders: the preferred replica, never an unclean one
SET, DELETE = 0, 1  # IncrementalAlterConfigs
MIN_ISR = "min.insync.replicas"
# What a topic had already when it was to be made, grown or deleted: the same as done.
_DONE = frozenset({"TOPIC_ALREADY_EXISTS", "UNKNOWN_TOPIC_OR_PARTITION"})

logging.getLogger("kafka").setLevel(logging.CRITICAL)  # it logs every broker that restarts
kafka_sockets.install()


class NotYetError(Exception):
    """Something has to come first, and nothing is wrong: the next pass tries again."""


class AdminError(Exception):
    """The cluster did not answer; the message is a sentence."""


class KafkaAdmin:
    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self._client: Any = None
        self._log_dirs: dict[int, tuple[LogDir, ...]] = {}
        self._log_dirs_until = 0.0  # time.monotonic(): when they are asked for again

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
        if self._client is not None:
            client, self._client = self._client, None
            with contextlib.suppress(Exception):  # it is on its way out
                client.close()

    @contextlib.contextmanager
    def _asking(self) -> Iterator[Any]:
        """The client, connected; a failure of any kind drops the connection and is a sentence."""
        try:
            if self._client is None:
                self._client = _connect(self.bootstrap)
            yield self._client
        except BrokerResponseError as error:
            raise AdminError(str(error)) from error
        except (KafkaError, OSError, RuntimeError) as error:
            self.close()
            words = str(error) or type(error).__name__
            raise AdminError(f"{self.bootstrap} does not answer: {words}") from error

    # -- observe -----------------------------------------------------------------------------------

    def observe(self, settings: Iterable[str] = (), topic_settings: Iterable[str] = ()) -> Kafka:
        """Everything a plan needs. Only the settings that are asked for are looked at."""
        with self._asking() as client:
            cluster = client.describe_cluster()
            quorum = client.describe_metadata_quorum()["topics"][0]["partitions"][0]
            # Asked twice: a move that begins or ends meanwhile is not replicas too many.
            moves = client.list_partition_reassignments()
            described = [t for t in client.describe_topics() if t["error_code"] == 0]
            moves = {**moves, **client.list_partition_reassignments()}
            names = [t["name"] for t in described]
            configs = self._topic_configs(client, names, {MIN_ISR, *topic_settings})
            brokers = {b["broker_id"]: b for b in cluster["brokers"]}
            live = frozenset(b for b, found in brokers.items() if not found.get("is_fenced"))
            return Kafka(
                cluster_id=cluster["cluster_id"],
                controller=quorum["leader_id"],
                voters=frozenset(v["replica_id"] for v in quorum["current_voters"]),
                lagging_voters=_lagging(quorum["current_voters"]),
                registered={b: found["rack"] or "" for b, found in brokers.items()},
                live=live,
                partitions=tuple(_partitions(described, moves, configs)),
                topics={t["name"]: _topic(t, configs[t["name"]]) for t in described},
                settings=self._broker_settings(client, live, settings),
                log_dirs=self._ask_log_dirs(brokers),
            )

    def _ask_log_dirs(
        self, brokers: Mapping[int, Mapping[str, Any]]
    ) -> dict[int, tuple[LogDir, ...]]:
        """Not through the client: it knows no fenced broker, and waits long for a slow one."""
        now = time.monotonic()
        if now >= self._log_dirs_until:
            addresses = {b: (found["host"], found["port"]) for b, found in brokers.items()}
            self._log_dirs = ask_log_dirs(addresses)
            self._log_dirs_until = time.monotonic() + LOG_DIRS_EVERY_S
        return self._log_dirs

    def _topic_configs(
        self, client: Any, topics: Sequence[str], names: set[str]
    ) -> dict[str, Mapping[str, Any]]:
        found: dict[str, Mapping[str, Any]] = {topic: {} for topic in topics}
        rest = iter(topics)
        while batch := list(islice(rest, DESCRIBE_MAX)):
            asked = [ConfigResource(ConfigResourceType.TOPIC, t, sorted(names)) for t in batch]
            found |= client.describe_configs(asked, config_filter="all").get("topic", {})
        return found

    def _broker_settings(
        self, client: Any, brokers: Iterable[int], names: Iterable[str]
    ) -> dict[int, dict[str, BrokerSetting]]:
        found: dict[int, dict[str, BrokerSetting]] = {}
        wanted = sorted(names)
        for broker in sorted(brokers) if wanted else ():
            asked = ConfigResource(ConfigResourceType.BROKER, str(broker), wanted)
            try:
                answer = client.describe_configs([asked], config_filter="all")
            except KafkaError:
                continue  # on its way down: nothing is known about it, nothing is concluded
            found[broker] = {
                name: BrokerSetting(
                    entry["value"],
                    entry["read_only"],
                    entry["config_source"] == "DYNAMIC_DEFAULT_BROKER_CONFIG",
                )
                for name, entry in answer["broker"][str(broker)].items()
            }
        return found

    def log_dir_bytes(self) -> dict[int, dict[str, int]]:
        """Broker → directory → bytes of its replicas; a directory that failed is left out."""
        with self._asking() as client:
            return {
                answer["broker"]: {
                    found["log_dir"]: sum(
                        p["partition_size"] for t in found["topics"] for p in t["partitions"]
                    )
                    for found in answer["log_dirs"]
                    if found["error_code"] == 0
                }
                for answer in client.describe_log_dirs()
            }

    # -- act ---------------------------------------------------------------------------------------

    def create_topics(self, topics: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
        """name → num_partitions, replication_factor, configs. Returns name → why not."""
        with self._asking() as client:
            answer = client.create_topics(dict(topics), raise_errors=False)
            return _failures(answer["topics"])

    def grow_topics(self, partitions: Mapping[str, int]) -> dict[str, str]:
        with self._asking() as client:
            answer = client.create_partitions(dict(partitions), raise_errors=False)
            return _failures(answer.to_dict()["results"])

    def delete_topics(self, topics: Sequence[str]) -> dict[str, str]:
        with self._asking() as client:
            return _failures(client.delete_topics(list(topics), raise_errors=False)["topics"])

    def alter_topic_configs(
        self, changes: Mapping[str, Mapping[str, str | None]]
    ) -> dict[str, str]:
        return self._alter(ConfigResourceType.TOPIC, changes)

    def alter_broker_configs(self, changes: Mapping[str, str | None]) -> dict[str, str]:
        """For all brokers, also those that come later."""
        failed = self._alter(ConfigResourceType.BROKER, {"": changes})
        return {"all brokers": failed[""]} if failed else {}

    def _alter(
        self, kind: ConfigResourceType, changes: Mapping[str, Mapping[str, str | None]]
    ) -> dict[str, str]:
        asked = [
            ConfigResource(
                kind, name, {n: (DELETE if v is None else SET, v) for n, v in entries.items()}
            )
            for name, entries in changes.items()
        ]
        with self._asking() as client:
            # Its alter_configs() knows no default of all brokers (the empty name).
            request = client._alter_configs_request(asked, incremental=True)
            answer = client._manager.run(client._send_request_to_controller, request)
            return {
                result["resource_name"]: _words(result)
                for result in answer.to_dict()["responses"]
                if result["error_code"] != 0
            }

    def elect(self, partitions: Iterable[TopicPartition]) -> dict[str, str]:
        by_topic: dict[str, list[int]] = {}
        for topic, partition in partitions:
            by_topic.setdefault(topic, []).append(partition)
        with self._asking() as client:
            answer = client.elect_leaders(PREFERRED, by_topic, raise_errors=False).to_dict()
            return {
                f"{topic['topic']}-{p['partition_id']}": _words(p)
                for topic in answer["replica_election_results"]
                for p in topic["partition_result"]
                if p["error_code"] != 0 and _name(p) != "ELECTION_NOT_NEEDED"
            }

    def reassign(self, moves: Mapping[TopicPartition, Sequence[int]]) -> dict[str, str]:
        asked = {ClientPartition(p.topic, p.partition): list(r) for p, r in moves.items()}
        with self._asking() as client:
            answer = client.alter_partition_reassignments(asked)
            return {
                f"{p.topic}-{p.partition}": error.message or error.__name__
                for p, error in answer.items()
                if error is not None
            }

    def unregister(self, broker: int) -> dict[str, str]:
        request = UnregisterBrokerRequest(broker_id=broker)
        return self._send(broker, request, "BROKER_ID_NOT_REGISTERED")

    def add_voter(self, broker: int) -> dict[str, str]:
        """An observer of our engine becomes a voter; it is reached as the other voters are."""
        with self._asking() as client:
            quorum = client.describe_metadata_quorum()
            observers = quorum["topics"][0]["partitions"][0]["observers"]
            names = [one["name"] for node in quorum.get("nodes", ()) for one in node["listeners"]]
            where = {b["broker_id"]: b for b in client.describe_cluster()["brokers"]}
        directories = [o["replica_directory_id"] for o in observers if o["replica_id"] == broker]
        if not directories or not names or broker not in where:
            return {f"broker {broker}": "it does not follow the metadata quorum yet"}
        request = AddRaftVoterRequest(
            cluster_id=None,
            timeout_ms=REQUEST_TIMEOUT_MS,
            voter_id=broker,
            voter_directory_id=directories[0],
            listeners=[(names[0], where[broker]["host"], where[broker]["port"])],
        )
        return self._send(broker, request, "DUPLICATE_VOTER")

    def remove_voter(self, broker: int) -> dict[str, str]:
        with self._asking() as client:
            quorum = client.describe_metadata_quorum()
            voters = quorum["topics"][0]["partitions"][0]["current_voters"]
        directories = [v.get("replica_directory_id") for v in voters if v["replica_id"] == broker]
        if not directories:
            return {}
        directory = directories[0] or UUID(int=0)
        request = RemoveRaftVoterRequest(
            cluster_id=None, voter_id=broker, voter_directory_id=directory
        )
        return self._send(broker, request, "VOTER_NOT_FOUND")

    def _send(self, broker: int, request: Any, same_as_done: str) -> dict[str, str]:
        with self._asking() as client:
            answer = client._manager.run(client._send_request_to_controller, request).to_dict()
            failed = answer["error_code"] != 0 and _name(answer) != same_as_done
            return {f"broker {broker}": _words(answer)} if failed else {}


# -- connection ------------------------------------------------------------------------------------


def _connect(bootstrap: str) -> Any:
    """A client of the brokers that can be reached; one that fails to start is ended.

    kafka-python's own start leaves its thread and the sockets of its attempts behind when nobody
    answers; an operator tries again every second for as long as it takes.
    """
    made: list[Any] = []

    def remember(**config: Any) -> Any:
        made.append(KafkaNetClient(**config))
        return made[0]

    try:
        return KafkaAdminClient(
            bootstrap_servers=_reachable(bootstrap),
            client_id="odradek-operator",
            request_timeout_ms=REQUEST_TIMEOUT_MS,
            bootstrap_timeout_ms=BOOTSTRAP_TIMEOUT_MS,
            reconnect_backoff_max_ms=RECONNECT_MAX_MS,
            kafka_client=remember,
        )
    except BaseException:
        for client in made:
            client.close()
            client._manager._net.stop()
        raise


def _reachable(bootstrap: str) -> list[str]:
    found, error = [], None
    for address in bootstrap.split(","):
        host, _, port = address.rpartition(":")
        try:
            socket.create_connection((host, int(port)), CONNECT_TIMEOUT_S).close()
        except OSError as failed:
            error = failed
        else:
            found.append(address)
    if not found:
        raise error or OSError("no address is given")
    return found


# -- answers ---------------------------------------------------------------------------------------


def _partitions(
    described: Sequence[Mapping[str, Any]],
    moves: Mapping[Any, Mapping[str, Any]],
    configs: Mapping[str, Mapping[str, Any]],
) -> Iterator[Partition]:
    for topic in described:
        name = topic["name"]
        min_isr = int(configs[name].get(MIN_ISR, {}).get("value") or 1)
        for found in topic["partitions"]:
            replicas = tuple(found["replica_nodes"])
            move = moves.get(ClientPartition(name, found["partition_index"]), {})
            removing = frozenset(move.get("removing_replicas", ()))
            if removing and not removing & set(replicas):
                move, removing = {}, frozenset()  # it ended before the topic was described
            yield Partition(
                TopicPartition(name, found["partition_index"]),
                found["leader_id"],
                replicas,
                frozenset(found["isr_nodes"]),
                min_isr,
                frozenset(move.get("adding_replicas", ())) & set(replicas),
                removing,
            )


def _topic(found: Mapping[str, Any], config: Mapping[str, Any]) -> ObservedTopic:
    return ObservedTopic(
        found["name"],
        str(found["topic_id"]),
        found["is_internal"],
        len(found["partitions"]),
        {
            name: entry["value"]
            for name, entry in config.items()
            if entry["config_source"] == "DYNAMIC_TOPIC_CONFIG" and entry["value"] is not None
        },
    )


def _lagging(voters: Sequence[Mapping[str, Any]]) -> frozenset[int]:
    """Voters that were last caught up long before the leader; -1 (never) is the longest."""
    caught_up = {v["replica_id"]: v.get("last_caught_up_timestamp", -1) for v in voters}
    newest = max(caught_up.values(), default=-1)
    return frozenset(v for v, at in caught_up.items() if newest - at > VOTER_LAG_MAX_MS)


def _failures(answers: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    return {
        answer["name"]: _words(answer)
        for answer in answers
        if answer["error_code"] != 0 and _name(answer) not in _DONE
    }


def _name(answer: Mapping[str, Any]) -> str:
    return str(getattr(for_code(answer["error_code"]), "message", "") or "")


def _words(answer: Mapping[str, Any]) -> str:
    return str(answer.get("error_message") or _name(answer) or answer["error_code"])
