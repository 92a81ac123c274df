"""One run of a quorum: cluster, load, faults, heal, and then all nodes must agree.

    0 s         faults, client writes, snapshots, an operator who changes voters
    FAULTS_MS   heal; the load stops, the operator replaces voters whose disk is gone
    + LIVE_MS   at the latest: one leader, all nodes follow it and have all it has
    then        a follower is cut off and returns: the leader must still be the same

Timeouts are a few hundred ms (Kafka's are seconds): only their relation to latencies and to the
length of the faults matters.
"""

from __future__ import annotations

import traceback
from collections import Counter
from dataclasses import dataclass, field, replace
from random import Random

from broker_tests.sim.faults import Fault, Injector, draw_schedule, shrink
from broker_tests.sim.network import Weather
from broker_tests.sim.outcome import RunOutcome
from broker_tests.sim.raft_checker import RaftChecker
from broker_tests.sim.raft_node import RaftNode, Ticket, new_uuid
from broker_tests.sim.world import SimulationError, World
from odradek_broker.raft.config import QuorumConfig
from odradek_broker.raft.errors import RaftError
from odradek_broker.raft.messages import AddVoterRequest, RemoveVoterRequest, Request
from odradek_broker.raft.quorum_state import QuorumState
from odradek_broker.raft.states import Role
from odradek_broker.raft.types import ClientAppend, ReceivedRequest, Resign
from odradek_broker.raft.values import ReplicaKey
from odradek_broker.raft.voters import Voter, VoterSet

FAULTS_MS = 10_000
LIVE_MS = 6_000
CALM_MS = 1_500  # the quiet leader is watched this long after the cut follower is back
CALM_CONFIG = QuorumConfig(
    fetch_bytes_max=10_000,
    election_timeout_ms=200,
    election_backoff_max_ms=200,
    fetch_timeout_ms=400,
    request_timeout_ms=300,
    retry_backoff_ms=30,
    fetch_max_wait_ms=150,
    snapshot_chunk_bytes=5,
)


def hasty_config(latency_max_ms: int) -> QuorumConfig:
    """Timeouts so short that elections collide: several candidates in one epoch, leaders that are
    replaced after a few writes."""
    return replace(
        CALM_CONFIG,
        election_timeout_ms=2 * latency_max_ms + 5,
        election_backoff_max_ms=50,
        fetch_timeout_ms=200,
        fetch_max_wait_ms=60,
    )


FETCH_BYTES_MAX = (1, 300)  # one batch or a few: catching up takes several fetches
FETCH_BYTES_HEALED = 10_000  # how long it takes to catch up then says something
OPERATOR = Ticket(None, 0)


@dataclass
class Outcome(RunOutcome):
    epochs: int = 0
    committed: int = 0
    seen: Counter[str] = field(default_factory=Counter)


class RaftRun:
    def __init__(
        self,
        seed: int | str,
        *,
        faults: tuple[Fault, ...] | None = None,
        keep_trace: bool = False,
    ) -> None:
        self.world = World(seed, keep_trace=keep_trace)
        self.checker = RaftChecker(self.world)
        setup_rng = self.world.rng("setup")
        weather = Weather(
            latency_max_ms=setup_rng.choice((4, 10, 30)),
            duplication=setup_rng.choice((0.0, 0.05)),
        )
        self.injector = Injector(self.world, self._may_wipe, self._leader_id, weather)
        self._load_rng = self.world.rng("load")
        self._operator_rng = self.world.rng("operator")
        self._writes = 0
        self._loaded = True
        node_ids = tuple(range(1, setup_rng.choice((3, 3, 4, 5)) + 1))
        self._voters_wanted = setup_rng.choice((1, 3, 3, 3, min(5, len(node_ids))))
        # A cluster starts with one voter or with all of them.
        first = node_ids[: setup_rng.choice((1, self._voters_wanted, self._voters_wanted))]
        self._changes_voters = setup_rng.random() < 0.6
        hasty = hasty_config(weather.latency_max_ms)
        self.config = setup_rng.choice((CALM_CONFIG, hasty))
        self._add_nodes(node_ids, first, setup_rng)
        drawn = draw_schedule(self.world.rng("faults"), node_ids, FAULTS_MS)
        self.faults = drawn if faults is None else faults
        self.injector.schedule(self.faults)

    def _add_nodes(self, node_ids: tuple[int, ...], first: tuple[int, ...], rng: Random) -> None:
        config = replace(self.config, fetch_bytes_max=rng.choice(FETCH_BYTES_MAX))
        voters = VoterSet(tuple(Voter(ReplicaKey(i, new_uuid(rng))) for i in first))
        for node_id in node_ids:
            node = RaftNode(
                self.world,
                node_id,
                config,
                formatted_with=voters if node_id in first else VoterSet(),
                peers=node_ids,
                checker=self.checker,
                injector=self.injector,
            )
            self.checker.nodes[node_id] = node
            self.world.add(node_id, node)

    @property
    def nodes(self) -> dict[int, RaftNode]:
        return self.checker.nodes

    # ------------------------------------------------------------ phases

    def run(self) -> Outcome:
        """All phases; a failure of any kind is part of the outcome."""
        outcome = Outcome(self.world.seed, faults=self.faults)
        try:
            self._run_phases(outcome)
        except (SimulationError, RaftError) as error:
            outcome.failure = f"{type(error).__name__}: {error}"
        except Exception:
            outcome.failure = traceback.format_exc(limit=-4)
        outcome.trace_hash = self.world.trace_hash()
        outcome.trace = self.world.trace or []
        outcome.events = self.world.events
        outcome.epochs = max(self.checker.leaders, default=0)
        outcome.committed = len(self.checker.committed_log)
        outcome.seen = self.checker.seen
        return outcome

    def _run_phases(self, outcome: Outcome) -> None:
        world = self.world
        for node_id in self.nodes:
            world.start(node_id)
        world.after(50, self._client_writes)
        world.after(200, self._somebody_snapshots)
        world.after(300, self._operate)
        world.run_until(FAULTS_MS)
        self._loaded = False
        for node in self.nodes.values():
            node.config = replace(node.config, fetch_bytes_max=FETCH_BYTES_HEALED)
        self.injector.heal()
        self._settle("after the faults")
        outcome.healed_in_ms = world.now_ms - FAULTS_MS
        self._cut_off_a_follower()

    def _settle(self, when: str) -> None:
        """One leader; everybody follows it and has everything it has."""
        deadline_ms = self.world.now_ms + LIVE_MS
        while self.world.now_ms < deadline_ms:
            self.world.run_until(self.world.now_ms + 100)
            if self._unsettled() is None:
                return
        raise SimulationError(f"{when}: not settled after {LIVE_MS} ms: {self._unsettled()}")

    def _unsettled(self) -> str | None:
        states = self._states()
        leaders = [state for state in states if state.role is Role.LEADER]
        if len(leaders) != 1:
            roles = " ".join(f"{s.key.id}:{s.role.value}@{s.epoch}" for s in states)
            return f"{len(leaders)} leaders ({roles})"
        leader = leaders[0]
        for state in states:
            if state is not leader and state.leader_id != leader.key.id:
                return f"{state.key.id} is {state.role.value} in epoch {state.epoch}"
            if (state.log.end, state.high_watermark) != (leader.log.end, leader.log.end_offset):
                return (
                    f"{state.key.id} is at {state.log.end}, committed {state.high_watermark}, "
                    f"leader {leader.key.id} at {leader.log.end}"
                )
        if not leader.is_voter:
            return f"leader {leader.key.id} is no voter"
        return f"a voter of {leader.voters.keys} is gone" if self._lost_voter(leader) else None

    def _cut_off_a_follower(self) -> None:
        """With pre-vote, a node that was isolated does not depose a healthy leader."""
        world = self.world
        leader = next(state for state in self._states() if state.role is Role.LEADER)
        others = [voter.key.id for voter in leader.other_voters()]
        if len(others) < 2:
            return  # without it there would be no majority
        follower = self._operator_rng.choice(others)
        links = [(follower, other) for other in self.nodes if other != follower]
        links += [(b, a) for a, b in links]
        epoch = leader.epoch
        world.record(f"cut off {follower}")
        world.network.cut(links)
        world.run_until(world.now_ms + 4 * self.config.fetch_timeout_ms)
        world.network.repair(links)
        world.run_until(world.now_ms + CALM_MS)
        now = self._unsettled()
        if now is not None or leader.role is not Role.LEADER or leader.epoch != epoch:
            raise SimulationError(
                f"the return of {follower} disturbed leader {leader.key.id} of epoch {epoch}: "
                f"{now or f'it is {leader.role.value} in epoch {leader.epoch}'}"
            )

    def _states(self) -> list[QuorumState]:
        return [node.state for node in self.nodes.values() if node.state is not None]

    def _leader_id(self) -> int | None:
        """The one with the highest epoch, if several believe that they lead."""
        leaders = [state for state in self._states() if state.role is Role.LEADER]
        return max(leaders, key=lambda state: state.epoch).key.id if leaders else None

    # ------------------------------------------------------------ load

    def _client_writes(self) -> None:
        """To a node that believes that it leads; there can be more than one."""
        if not self._loaded:
            return
        rng = self._load_rng
        leaders = [node for node in self.nodes.values() if node.is_leader]
        if leaders:
            node = rng.choice(leaders)
            self.world.after_on(node.node_id, 0, self._write, node)
        self.world.after(rng.randint(1, 60), self._client_writes)

    def _write(self, node: RaftNode) -> None:
        if node.state is not None and node.is_leader:
            self._writes += 1
            data = b"%d" % self._writes
            count = self._load_rng.randint(1, 3)
            node.give(ClientAppend(node.state.epoch, count, data))

    def _somebody_snapshots(self) -> None:
        rng = self._load_rng
        node = rng.choice(list(self.nodes.values()))
        host = self.world.hosts[node.node_id]
        if host.up:
            self.world.after_on(node.node_id, 0, node.take_snapshot)
        if self._loaded:
            self.world.after(rng.randint(100, 1200), self._somebody_snapshots)

    # ------------------------------------------------------------ operator

    def _operate(self) -> None:
        """Replaces lost voters; while there is load, also changes voters at random."""
        rng = self._operator_rng
        for node in self.nodes.values():
            if not node.is_leader or node.state is None:
                continue
            request = self._voter_change(node.state)
            if request is not None:
                self.world.record(f"operator {node.node_id} {type(request).__name__}")
                event = ReceivedRequest(OPERATOR, request)
                self.world.after_on(node.node_id, 0, node.give, event)
            elif self._loaded and rng.random() < 0.1:
                self.world.record(f"operator {node.node_id} resign")
                self.world.after_on(node.node_id, 0, node.give, Resign())
        self.world.after(rng.randint(50, 800), self._operate)

    def _voter_change(self, leader: QuorumState) -> Request | None:
        rng = self._operator_rng
        lost = self._lost_voter(leader)
        if lost is not None:
            return RemoveVoterRequest(lost)
        if not self._changes_voters and self._loaded:
            return None
        voters = leader.voters
        observers = [n for n in self.nodes.values() if voters.get(n.node_id) is None]
        wanted = self._voters_wanted
        if self._loaded:
            wanted = rng.randint(1, len(self.nodes))
        if len(voters) < wanted and observers:
            state = rng.choice(observers).state
            return AddVoterRequest(state.as_voter, timeout_ms=500) if state else None
        if len(voters) > wanted and self._loaded:
            itself = leader.is_voter and rng.random() < 0.4  # the hard case
            return RemoveVoterRequest(leader.key if itself else rng.choice(voters.keys))
        return None

    def _lost_voter(self, leader: QuorumState) -> ReplicaKey | None:
        for key in leader.voters.keys:
            if self.nodes[key.id].key != key:
                return key
        return None

    def _may_wipe(self, node_id: int) -> bool:
        """Whether every voter set that may count keeps a majority with its disks."""
        for node in self.nodes.values():
            voters = node.state.voters if node.state is not None else node.newest_voters_on_disk()
            intact = [
                key for key in voters.keys if key.id != node_id and self.nodes[key.id].key == key
            ]
            if voters.keys and len(intact) < voters.majority:
                return False
        return True


def run_seed(seed: int | str, *, keep_trace: bool = False) -> Outcome:
    return RaftRun(seed, keep_trace=keep_trace).run()


def shrink_seed(outcome: Outcome) -> tuple[Fault, ...]:
    """The fewest faults of a failed run with which its seed still fails."""

    def fails(faults: tuple[Fault, ...]) -> bool:
        return RaftRun(outcome.seed, faults=faults).run().failure is not None

    return shrink(outcome.faults, fails)
