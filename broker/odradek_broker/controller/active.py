"""The active controller without its log: its state, and every decision it can make. Does no I/O.

`service.py` drives it over the quorum, the simulation over a simulated one. A method takes a
request and returns a `ControllerResult`; it does not change the metadata. The caller appends the
records and calls `replay` before the next decision:

    result = active.alter_partition(request)
    log.append(result.records)
    active.replay(result.records, last_offset)

Besides the image it holds state that is not in the log: when each broker last sent a heartbeat,
and when the periodic tasks are next due. `now_ms` is monotonic.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import partial
from math import inf
from random import Random

from odradek_broker.controller import (
    acls,
    alter_partition,
    brokers,
    client_quotas,
    configs,
    delegation_tokens,
    directories,
    features,
    leader_election,
    producer_ids,
    reassignments,
    rebalance,
    scram,
    topics,
)
from odradek_broker.controller.context import ControllerContext, at_once
from odradek_broker.controller.delegation_tokens import Asker, TokenRules
from odradek_broker.controller.eligible_replicas import drop_where_min_isr_fell
from odradek_broker.controller.heartbeats import (
    BrokerSessions,
    BrokerState,
    answer_to,
    state_of,
)
from odradek_broker.controller.partition_changes import active_brokers
from odradek_broker.controller.result import ControllerResult, Sweep
from odradek_broker.metadata.delta import MetadataDelta
from odradek_broker.metadata.image import MetadataImage
from odradek_broker.metadata.records import MetadataRecord
from odradek_broker.model.principal import Principal
from odradek_broker.runtime.settings import Settings
from odradek_protocol.error_codes import ErrorCode
from odradek_protocol.ids import BrokerId, LeaderEpoch, Offset
from odradek_protocol.messages.struct import Struct

logger = logging.getLogger(__name__)

# A live broker whose connection broke reconnects at once; one heartbeat may get lost.
HEARTBEATS_OF_GRACE = 2
# A decision that looks at more partitions than this takes longer than 20 ms.
SWEEP_MAX = 1000


def delta_of(image: MetadataImage, records: Sequence[MetadataRecord]) -> MetadataDelta:
    """The delta of the records, not finished yet."""
    delta = MetadataDelta(image)
    for record in records:
        delta.replay(record)
    return delta


class PeriodicTask(Enum):
    """The decisions that the controller makes without a request, in this order. The records of one
    task must be appended and replayed before the next task is decided."""

    FENCE_SILENT_BROKERS = "fence brokers whose session ended"
    BALANCE_LEADERS = "move leadership back to preferred replicas"
    ELECT_WHERE_LEADERLESS = "elect leaders of partitions that have none, uncleanly if allowed"
    REMOVE_EXPIRED_TOKENS = "remove expired delegation tokens"


NOTHING_DUE: ControllerResult[None] = ControllerResult([], None)


@dataclass(frozen=True, slots=True)
class Term:
    """The time for which a node is the active controller."""

    epoch: LeaderEpoch
    image: MetadataImage  # everything committed before
    began_ms: float  # monotonic


class ActiveController:
    def __init__(
        self,
        term: Term,
        settings: Settings,
        rng: Random,
        cluster_id: str,
        *,
        wall_ms: Callable[[], int] = lambda: 0,
        in_slices: Callable[[Iterator[None]], None] = at_once,
    ) -> None:
        """`in_slices` runs work that may take long and that no decision depends on."""
        image, now_ms = term.image, term.began_ms
        self.epoch = term.epoch
        self.latest = image  # everything appended: decisions are made against it
        self._in_slices = in_slices
        self.context = ControllerContext(wall_ms=wall_ms)  # of everything committed
        in_slices(self.context.load(image))
        timeout_ms = settings.int("broker.session.timeout.ms")
        self.sessions = BrokerSessions(image, now_ms, timeout_ms)
        self._settings = settings
        self._rng = rng
        self._cluster_id = cluster_id
        self._balance_at_ms = now_ms + self._balance_interval_ms
        self._unclean_at_ms = now_ms + settings.int("unclean.leader.election.interval.ms")
        self._wall_ms = wall_ms
        self._tokens = TokenRules.of(settings)
        enabled = self._tokens.key is not None
        self._tokens_at_ms = now_ms + self._tokens.check_interval_ms if enabled else inf

    def first_records(self, users: Sequence[MetadataRecord] = ()) -> Sequence[MetadataRecord]:
        """The records that a new controller writes first: those of a new cluster, with the users
        that it begins with, or new leaders of partitions whose leader is absent."""
        if not self.latest.features:
            return [*brokers.bootstrap(), *users]
        return brokers.replace_absent_leaders(self.latest, unclean_default=self._unclean)

    def replay(self, records: Sequence[MetadataRecord], last_offset: Offset) -> None:
        """Applies records that were appended; `last_offset` is the offset of the last one."""
        self.latest = delta_of(self.latest, records).finish(last_offset).after

    def committed(self, delta: MetadataDelta) -> None:
        self._in_slices(self.context.steps(delta))

    # -- brokers -------------------------------------------------------------------------------

    def register_broker(
        self, request: Struct, next_offset: Offset, now_ms: float
    ) -> ControllerResult[Struct]:
        """BrokerRegistration. `next_offset` is the offset that its first record will get."""
        existing = self.latest.brokers.get(request.broker_id)
        result = brokers.register(
            self.latest,
            request,
            cluster_id=self._cluster_id,
            next_offset=next_offset,
            is_alive=existing is not None and self.sessions.is_valid(existing, now_ms),
            unclean_default=self._unclean,
        )
        self.sessions.begin(request.broker_id, now_ms)
        answer = Struct(error_code=ErrorCode.none, broker_epoch=result.response)
        if result.sweep is None or self.has_many_partitions:
            return ControllerResult(result.records, answer, result.sweep)
        return ControllerResult(result.all_records(), answer)

    def heartbeat(
        self, request: Struct, next_offset: Offset, now_ms: float
    ) -> ControllerResult[Struct]:
        """BrokerHeartbeat. `next_offset` is the offset that its first record will get."""
        image = self.latest
        broker = brokers.check_epoch(image, request.broker_id, request.broker_epoch)
        offset = request.current_metadata_offset
        failed = request.offline_log_dirs
        self.sessions.heard(broker.id, offset, now_ms, failed)
        self.context.deletions.broker_at(broker.id, offset)
        if broker.in_controlled_shutdown:  # it may have begun under another controller
            self.sessions.shutting_down(broker.id, image.offset)
        before = state_of(broker)
        stops = request.want_shut_down or broker.in_controlled_shutdown
        after = answer_to(
            before,
            want_fence=request.want_fence or directories.has_none_left(broker, failed),
            want_shut_down=request.want_shut_down,
            caught_up=offset >= broker.epoch,
            leads=stops and brokers.leads_any(image, broker.id),
            may_stop=self.sessions.may_stop(image, broker.id),
        )
        sweep: Sweep | None = None
        unclean = self._unclean
        if after is not before and not (after is BrokerState.SHUTDOWN_NOW and broker.fenced):
            logger.info("broker %d is %s, was %s", broker.id, after.value, before.value)
        if after in (BrokerState.FENCED, BrokerState.SHUTDOWN_NOW) and not broker.fenced:
            sweep = partial(brokers.fence, image, [broker.id], unclean_default=unclean)
        elif after is BrokerState.UNFENCED and broker.fenced:
            sweep = partial(brokers.unfence, image, broker.id, unclean_default=unclean)
        elif after is BrokerState.CONTROLLED_SHUTDOWN and not broker.in_controlled_shutdown:
            sweep = partial(
                brokers.start_controlled_shutdown, image, broker.id, unclean_default=unclean
            )
        elif directories.has_failed(broker, failed):
            # Last, because the next heartbeat reports it again.
            sweep = partial(
                directories.directories_failed, image, broker, failed, unclean_default=unclean
            )
        answer = Struct(
            error_code=ErrorCode.none,
            is_caught_up=offset >= broker.epoch,
            is_fenced=after in (BrokerState.FENCED, BrokerState.SHUTDOWN_NOW),
            should_shut_down=after is BrokerState.SHUTDOWN_NOW,
        )
        if sweep is None or self.has_many_partitions:
            return ControllerResult([], answer, sweep)
        records = sweep()
        if after is BrokerState.CONTROLLED_SHUTDOWN and not broker.in_controlled_shutdown:
            self.sessions.shutting_down(broker.id, next_offset + len(records) - 1)
        return ControllerResult(records, answer)

    @property
    def has_many_partitions(self) -> bool:
        """Whether a decision that looks at each of them would block the loop for too long."""
        return sum(len(topic.partitions) for topic in self.latest.topics.values()) > SWEEP_MAX

    def unregister_broker(self, request: Struct) -> ControllerResult[Struct]:
        result = brokers.unregister(self.latest, request.broker_id, unclean_default=self._unclean)
        self.sessions.end(request.broker_id)
        return result

    # -- partitions ----------------------------------------------------------------------------

    def alter_partition(self, request: Struct) -> ControllerResult[Struct]:
        return alter_partition.alter_partition(
            self.latest,
            request,
            unclean_default=self._unclean,
            offline_dirs=self.sessions.offline_dirs(),
        )

    def assign_replicas_to_dirs(self, request: Struct) -> ControllerResult[Struct]:
        return directories.assign_replicas_to_dirs(
            self.latest, request, unclean_default=self._unclean
        )

    def alter_partition_reassignments(self, request: Struct) -> ControllerResult[Struct]:
        return reassignments.alter_partition_reassignments(
            self.latest, request, unclean_default=self._unclean
        )

    def elect_leaders(self, request: Struct) -> ControllerResult[Struct]:
        return leader_election.elect_leaders(self.latest, request)

    # -- topics, configurations, the rest --------------------------------------------------------

    def create_topics(self, request: Struct) -> ControllerResult[Struct]:
        return topics.create_topics(self.latest, request, self._settings, self._rng)

    def delete_topics(
        self, request: Struct, charge: topics.Charge = topics.free
    ) -> ControllerResult[Struct]:
        enabled = self._settings.bool("delete.topic.enable")
        return topics.delete_topics(self.latest, request, charge, enabled=enabled)

    def create_partitions(self, request: Struct) -> ControllerResult[Struct]:
        return topics.create_partitions(self.latest, request, self._rng)

    def incremental_alter_configs(self, request: Struct) -> ControllerResult[Struct]:
        result = configs.incremental_alter_configs(self.latest, request, self._settings)
        return drop_where_min_isr_fell(self.latest, result)

    def alter_configs(self, request: Struct) -> ControllerResult[Struct]:
        result = configs.alter_configs(self.latest, request, self._settings)
        return drop_where_min_isr_fell(self.latest, result)

    def alter_user_scram_credentials(self, request: Struct) -> ControllerResult[Struct]:
        return scram.alter_user_scram_credentials(self.latest, request)

    def create_delegation_token(
        self, request: Struct, principal: Principal
    ) -> ControllerResult[Struct]:
        return delegation_tokens.create(self._tokens, request, self._asker(principal), self._rng)

    def renew_delegation_token(
        self, request: Struct, principal: Principal
    ) -> ControllerResult[Struct]:
        return delegation_tokens.renew(self.latest, self._tokens, request, self._asker(principal))

    def expire_delegation_token(
        self, request: Struct, principal: Principal
    ) -> ControllerResult[Struct]:
        return delegation_tokens.expire(self.latest, self._tokens, request, self._asker(principal))

    def _asker(self, principal: Principal) -> Asker:
        return Asker(principal, self._wall_ms())

    def create_acls(self, request: Struct) -> ControllerResult[Struct]:
        return acls.create_acls(self.latest, request, self._rng)

    def delete_acls(self, request: Struct) -> ControllerResult[Struct]:
        return acls.delete_acls(self.latest, request)

    def alter_client_quotas(self, request: Struct) -> ControllerResult[Struct]:
        return client_quotas.alter_client_quotas(self.latest, request)

    def allocate_producer_ids(self, request: Struct) -> ControllerResult[Struct]:
        return producer_ids.allocate_producer_ids(self.latest, request)

    def update_features(self, request: Struct) -> ControllerResult[Struct]:
        return features.update_features(self.latest, request, self._settings.node_id)

    def lost_contact(self, broker_id: BrokerId, now_ms: float) -> None:
        """The broker's connection broke. A live broker returns with its next heartbeat."""
        broker = self.latest.brokers.get(broker_id)
        if broker is not None and not broker.fenced:
            grace_ms = HEARTBEATS_OF_GRACE * self._settings.int("broker.heartbeat.interval.ms")
            logger.info(
                "broker %d closed its connection; it is fenced unless it returns within %d ms",
                broker_id,
                grace_ms,
            )
            self.sessions.suspect(broker_id, now_ms + grace_ms)

    def was_away(self, pause_ms: float, now_ms: float) -> None:
        """The controller's own loop was blocked: that time does not count against any session."""
        self.sessions.grant(pause_ms, now_ms)

    # -- periodic work -----------------------------------------------------------------------------

    def decide_periodic(self, task: PeriodicTask, now_ms: float) -> ControllerResult[None]:
        """The decision of one task; without records and sweep if nothing is due."""
        match task:
            case PeriodicTask.FENCE_SILENT_BROKERS:
                return self._fence_silent_brokers(now_ms)
            case PeriodicTask.BALANCE_LEADERS:
                return self._balance_leaders(now_ms)
            case PeriodicTask.ELECT_WHERE_LEADERLESS:
                return self._elect_where_leaderless(now_ms)
            case PeriodicTask.REMOVE_EXPIRED_TOKENS:
                return self._remove_expired_tokens(now_ms)

    def next_periodic_ms(self) -> float:
        """When a periodic task is due at the earliest."""
        return min(
            self.sessions.next_expiry_ms(self.latest),
            self._balance_at_ms,
            self._unclean_at_ms,
            self._tokens_at_ms,
        )

    def _fence_silent_brokers(self, now_ms: float) -> ControllerResult[None]:
        expired = self.sessions.expired(self.latest, now_ms)
        if not expired:
            return NOTHING_DUE
        for broker_id in expired:
            silent_ms = self.sessions.silent_ms(broker_id, now_ms)
            logger.warning("broker %d is fenced: silent for %d ms", broker_id, silent_ms or 0)
        # Fence them together, or one dead broker is elected after another.
        return self._swept(
            partial(brokers.fence, self.latest, expired, unclean_default=self._unclean)
        )

    def _balance_leaders(self, now_ms: float) -> ControllerResult[None]:
        if now_ms < self._balance_at_ms:
            return NOTHING_DUE
        self._balance_at_ms = now_ms + self._balance_interval_ms
        if not self._settings.bool("auto.leader.rebalance.enable"):
            return NOTHING_DUE
        percentage = self._settings.int("odradek.leader.imbalance.per.broker.percentage")
        records = rebalance.balance_leaders(self.latest, percentage)
        if records:
            logger.info("moving %d partitions back to their preferred leaders", len(records))
        if len(records) >= rebalance.ELECTIONS_MAX:
            self._balance_at_ms = 0.0  # there may be more: due again at once
        return ControllerResult(records, None)

    def _elect_where_leaderless(self, now_ms: float) -> ControllerResult[None]:
        if now_ms < self._unclean_at_ms:
            return NOTHING_DUE
        interval_ms = self._settings.int("unclean.leader.election.interval.ms")
        self._unclean_at_ms = now_ms + interval_ms
        return self._swept(
            partial(
                brokers.elect_where_leaderless,
                self.latest,
                active_brokers(self.latest),
                unclean_default=self._unclean,
            )
        )

    def _remove_expired_tokens(self, now_ms: float) -> ControllerResult[None]:
        if now_ms < self._tokens_at_ms:
            return NOTHING_DUE
        self._tokens_at_ms = now_ms + self._tokens.check_interval_ms
        records = delegation_tokens.remove_expired(self.latest, self._wall_ms())
        if records:
            logger.info("removing %d expired delegation tokens", len(records))
        if len(records) >= delegation_tokens.REMOVED_MAX:
            self._tokens_at_ms = 0.0  # there may be more: due again at once
        return ControllerResult(records, None)

    def _swept(self, sweep: Sweep) -> ControllerResult[None]:
        """The result: with many partitions the sweep is left to the caller, else it runs here."""
        if self.has_many_partitions:
            return ControllerResult([], None, sweep)
        return ControllerResult(sweep(), None)

    @property
    def _balance_interval_ms(self) -> float:
        return self._settings.int("leader.imbalance.check.interval.seconds") * 1000.0

    @property
    def _unclean(self) -> bool:
        return self._settings.bool("unclean.leader.election.enable")
