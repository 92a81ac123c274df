"""Observes a Kafka cluster through its admin protocol, and carries out changes.

    with KafkaAdmin("127.0.0.1:9092") as admin:
        kafka = admin.observe(settings={"log.cleaner.threads"}, topic_settings={"retention.ms"})
        admin.elect([TopicPartition("orders", 0)])

This package is all of the operator that talks to brokers. Works alike with both engines. Calls
block, each request for at most REQUEST_TIMEOUT_S; callers run them in a thread where that matters.
Calls that change something return what was refused, by topic, partition or broker, in the broker's
own words; AdminError means that no broker answered.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from odradek_operator.admin.log_dirs import ask_log_dirs
from odradek_operator.admin.throttles import (
    log_sizes,
    move_directories,
    remove_throttle,
    set_throttle,
)
from odradek_operator.admin.users import carry_out_user, observe_users
from odradek_operator.kafka.observed import (
    BrokerSetting,
    LogDir,
    LogSizes,
    ObservedKafka,
    ObservedTopic,
    Partition,
)
from odradek_operator.security.users import ObservedUsers, UserAction
from odradek_protocol import ids
from odradek_protocol.client import BrokerError, ClientError, ClientSettings, KafkaClient
from odradek_protocol.client.admin import brokers, configs, partitions, quorum, topics
from odradek_protocol.client.admin.configs import (
    ConfigChange,
    ConfigOperation,
    ConfigSource,
    ResourceType,
)
from odradek_protocol.client.admin.partitions import ElectionType, Reassignment
from odradek_protocol.client.admin.topics import BROKER_DEFAULT, NewTopic
from odradek_protocol.client.connection import Connection
from odradek_protocol.client.deadline import Deadline
from odradek_protocol.client.metadata import TopicInfo
from odradek_protocol.client.routes import Broker, Route
from odradek_protocol.client.settings import PLAINTEXT, Address, Security
from odradek_protocol.ids import TopicPartition
from odradek_protocol.messages.api_keys import ApiKey

CONNECT_TIMEOUT_S = 2.0
REQUEST_TIMEOUT_S = 10.0
READ_TIMEOUT_S = 3.0  # of one broker: one that hangs costs a pass no more, then another is asked
VOTER_LAG_MAX_MS = 10_000  # a voter that was last caught up longer ago does not count as available
LOG_DIRS_EVERY_S = 2.0  # passes may follow one another faster than disks fill
MIN_ISR = "min.insync.replicas"
# Codes of topics that are created, grown or deleted already: the same as done.
_DONE = frozenset({"TOPIC_ALREADY_EXISTS", "UNKNOWN_TOPIC_OR_PARTITION"})
_NO_MOVE = Reassignment((), (), ())


class NotYetError(Exception):
    """Something else has to happen first, and nothing is wrong: the next pass tries again."""


class AdminError(Exception):
    """The cluster did not answer; the message is a sentence."""


class KafkaAdmin:
    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap  # may be changed between calls, like `security`
        self.security: Security = PLAINTEXT
        self._client: KafkaClient | None = None
        self._client_route: tuple[str, Security] = ("", PLAINTEXT)
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
            self._client.close()
            self._client = None

    @contextlib.contextmanager
    def _connected(self) -> Iterator[KafkaClient]:
        """The client of the current bootstrap addresses; its errors become AdminErrors."""
        try:
            if self._client is None or self._client_route != (self.bootstrap, self.security):
                self.close()
                self._client = KafkaClient(self.bootstrap, self._settings())
                self._client_route = (self.bootstrap, self.security)
            yield self._client
        except BrokerError as error:
            raise AdminError(str(error)) from error
        except ClientError as error:
            raise AdminError(f"{self.bootstrap} does not answer: {error}") from error

    def _settings(self) -> ClientSettings:
        return ClientSettings(
            client_id="odradek-operator",
            connect_timeout_s=CONNECT_TIMEOUT_S,
            request_timeout_s=REQUEST_TIMEOUT_S,
            read_timeout_s=READ_TIMEOUT_S,
            deadline_s=REQUEST_TIMEOUT_S,
            security=self.security,
        )

    # -- observe -----------------------------------------------------------------------------------

    def observe(
        self, settings: Iterable[str] = (), topic_settings: Iterable[str] = ()
    ) -> ObservedKafka:
        """All that a plan needs; of topics and brokers only the settings that are named."""
        with self._connected() as client:
            cluster = brokers.describe_cluster(client)
            state = quorum.describe_quorum(client)
            # Listed before and after the topics, so that a reassignment that begins or ends
            # meanwhile is not taken for extra replicas.
            moves = partitions.list_reassignments(client)
            found = {n: t for n, t in client.metadata().topics.items() if t.error is None}
            moves |= partitions.list_reassignments(client)
            topic_configs = self._topic_configs(client, found, {MIN_ISR, *topic_settings})
            live = frozenset(b.broker_id for b in cluster.brokers.values() if not b.fenced)
            return ObservedKafka(
                cluster_id=cluster.cluster_id,
                controller=state.leader_id,
                voters=frozenset(voter.node_id for voter in state.voters),
                lagging_voters=_lagging(state.voters),
                voter_listeners=state.listeners_of,
                registered={b.broker_id: b.rack or "" for b in cluster.brokers.values()},
                live=live,
                partitions=tuple(partitions_of(found, moves, topic_configs)),
                topics={name: _topic(topic, topic_configs[name]) for name, topic in found.items()},
                settings=self._broker_settings(client, live, settings),
                log_dirs=self._ask_log_dirs(client, cluster),
            )

    def _ask_log_dirs(
        self, client: KafkaClient, cluster: brokers.ClusterDescription
    ) -> dict[int, tuple[LogDir, ...]]:
        if time.monotonic() >= self._log_dirs_until:
            addresses = {b.broker_id: b.address for b in cluster.brokers.values()}
            self._log_dirs = ask_log_dirs(client, addresses)
            self._log_dirs_until = time.monotonic() + LOG_DIRS_EVERY_S
        return self._log_dirs

    def _topic_configs(
        self, client: KafkaClient, names: Iterable[str], keys: set[str]
    ) -> dict[str, configs.Configs]:
        """Topic → its settings; none of a topic that was deleted meanwhile."""
        found: dict[str, configs.Configs] = {}
        for name, answer in configs.describe_configs(
            client, ResourceType.TOPIC, names, keys
        ).items():
            if isinstance(answer, ClientError) and not isinstance(answer, BrokerError):
                raise answer
            found[name] = {} if isinstance(answer, BrokerError) else answer
        return found

    def _broker_settings(
        self, client: KafkaClient, live: Iterable[int], keys: Iterable[str]
    ) -> dict[int, dict[str, BrokerSetting]]:
        """Broker → its settings; a broker that does not answer is left out."""
        wanted = sorted(keys)
        if not wanted:
            return {}
        names = [str(broker) for broker in sorted(live)]
        answers = configs.describe_configs(client, ResourceType.BROKER, names, wanted)
        return {
            int(broker): {
                name: BrokerSetting(
                    entry.value,
                    entry.read_only,
                    entry.source == ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG,
                )
                for name, entry in answer.items()
            }
            for broker, answer in answers.items()
            if not isinstance(answer, ClientError)  # shutting down: nothing is concluded
        }

    def log_sizes(self) -> LogSizes:
        """The bytes of every replica, of all brokers that answer."""
        with self._connected() as client:
            return log_sizes(client)

    def observe_users(self) -> ObservedUsers:
        with self._connected() as client:
            return observe_users(client)

    # -- change ------------------------------------------------------------------------------------

    def carry_out_user(self, action: UserAction) -> None:
        """Raises AdminError also if a broker refuses the action."""
        with self._connected() as client:
            carry_out_user(client, action)

    def create_topics(self, wanted: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
        """name → num_partitions, replication_factor, configs. Returns name → why not."""
        new = [
            NewTopic(
                name,
                options.get("num_partitions", BROKER_DEFAULT),
                options.get("replication_factor", BROKER_DEFAULT),
                options.get("configs", {}),
            )
            for name, options in wanted.items()
        ]
        with self._connected() as client:
            return _not_done(topics.create_topics(client, new))

    def grow_topics(self, counts: Mapping[str, int]) -> dict[str, str]:
        with self._connected() as client:
            return _not_done(topics.create_partitions(client, counts))

    def delete_topics(self, names: Sequence[str]) -> dict[str, str]:
        with self._connected() as client:
            return _not_done(topics.delete_topics(client, names))

    def alter_topic_configs(
        self, changes: Mapping[str, Mapping[str, str | None]]
    ) -> dict[str, str]:
        return self._alter(ResourceType.TOPIC, changes)

    def alter_broker_configs(self, changes: Mapping[str, str | None]) -> dict[str, str]:
        """For all brokers, also for those that join later."""
        refused = self._alter(ResourceType.BROKER, {configs.ALL_BROKERS: changes})
        return {"all brokers": refused[configs.ALL_BROKERS]} if refused else {}

    def load_files_again(self, node: int, settings: Mapping[str, str]) -> dict[str, str]:
        """Alters settings that name files to the values they have: Kafka then reads the files.

        The broker itself is asked, because it checks the files before.
        """
        return self._alter(ResourceType.BROKER, {str(node): settings}, Broker(node))

    def load_controllers_files_again(
        self, node: int, settings: Mapping[str, str], controllers: Iterable[str]
    ) -> dict[str, str]:
        """The same for a dedicated controller: only the active one of them answers for it.

        `controllers`: the addresses of their listeners, which clients cannot find by themselves.
        """
        changes = [ConfigChange(n, ConfigOperation.SET, v) for n, v in settings.items()]
        request = configs.alter_request(ResourceType.BROKER, {str(node): changes})
        why = "no controller answers"
        for address in controllers:
            try:
                connection = Connection(Address.parse(address), self._settings())
            except ClientError as error:
                why = str(error)
                continue
            try:
                deadline = Deadline(REQUEST_TIMEOUT_S)
                answer = connection.call(ApiKey.INCREMENTAL_ALTER_CONFIGS, request, deadline)
            except ClientError as error:
                why = str(error)
                continue
            finally:
                connection.close()
            refused = configs.refused(answer)
            if not refused:
                return {}
            why = next(iter(refused.values())).detail
        return {str(node): why}

    def _alter(
        self,
        kind: ResourceType,
        changes: Mapping[str, Mapping[str, str | None]] | Mapping[str, Mapping[str, str]],
        route: Route | None = None,
    ) -> dict[str, str]:
        operations = {
            name: [
                ConfigChange(key, ConfigOperation.DELETE)
                if value is None
                else ConfigChange(key, ConfigOperation.SET, value)
                for key, value in entries.items()
            ]
            for name, entries in changes.items()
        }
        with self._connected() as client:
            refused = configs.alter_configs(client, kind, operations, route)
        return {name: error.detail for name, error in refused.items()}

    def elect(self, wanted: Iterable[TopicPartition]) -> dict[str, str]:
        """The preferred replica of each partition becomes its leader; never an unclean one."""
        places = [ids.TopicPartition(*place) for place in wanted]
        with self._connected() as client:
            outcome = partitions.elect_leaders(client, ElectionType.PREFERRED, places)
        return {str(place): error.detail for place, error in outcome.items() if error is not None}

    def reassign(self, moves: Mapping[TopicPartition, Sequence[int]]) -> dict[str, str]:
        wanted = {ids.TopicPartition(*place): replicas for place, replicas in moves.items()}
        with self._connected() as client:
            refused = partitions.alter_reassignments(client, wanted)
        return {str(place): error.detail for place, error in refused.items()}

    def cancel_moves(self, wanted: Iterable[TopicPartition]) -> dict[str, str]:
        """Their partitions keep the old replicas; a move that has ended meanwhile stays."""
        places: dict[TopicPartition, None] = dict.fromkeys(wanted)
        with self._connected() as client:
            refused = partitions.alter_reassignments(client, places)
        ended = "NO_REASSIGNMENT_IN_PROGRESS"
        return {str(p): error.detail for p, error in refused.items() if error.name != ended}

    def set_throttle(
        self, at: Iterable[int], rate: float, topics: Mapping[str, Mapping[str, str]]
    ) -> dict[str, str]:
        with self._connected() as client:
            return set_throttle(client, at, rate, topics)

    def remove_throttle(self, at: Iterable[int], names: Iterable[str]) -> dict[str, str]:
        with self._connected() as client:
            return remove_throttle(client, at, names)

    def move_directories(self, moves: Mapping[int, Mapping[TopicPartition, str]]) -> dict[str, str]:
        with self._connected() as client:
            return move_directories(client, moves)

    def unregister(self, broker: int) -> dict[str, str]:
        with self._connected() as client, _unless("BROKER_ID_NOT_REGISTERED", broker) as refused:
            brokers.unregister_broker(client, broker)
        return refused

    def add_voter(self, broker: int) -> dict[str, str]:
        """An observer of our engine becomes a voter; it is reached as the other voters are."""
        with self._connected() as client:
            state = quorum.describe_quorum(client)
            registered = brokers.describe_cluster(client).brokers
            observer = next((o for o in state.observers if o.node_id == broker), None)
            if observer is None or not state.listener_names or broker not in registered:
                return {f"broker {broker}": "it does not follow the metadata quorum yet"}
            with _unless("DUPLICATE_VOTER", broker) as refused:
                address = registered[broker].address
                quorum.add_voter(client, observer, state.listener_names[0], address)
            return refused

    def remove_voter(self, broker: int) -> dict[str, str]:
        with self._connected() as client:
            state = quorum.describe_quorum(client)
            voter = next((v for v in state.voters if v.node_id == broker), None)
            if voter is None:
                return {}
            with _unless("VOTER_NOT_FOUND", broker) as refused:
                quorum.remove_voter(client, voter)
            return refused


# -- answers ---------------------------------------------------------------------------------------


def partitions_of(
    found: Mapping[str, TopicInfo],
    moves: Mapping[ids.TopicPartition, Reassignment],
    topic_configs: Mapping[str, configs.Configs],
) -> Iterator[Partition]:
    for name, topic in found.items():
        min_isr_entry = topic_configs[name].get(MIN_ISR)
        min_isr = int((min_isr_entry.value if min_isr_entry else None) or 1)
        for info in topic.partitions.values():
            move = moves.get(ids.TopicPartition(name, info.partition), _NO_MOVE)
            if move.removing and not set(move.removing) & set(info.replicas):
                move = _NO_MOVE  # it ended before the topic was described
            yield Partition(
                TopicPartition(name, info.partition),
                info.leader,
                info.replicas,
                frozenset(info.isr),
                min_isr,
                frozenset(move.adding) & set(info.replicas),
                frozenset(move.removing),
            )


def _topic(found: TopicInfo, config: configs.Configs) -> ObservedTopic:
    return ObservedTopic(
        found.name,
        str(found.topic_id),
        found.internal,
        len(found.partitions),
        {
            name: entry.value
            for name, entry in config.items()
            if entry.source == ConfigSource.DYNAMIC_TOPIC_CONFIG and entry.value is not None
        },
    )


def _lagging(voters: Sequence[quorum.QuorumReplica]) -> frozenset[int]:
    """Voters that were last caught up long before the leader; -1 (never) is the longest ago."""
    newest = max((voter.last_caught_up_ms for voter in voters), default=-1)
    return frozenset(v.node_id for v in voters if newest - v.last_caught_up_ms > VOTER_LAG_MAX_MS)


def _not_done(refused: Mapping[str, BrokerError]) -> dict[str, str]:
    return {name: e.detail for name, e in refused.items() if e.name not in _DONE}


@contextlib.contextmanager
def _unless(same_as_done: str, broker: int) -> Iterator[dict[str, str]]:
    """Collects the broker's refusals inside of the block, except "done already"."""
    refused: dict[str, str] = {}
    try:
        yield refused
    except BrokerError as error:
        if error.name != same_as_done:
            refused[f"broker {broker}"] = error.detail
