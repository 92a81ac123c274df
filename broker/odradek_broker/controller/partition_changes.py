"""The next state of one partition, as a record: its ISR, leader, replicas and what follows.

Every decision that changes partitions (fencing, AlterPartition, reassignment, elections, …) makes
a `PartitionUpdate`; this module adds what follows from it:

- a reassignment whose new replicas are all in sync is completed
- a leader that is gone or no longer allowed is replaced, or removed if no replica can replace it
- an ISR never loses its last members: when none of them is live, all stay in it, because nothing
  was written without them, and each of them may be the first to return
- a replica that leaves an ISR which is then below min.insync.replicas has every committed record
  while the ISR stays below (the leader commits nothing), so it may be elected: the eligible leader
  replicas of KIP-966. A replica that stopped uncleanly may have lost records: it becomes a
  *last known* one, which leads only when all in-sync and eligible replicas have lost their disks
- a replica whose directory is not one of its broker's directories is offline: a broker that
  returns with an empty disk leads nothing until it has caught up and joined the ISR again

    change = PartitionChanges(image, active_brokers(image), unclean_default=False)
    record = change.of(topic, 0, PartitionUpdate(isr=(1, 2)))     None if nothing changes
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any
from uuid import UUID

from odradek_broker.controller.elections import (
    NO_CANDIDATE,
    Elected,
    ElectionKind,
    elect_for_controlled_shutdown,
    elect_for_offline_partition,
    elect_for_reassignment,
    elect_preferred_replica,
)
from odradek_broker.metadata.image import MetadataImage, PartitionRegistration, TopicImage
from odradek_broker.metadata.records import (
    NO_LEADER,
    UNASSIGNED_DIRECTORY,
    PartitionChangeRecord,
    ResourceType,
)
from odradek_protocol.ids import BrokerId

Replicas = tuple[BrokerId, ...]
# Brokers that may lead, with their directories.
Live = Mapping[BrokerId, Collection[UUID]]

RECOVERED, RECOVERING = 0, 1

UNCLEAN = "unclean.leader.election.enable"
MIN_ISR = "min.insync.replicas"


class Strategy(Enum):
    OFFLINE = "offline partition"
    REASSIGNMENT = "reassignment"
    PREFERRED = "preferred replica"
    CONTROLLED_SHUTDOWN = "controlled shutdown"


class TopicRules:
    """The settings of topics that matter for elections."""

    def __init__(self, image: MetadataImage, *, unclean_default: bool) -> None:
        self._image = image
        self._unclean_default = unclean_default
        self._min_isr_default = _min_isr_default(image)

    def unclean(self, topic: str) -> bool:
        text = self._image.topic_config(topic).get(UNCLEAN)
        return self._unclean_default if text is None else text.strip().lower() == "true"

    def min_isr(self, topic: str) -> int:
        """The value in the metadata, which all brokers know; a value in a broker's own file does
        not count, because others may differ. With 1 no replica is ever eligible."""
        text = self._image.topic_config(topic).get(MIN_ISR)
        return self._min_isr_default if text is None else int(text)


def _min_isr_default(image: MetadataImage) -> int:
    own = [
        configs[MIN_ISR]
        for resource, configs in image.configs.items()
        if resource.type is ResourceType.BROKER and MIN_ISR in configs
    ]
    for_all = image.config(ResourceType.BROKER, "").get(MIN_ISR, "1")
    return min(map(int, [*own, for_all]))


def active_brokers(image: MetadataImage) -> dict[BrokerId, Collection[UUID]]:
    """Brokers that may lead: neither fenced nor in controlled shutdown."""
    return {broker.id: broker.log_dirs for broker in image.brokers.values() if broker.active}


def default_dir(image: MetadataImage, broker_id: BrokerId) -> UUID:
    """The directory of a new replica; a broker with several directories chooses it itself."""
    broker = image.brokers.get(broker_id)
    if broker is not None and len(broker.log_dirs) == 1:
        return broker.log_dirs[0]
    return UNASSIGNED_DIRECTORY


def is_lost(image: MetadataImage, partition: PartitionRegistration, replica: BrokerId) -> bool:
    """Whether its broker is registered without the directory of the replica, or not at all."""
    broker = image.brokers.get(replica)
    directory = partition.directories[partition.replicas.index(replica)]
    return broker is None or not broker.has_online_dir(directory)


@dataclass(frozen=True, slots=True)
class PartitionUpdate:
    """The fields of a partition that a decision changes; None: unchanged."""

    isr: Replicas | None = None
    replicas: Replicas | None = None
    removing: Replicas | None = None
    adding: Replicas | None = None
    directory: tuple[BrokerId, UUID] | None = None  # of one replica
    recovery: int | None = None


NO_UPDATE = PartitionUpdate()


@dataclass(slots=True)
class _Target:
    """The next state of a partition."""

    replicas: Replicas
    isr: Replicas
    removing: Replicas
    adding: Replicas
    directories: dict[BrokerId, UUID]
    recovery: int
    eligible: Replicas
    last_known: Replicas
    leader: BrokerId = NO_LEADER


def _target(partition: PartitionRegistration, update: PartitionUpdate) -> _Target:
    """The partition with the update applied, before its consequences."""
    replicas, removing, adding = update.replicas, update.removing, update.adding
    isr, recovery = update.isr, update.recovery
    target = _Target(
        replicas=partition.replicas if replicas is None else replicas,
        isr=partition.isr if isr is None else isr,
        removing=partition.removing_replicas if removing is None else removing,
        adding=partition.adding_replicas if adding is None else adding,
        directories=dict(zip(partition.replicas, partition.directories, strict=True)),
        recovery=partition.leader_recovery_state if recovery is None else recovery,
        eligible=partition.eligible_leader_replicas,
        last_known=partition.last_known_elr,
    )
    if update.directory is not None:
        replica, directory = update.directory
        target.directories[replica] = directory
    return target


@dataclass(slots=True)
class PartitionChanges:
    """The partition changes of one decision, against one image."""

    image: MetadataImage
    live: Live
    unclean_default: bool = False
    shutting_down: Collection[BrokerId] = ()
    _rules: TopicRules = field(init=False)

    def __post_init__(self) -> None:
        self._rules = TopicRules(self.image, unclean_default=self.unclean_default)

    def of(
        self,
        topic: TopicImage,
        index: int,
        update: PartitionUpdate = NO_UPDATE,
        strategy: Strategy = Strategy.OFFLINE,
        *,
        unclean: bool | None = None,
        unclean_stop: BrokerId | None = None,
    ) -> PartitionChangeRecord | None:
        """The record, or None if nothing changes.

        `unclean`: whether an unclean election is allowed; None means as the topic's settings say.
        `unclean_stop`: a broker that stopped without a clean shutdown since its last registration.
        """
        partition = topic.partitions[index]
        target = _target(partition, update)
        if target.adding or target.removing:
            _complete_reassignment(target)
        self._set_directories(partition, target)
        if unclean is None:
            unclean = self._rules.unclean(topic.name)
        self._elect(partition, target, strategy, unclean, unclean_stop)
        self._set_eligible(topic.name, partition, target, unclean_stop)
        return _record(topic, index, partition, target)

    # -- directories -------------------------------------------------------------------------

    def _set_directories(self, partition: PartitionRegistration, target: _Target) -> None:
        for replica in target.replicas:
            if replica not in target.directories:
                target.directories[replica] = default_dir(self.image, replica)
        for replica in target.isr:
            if replica not in partition.isr and not self._there(replica, target):
                # It lost its old directory, and has caught up in another.
                target.directories[replica] = default_dir(self.image, replica)

    def _there(self, replica: BrokerId, target: _Target) -> bool:
        directory = target.directories[replica]
        return directory == UNASSIGNED_DIRECTORY or directory in self.live.get(replica, ())

    # -- the leader ----------------------------------------------------------------------------

    def _elect(
        self,
        partition: PartitionRegistration,
        target: _Target,
        strategy: Strategy,
        unclean: bool,
        unclean_stop: BrokerId | None,
    ) -> None:
        live = [r for r in target.replicas if r in self.live and self._there(r, target)]
        current = partition.leader
        elected = NO_CANDIDATE
        if strategy is Strategy.PREFERRED:
            elected = elect_preferred_replica(live, target.isr, target.replicas)
        if elected is NO_CANDIDATE and current in target.isr and current in live:
            elected = Elected(current)
        if elected is NO_CANDIDATE and strategy is Strategy.REASSIGNMENT:
            elected = elect_for_reassignment(live, target.isr, target.replicas)
        elif elected is NO_CANDIDATE and strategy is Strategy.CONTROLLED_SHUTDOWN:
            elected = elect_for_controlled_shutdown(live, target.isr, self.shutting_down)
        if elected is NO_CANDIDATE:
            eligible = [r for r in target.eligible if r != unclean_stop]
            elected = elect_for_offline_partition(live, target.isr, eligible)
        if elected is NO_CANDIDATE and target.last_known and self._all_holders_lost(partition):
            last_known = [r for r in live if r in target.last_known]
            elected = elect_for_offline_partition(last_known, (), unclean=True)
        if elected is NO_CANDIDATE and unclean:
            elected = self._elect_unclean(partition, target, live)
        target.leader = elected.leader
        if elected.kind is not ElectionKind.CLEAN:
            target.isr = (elected.leader,)
            if elected.kind is ElectionKind.UNCLEAN:
                target.recovery = RECOVERING
        elif elected.leader not in (current, NO_LEADER):
            # Drop members that stayed only because no other member was live.
            target.isr = tuple(r for r in target.isr if r in live)

    def _all_holders_lost(self, partition: PartitionRegistration) -> bool:
        """Whether all replicas that had every committed record have lost their disks."""
        held = (*partition.isr, *partition.eligible_leader_replicas)
        return all(is_lost(self.image, partition, replica) for replica in held)

    def _elect_unclean(
        self, partition: PartitionRegistration, target: _Target, live: Sequence[BrokerId]
    ) -> Elected:
        """Prefers replicas that were in sync lately; an empty disk only if all have lost theirs."""
        likely = [r for r in live if r in target.eligible or r in target.last_known]
        elected = elect_for_offline_partition(likely or live, (), unclean=True)
        if elected is NO_CANDIDATE and all(
            is_lost(self.image, partition, r) for r in partition.replicas
        ):
            there = [replica for replica in target.replicas if replica in self.live]
            elected = elect_for_offline_partition(there, (), unclean=True)
            if elected is not NO_CANDIDATE:
                target.directories[elected.leader] = default_dir(self.image, elected.leader)
        return elected

    # -- KIP-966 -------------------------------------------------------------------------------

    def _set_eligible(
        self,
        topic: str,
        partition: PartitionRegistration,
        target: _Target,
        unclean_stop: BrokerId | None,
    ) -> None:
        min_isr = min(self._rules.min_isr(topic), len(target.replicas))
        if len(target.isr) >= min_isr:
            target.eligible = target.last_known = ()
            return
        held = {*partition.isr, *partition.eligible_leader_replicas}
        lost = {r for r in partition.replicas if is_lost(self.image, partition, r)}
        unclean_election = target.recovery == RECOVERING
        rest = [r for r in target.replicas if r not in target.isr and r not in lost]
        target.eligible = tuple(
            r for r in rest if r in held and r != unclean_stop and not unclean_election
        )
        target.last_known = tuple(
            r
            for r in rest
            if r not in target.eligible
            and (r in partition.last_known_elr or (r == unclean_stop and r in held))
        )


def _complete_reassignment(target: _Target) -> None:
    """If all replicas of the target are in sync, removes the others."""
    replicas = tuple(r for r in target.replicas if r not in target.removing)
    isr = tuple(r for r in target.isr if r not in target.removing)
    if isr and set(replicas) <= set(isr):
        target.replicas, target.isr = replicas, isr
        target.removing = target.adding = ()


def _record(
    topic: TopicImage, index: int, before: PartitionRegistration, target: _Target
) -> PartitionChangeRecord | None:
    directories = tuple(target.directories[replica] for replica in target.replicas)
    changes: dict[str, Any] = {
        name: value
        for name, value, old in (
            ("isr", target.isr, before.isr),
            ("leader", target.leader, before.leader),
            ("replicas", target.replicas, before.replicas),
            ("removing_replicas", target.removing, before.removing_replicas),
            ("adding_replicas", target.adding, before.adding_replicas),
            ("leader_recovery_state", target.recovery, before.leader_recovery_state),
            ("directories", directories, before.directories),
            ("eligible_leader_replicas", target.eligible, before.eligible_leader_replicas),
            ("last_known_elr", target.last_known, before.last_known_elr),
        )
        if value != old
    }
    if not changes:
        return None
    if not set(before.replicas) <= set(target.replicas):
        # The new leader epoch fences the replicas that were removed.
        changes["leader"] = target.leader
    return PartitionChangeRecord(index, topic.id, **changes)


def without(isr: Sequence[BrokerId], gone: Collection[BrokerId]) -> Replicas:
    """The ISR without some members; unchanged if none would be left."""
    return tuple(replica for replica in isr if replica not in gone) or tuple(isr)
