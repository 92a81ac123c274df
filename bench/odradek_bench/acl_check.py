"""Measures the cost of a check of an ACL: `make bench-acls`.

Per number of ACLs, of which a third are prefixed, in microseconds of one core:

- remembered: the check of one topic in a produce or fetch request, decided before: the hot path;
- per request: what the first check of a request adds, which finds the client's decisions;
- first: a decision after an ACL has changed.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from uuid import UUID

from odradek_broker.metadata.delta import MetadataDelta
from odradek_broker.metadata.image import EMPTY_IMAGE
from odradek_broker.metadata.records import AccessControlEntryRecord
from odradek_broker.model.acl import Acl
from odradek_broker.model.principal import Principal
from odradek_broker.security.authorizer import Authorizer, Client
from odradek_protocol.acl_codes import AclOperation, AclPermission, AclResource, PatternType

SIZES = (10, 10_000, 100_000)
CHECKS = 200_000
REPEATS = 5
USERS = 500
WRITE, TOPIC = AclOperation.WRITE, AclResource.TOPIC


def authorizer_with(count: int) -> Authorizer:
    delta = MetadataDelta(EMPTY_IMAGE)
    for number in range(count):
        pattern = PatternType.PREFIXED if number % 3 == 0 else PatternType.LITERAL
        acl = Acl(
            TOPIC, f"topic-{number}", pattern, f"User:u{number % USERS}", "*", WRITE,
            AclPermission.ALLOW,
        )  # fmt: skip
        delta.replay(AccessControlEntryRecord(UUID(int=number + 1), *acl))
    delta.finish(1)
    made = Authorizer()
    made.apply(delta)
    return made


def best_us(run: Callable[[], None], count: int) -> float:
    """The quickest of some repeats: whatever else runs on the machine only adds to it."""
    taken = []
    for _ in range(REPEATS):
        began = time.perf_counter()
        run()
        taken.append(time.perf_counter() - began)
    return min(taken) / count * 1e6


def measure(count: int) -> tuple[float, float, float]:
    authorizer = authorizer_with(count)
    client = Client(Principal("User", "u1"), "10.0.0.1")
    names = [f"topic-{number}" for number in range(min(count, 1_000))]

    def remembered() -> None:
        decisions = authorizer.decisions(client, WRITE, TOPIC)
        for _ in range(CHECKS // len(names)):
            for name in names:
                decisions.about(name)

    def per_request() -> None:
        for _ in range(CHECKS):
            authorizer.decisions(client, WRITE, TOPIC)

    def first() -> None:
        for name in names:
            authorizer.decide(client, WRITE, TOPIC, name)

    return (
        best_us(remembered, CHECKS // len(names) * len(names)),
        best_us(per_request, CHECKS),
        best_us(first, len(names)),
    )


def main() -> int:
    print(f"{'ACLs':>8}  {'remembered':>11}  {'per request':>11}  {'first':>8}   µs")
    for count in SIZES:
        remembered, per_request, first = measure(count)
        print(f"{count:>8,}  {remembered:>11.3f}  {per_request:>11.3f}  {first:>8.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
