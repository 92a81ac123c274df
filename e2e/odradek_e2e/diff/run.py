"""A run: rounds of requests to both engines, and the differences of their answers."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from odradek_e2e.diff.compare import Difference, compare
from odradek_e2e.diff.engines import Engine, Outcome
from odradek_e2e.diff.expected import AHEAD, IN_SEQUENCES, NO_PRODUCER_ID, reason_for
from odradek_e2e.diff.generate import request
from odradek_e2e.diff.malform import DAMAGES, Damage, huge_length, negative_length
from odradek_e2e.diff.names import learn_from
from odradek_e2e.diff.values import PARTITIONS, Round, records
from odradek_protocol.error_codes import ErrorCode
from odradek_protocol.errors import DecodeError
from odradek_protocol.messages.api import decode_request, encode_request, request_header
from odradek_protocol.messages.kio_table import APIS
from odradek_protocol.messages.struct import Struct

ROUND_REQUESTS = 100
MALFORMED = 0.2
CLIENT_ID = "diff"
# Apache Kafka's broker applies metadata shortly after the controller has answered.
PUBLISH_DEADLINE_S = 20.0
AGAIN_S = 2.0

PRODUCE, METADATA, FIND, HEARTBEAT, CREATE, DESCRIBE_CONFIGS, ALTER = 0, 3, 10, 12, 19, 32, 44
INIT_PRODUCER_ID, DESCRIBE_TRANSACTIONS = 22, 65
LOADING = (14, 15, 16)
TRANSACTIONAL = frozenset((22, 24, 25, 26, 28))
CONCURRENT_TRANSACTIONS = ErrorCode.concurrent_transactions
# After these, wait until Apache Kafka has published its decision.
CHANGES = frozenset((19, 20, 33, 37, 43, 44, 45))
# These change nothing, so a lagging answer may be requested again.
READS = frozenset((1, 2, 3, 9, 10, 15, 16, 23, 32, 35, 41, 46, 55, 60, 61, 65, 66, 69, 74, 75))
# A damaged length could become a number of partitions or a feature level, or a transactional id
# that is not UTF-8, to which only Kafka assigns a producer id: everything after it would differ.
NO_WILD_NUMBERS = frozenset((19, 22, 37, 57, 64))


class Met(NamedTuple):
    """A difference that was found, and the request that showed it."""

    api: str
    version: int
    damage: str  # "" for a request that is well formed
    difference: Difference
    request: str
    reason: str | None


@dataclass
class Tally:
    """The requests and differences of a run."""

    requests: int = 0
    malformed: int = 0
    pairs: set[tuple[int, int]] = field(default_factory=set)  # (API, version) that were asked
    met: list[Met] = field(default_factory=list)


class Run:
    """Sends the same generated requests to both engines and compares the answers."""

    malformed = MALFORMED  # the share of requests that are damaged

    def __init__(self, ours: Engine, apache: Engine, seed: int) -> None:
        self.ours, self.apache = ours, apache
        self.rng = random.Random(seed)
        self.tally = Tally()
        self._found: dict[str, int] = {}
        self._ahead: set[str] = set()  # topics with records that only Apache Kafka took
        self._barrier = 0
        self._pool = ThreadPoolExecutor(2)

    def run(self, count: int, progress: Callable[[int], None]) -> None:
        pairs = list(self._offered())
        self._must(CREATE, 7, _topics(["barrier"]))
        self._published()
        for engine in (self.ours, self.apache):
            engine.names.learn("cluster", self._ask(engine, METADATA, 12, Struct()).cluster_id)
            self._until(  # Kafka refuses the first ones until it has a block of producer ids
                engine, INIT_PRODUCER_ID, 4, Struct(transactional_id=None, transaction_timeout=1),
                lambda answer: not answer.error_code,
            )  # fmt: skip
        number = 0
        deck: list[tuple[int, int]] = []
        while self.tally.requests < count:
            number += 1
            round_ = self._begin(number)
            for _ in range(min(ROUND_REQUESTS, count - self.tally.requests)):
                if not deck:
                    deck = self.rng.sample(pairs, len(pairs))
                self._one(round_, *deck.pop())
            progress(self.tally.requests)

    # -- requests ----------------------------------------------------------------------------------

    def _one(self, round_: Round, api_key: int, version: int) -> None:
        rng = self.rng
        wanted = request(round_, api_key, version, rng)
        damage = rng.choice(DAMAGES) if rng.random() < self.malformed else None
        if api_key in NO_WILD_NUMBERS and damage in (huge_length, negative_length):
            damage = None
        seed = rng.getrandbits(64)  # the same damage for both
        self.tally.requests += 1
        self.tally.malformed += damage is not None
        self.tally.pairs.add((api_key, version))

        def ask(engine: Engine) -> Outcome:
            header = request_header(api_key, version, 1, CLIENT_ID)
            frame = header + encode_request(api_key, version, engine.names.resolve(wanted))
            if damage is not None:
                frame = damage(frame, len(header), random.Random(seed))
                unharmed = frame[2:4] == header[2:4]
                return engine.ask(api_key, version if unharmed else 0, frame)
            if api_key == PRODUCE and wanted.acks == 0:
                return engine.tell(frame)
            return engine.ask(api_key, version, frame)

        found = self._agree(api_key, ask)
        api = APIS[api_key][0]
        label = damage.__name__ if damage else ""
        if damage is not None and found:
            wanted = self._as_read(api_key, version, wanted, damage, seed)
        for one in found:
            reason = reason_for(f"malformed {label}", one) if label else None
            reason = reason or reason_for(api, one, wanted)
            if reason == NO_PRODUCER_ID:
                self._ahead.update(map(_topic_name, wanted.topic_data))
            elif reason is None and api_key in READS and self._names_topic_ahead(wanted):
                reason = AHEAD
            self.tally.met.append(Met(api, version, label, one, repr(wanted), reason))
        if api_key in CHANGES:
            self._published()

    def _names_topic_ahead(self, request: Struct) -> bool:
        """Whether it reads a topic with records that only Apache Kafka took."""
        return any(f"{name}'" in repr(request) for name in self._ahead)

    def _as_read(
        self, api_key: int, version: int, wanted: Struct, damage: Damage, seed: int
    ) -> Struct:
        """The damaged request as a broker would decode it, if it can be decoded."""
        header = request_header(api_key, version, 1, CLIENT_ID)
        frame = header + encode_request(api_key, version, self.ours.names.resolve(wanted))
        damaged = damage(frame, len(header), random.Random(seed))
        if damaged[: len(header)] != header:
            return wanted
        try:
            return decode_request(api_key, version, damaged[len(header) :])
        except DecodeError:
            return wanted

    def _agree(self, api_key: int, ask: Callable[[Engine], Outcome]) -> list[Difference]:
        """The differences; for a read, after Apache Kafka has applied the previous write."""
        mine, theirs = self._both(ask)
        theirs = self._once_more(api_key, ask, theirs)
        names = (self.apache.names, self.ours.names)
        if mine.answer is not None and theirs.answer is not None:
            learn_from(mine.answer, theirs.answer, self.ours.names, self.apache.names, self._found)
        found = compare(theirs, mine, names)
        give_up = time.monotonic() + AGAIN_S
        while found and api_key in READS and time.monotonic() < give_up:
            if all(self._seen(api_key, one) for one in found):
                break
            time.sleep(0.05)
            mine, theirs = self._both(ask)
            found = compare(theirs, mine, names)
        return found

    def _once_more(
        self, api_key: int, ask: Callable[[Engine], Outcome], theirs: Outcome
    ) -> Outcome:
        """Kafka answers CONCURRENT_TRANSACTIONS where ours waits for the markers (SKIPPED.md)."""
        give_up = time.monotonic() + AGAIN_S
        while api_key in TRANSACTIONAL and time.monotonic() < give_up:
            if f"error_code={CONCURRENT_TRANSACTIONS!r}" not in repr(theirs.answer):
                break
            time.sleep(0.05)
            theirs = ask(self.apache)
        return theirs

    def _seen(self, api_key: int, difference: Difference) -> bool:
        """Whether waiting for this difference has not helped before."""
        api = APIS[api_key][0]
        return reason_for(api, difference) is not None or any(
            met.api == api and met.difference.field == difference.field for met in self.tally.met
        )

    def _both(self, ask: Callable[[Engine], Outcome]) -> tuple[Outcome, Outcome]:
        mine, theirs = self._pool.map(ask, (self.ours, self.apache))
        return mine, theirs

    # -- the state in which a round begins ---------------------------------------------------------

    def _offered(self) -> Iterator[tuple[int, int]]:
        """APIs and versions that both advertise; one that only one engine has is a difference."""
        tables = []
        for engine in (self.ours, self.apache):
            answer = self._ask(engine, 18, 0, Struct()).api_keys
            tables.append({a.api_key: (a.min_version, a.max_version) for a in answer})
        mine, theirs = tables
        for key in sorted(mine.keys() | theirs.keys()):
            if mine.get(key) != theirs.get(key):
                name = APIS[key][0] if key in APIS else str(key)
                one = Difference(f"versions of {name}", theirs.get(key), mine.get(key))
                reason = reason_for("advertised", one)
                self.tally.met.append(Met("advertised", 0, "", one, "", reason))
            if key in mine and key in theirs and key not in IN_SEQUENCES:
                lowest = max(mine[key][0], theirs[key][0], APIS[key][1])
                highest = min(mine[key][1], theirs[key][1])
                for version in range(lowest, highest + 1):
                    yield key, version

    def _begin(self, number: int) -> Round:
        round_ = Round(number, self.ours.names)
        self._must(CREATE, 7, _topics(round_.topics + round_.doomed[:1]))
        self._published()
        for engine in (self.ours, self.apache):
            wanted = Struct(topics=[Struct(name=n, topic_id=None) for n in round_.topics])
            topics = self._until(
                engine, METADATA, 12, wanted,
                lambda answer: all(
                    not t.error_code and all(p.leader_id == 1 for p in t.partitions)
                    for t in answer.topics
                ),
            ).topics  # fmt: skip
            for topic in topics:
                engine.names.learn(f"topic {topic.name}", topic.topic_id)
            keys = [*round_.groups, *round_.consumer_groups]
            for kind, wanted_keys in ((0, keys), (1, round_.transactional_ids)):
                self._until(
                    engine, FIND, 6, Struct(key_type=kind, coordinator_keys=wanted_keys),
                    lambda answer: all(not c.error_code for c in answer.coordinators),
                )  # fmt: skip
            self._until(
                engine, DESCRIBE_TRANSACTIONS, 0,
                Struct(transactional_ids=round_.transactional_ids),
                lambda answer: answer.transaction_states[0].error_code not in LOADING,
            )  # fmt: skip
            for group in keys:
                self._until(
                    engine, HEARTBEAT, 4,
                    Struct(group_id=group, generation_id=1, member_id="nobody"),
                    lambda answer: answer.error_code not in LOADING,
                )  # fmt: skip
            good = records(round_)[0][0]
            for topic in round_.topics:
                data = [Struct(index=p, records=good) for p in range(PARTITIONS)]
                self._until(
                    engine, PRODUCE, 9,
                    Struct(acks=-1, timeout=5000, topic_data=[
                        Struct(name=topic, partition_data=data),
                    ]),
                    lambda answer: all(
                        not p.error_code for t in answer.responses for p in t.partition_responses
                    ),
                )  # fmt: skip
        return round_

    def _published(self) -> None:
        """Waits for the last decision in Apache Kafka's metadata, and so for all before it."""
        self._barrier += 1
        value = str(self._barrier)
        change = Struct(name="segment.jitter.ms", config_operation=0, value=value)
        resource = Struct(resource_type=2, resource_name="barrier", configs=[change])
        asked = Struct(resource_type=2, resource_name="barrier", configuration_keys=[change.name])
        for engine in (self.ours, self.apache):
            self._ask(engine, ALTER, 1, Struct(resources=[resource], validate_only=False))
            self._until(
                engine, DESCRIBE_CONFIGS, 4, Struct(resources=[asked]),
                lambda answer: answer.results[0].configs[0].value == value,
            )  # fmt: skip

    def _must(self, api_key: int, version: int, wanted: Struct) -> None:
        for engine in (self.ours, self.apache):
            answer = self._ask(engine, api_key, version, wanted)
            assert not any(t.error_code for t in answer.topics), answer

    def _until(
        self, engine: Engine, api_key: int, version: int, wanted: Struct,
        holds: Callable[[Any], bool],
    ) -> Any:  # fmt: skip
        give_up = time.monotonic() + PUBLISH_DEADLINE_S
        while True:
            answer = self._ask(engine, api_key, version, wanted)
            try:
                if holds(answer):
                    return answer
            except IndexError:
                pass
            assert time.monotonic() < give_up, f"{engine.name} still says {answer}"
            time.sleep(0.02)

    def _ask(self, engine: Engine, api_key: int, version: int, wanted: Struct) -> Any:
        frame = request_header(api_key, version, 1, CLIENT_ID)
        outcome = engine.ask(api_key, version, frame + encode_request(api_key, version, wanted))
        assert outcome.answer is not None, f"{engine.name}: {outcome.kind} for {wanted}"
        return outcome.answer


def _topics(names: list[str]) -> Struct:
    topics = [
        Struct(name=n, num_partitions=PARTITIONS, replication_factor=1, assignments=[], configs=[])
        for n in names
    ]
    return Struct(topics=topics, timeout=10_000, validate_only=False)


def _topic_name(topic: Struct) -> str:
    """Of a produce request, which names a topic or refers to its id as `topic <name>`."""
    named: str | None = getattr(topic, "name", None)
    return named or str(topic.topic_id.name).removeprefix("topic ")
