"""All cases by name, in the order in which they run: one broker first, clusters last.

A run whose time is over skips the last ones, so cases that start further JVMs come late.
"""

from __future__ import annotations

from odradek_bench.case import Case
from odradek_bench.cases import (
    bulk,
    cluster,
    idle,
    java_tools,
    latency,
    limits,
    queues,
    small_requests,
    spark,
    starting,
    storage,
    tls,
)

FAMILIES = (
    limits,
    bulk,
    small_requests,
    latency,
    storage,
    idle,
    java_tools,
    queues,
    spark,
    starting,
    tls,
    cluster,
)

ORDER = ("shared", "own", "tls", "cluster")

ALL: dict[str, Case] = {
    case.name: case
    for kind in ORDER
    for family in FAMILIES
    for case in family.CASES
    if case.servers == kind
}
