"""Carries out the episodes of a plan on the brokers and links of a round.

Each method begins a fault, waits for as long as the episode lasts, and heals it. What a broker's
role is (the leader of a partition, the controller) is found out when the episode begins.
"""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from odradek_e2e.chaos.history import Recorder, now
from odradek_e2e.chaos.schedule import Episode
from odradek_e2e.chaos.view import View
from odradek_e2e.chaos.world.brokers import Broker, Brokers
from odradek_e2e.chaos.world.links import CUT, Rule
from odradek_e2e.chaos.world.namespaces import CLIENTS, Network

SLOW = Rule(delay_ms=60, jitter_ms=100)
LOSSY = Rule(drop=0.12, duplicate=0.1)
FLAP_S = 0.4
CLOCK_STEPS_S = (3_600, -3_600, 86_400, -86_400)
BETWEEN_KILLS_S = 1.0
ELECTION_LIMIT_S = 30.0


@dataclass(frozen=True)
class World:
    """The objects that a fault acts upon."""

    brokers: Brokers
    network: Network
    view: View
    topic: str  # whose leaders are meant
    recorder: Recorder


@dataclass(frozen=True)
class Case:
    """An episode that has begun: on which broker, and what else to choose from."""

    broker: Broker
    lasts_s: float
    rng: random.Random


class Faults:
    """The episodes of one round; `run` returns when the episode has been healed."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._brokers, self._network = world.brokers, world.network
        self._kinds: dict[str, Callable[[Case], None]] = {
            "kill": self._kill, "kill-two": self._kill_two, "kill-all": self._kill_all,
            "pause": self._pause, "stop": self._stop, "roll": self._roll,
            "isolate": self._isolate, "isolate-fully": self._isolate_fully,
            "cut-outgoing": self._cut_outgoing, "cut-incoming": self._cut_incoming,
            "cut-clients": self._cut_clients, "slow-links": self._slow, "lossy-links": self._lossy,
            "flapping-link": self._flap, "disk-full": self._disk_full,
            "disk-fails": self._disk_fails, "clock": self._clock,
        }  # fmt: skip

    def run(self, episode: Episode) -> None:
        broker = self._brokers[self._target(episode)]
        self._note("fault", kind=episode.kind, broker=broker.number, lasts=episode.lasts_s)
        try:
            self._kinds[episode.kind](Case(broker, episode.lasts_s, random.Random(episode.choice)))
        finally:
            self._note("healed", kind=episode.kind, broker=broker.number)

    def _note(self, event: str, **fields: object) -> None:
        self._world.recorder.note(event, t=now(), **fields)

    def _target(self, episode: Episode) -> int:
        found = None
        if episode.target == "leader":
            leaders = self._world.view.leaders(self._world.topic)
            partition = episode.choice % max(1, len(leaders))
            found = leaders.get(partition)
        elif episode.target == "controller":
            found = self._world.view.controller()
        return found if found in self._brokers.numbers else episode.broker

    def _others(self, broker: Broker) -> list[int]:
        return [number for number in self._brokers.numbers if number != broker.number]

    # -- processes ---------------------------------------------------------------------------------

    def _kill(self, at: Case) -> None:
        view, topic = self._world.view, self._world.topic
        led = [p for p, leader in view.leaders(topic).items() if leader == at.broker.number]
        was_controller = view.controller() == at.broker.number
        at.broker.kill()
        began = time.monotonic()
        until = began + at.lasts_s
        if led:
            limit = began + ELECTION_LIMIT_S
            took = view.wait_for_other_leaders(topic, led, at.broker.number, limit)
            self._note("elected", kill=round(began, 4), took=took, partitions=led,
                       controller=was_controller)  # fmt: skip
        _sleep_until(until)
        at.broker.start()

    def _kill_two(self, at: Case) -> None:
        other = self._brokers[at.rng.choice(self._others(at.broker))]
        at.broker.kill()
        time.sleep(at.rng.random() * BETWEEN_KILLS_S)
        other.kill()
        time.sleep(at.lasts_s)
        for one in at.rng.sample((at.broker, other), 2):
            one.start()

    def _kill_all(self, at: Case) -> None:
        """The one that the episode names comes back last."""
        self._brokers.each(Broker.kill)
        time.sleep(at.lasts_s)
        for number in [*self._others(at.broker), at.broker.number]:
            self._brokers[number].start()

    def _pause(self, at: Case) -> None:
        at.broker.signal(signal.SIGSTOP)
        time.sleep(at.lasts_s)
        at.broker.signal(signal.SIGCONT)

    def _stop(self, at: Case) -> None:
        self._note("stopped", broker=at.broker.number, code=at.broker.stop())
        time.sleep(at.lasts_s)
        at.broker.start()

    def _roll(self, at: Case) -> None:
        for number in [at.broker.number, *self._others(at.broker)]:
            self._note("stopped", broker=number, code=self._brokers[number].stop())
            self._brokers[number].start()
            self._world.view.wait_in_sync(self._world.topic, 20.0)

    # -- the network -------------------------------------------------------------------------------

    def _disturb(self, at: Case, *links: tuple[Iterable[int], Iterable[int], Rule]) -> None:
        for senders, receivers, rule in links:
            self._network.disturb(senders, receivers, rule)
        try:
            time.sleep(at.lasts_s)
        finally:
            self._network.heal()

    def _isolate(self, at: Case) -> None:
        one, others = [at.broker.number], self._others(at.broker)
        self._disturb(at, (one, others, CUT), (others, one, CUT))

    def _isolate_fully(self, at: Case) -> None:
        one, others = [at.broker.number], [*self._others(at.broker), CLIENTS]
        self._disturb(at, (one, others, CUT), (others, one, CUT))

    def _cut_outgoing(self, at: Case) -> None:
        self._disturb(at, ([at.broker.number], self._others(at.broker), CUT))

    def _cut_incoming(self, at: Case) -> None:
        self._disturb(at, (self._others(at.broker), [at.broker.number], CUT))

    def _cut_clients(self, at: Case) -> None:
        self._disturb(at, ([at.broker.number], [CLIENTS], CUT))

    def _slow(self, at: Case) -> None:
        one, others = [at.broker.number], [*self._others(at.broker), CLIENTS]
        self._disturb(at, (one, others, SLOW), (others, one, SLOW))

    def _lossy(self, at: Case) -> None:
        one, others = [at.broker.number], [*self._others(at.broker), CLIENTS]
        self._disturb(at, (one, others, LOSSY), (others, one, LOSSY))

    def _flap(self, at: Case) -> None:
        one, others = [at.broker.number], self._others(at.broker)
        until = time.monotonic() + at.lasts_s
        while time.monotonic() < until:
            self._network.disturb(one, others, CUT)
            self._network.disturb(others, one, CUT)
            time.sleep(FLAP_S)
            self._network.heal()
            time.sleep(FLAP_S)

    # -- disks and clocks --------------------------------------------------------------------------

    def _disk_full(self, at: Case) -> None:
        at.broker.disk.fill()
        try:
            time.sleep(at.lasts_s)
        finally:
            at.broker.disk.make_room()

    def _disk_fails(self, at: Case) -> None:
        """The process may end by itself meanwhile; in any case the disk comes back without it."""
        self._brokers.broken.add(at.broker.number)
        at.broker.disk.fail()
        time.sleep(at.lasts_s)
        at.broker.kill()
        at.broker.disk.remount()
        self._brokers.broken.discard(at.broker.number)
        at.broker.start()

    def _clock(self, at: Case) -> None:
        at.broker.clock.move(at.rng.choice(CLOCK_STEPS_S))
        time.sleep(at.lasts_s)
        at.broker.clock.move(0)


def _sleep_until(moment: float) -> None:
    time.sleep(max(0.0, moment - time.monotonic()))
