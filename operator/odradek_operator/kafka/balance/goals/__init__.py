"""The goals of a balanced cluster, in the order in which they are pursued.

HARD goals are rules: a step that would violate one is not taken, and a violation that exists is
repaired first. SOFT goals have a score (0: reached); a later one never makes an earlier one worse.
"""

from __future__ import annotations

from odradek_operator.kafka.balance.goals.base import LoadGoal
from odradek_operator.kafka.balance.goals.bytes_in import BytesIn
from odradek_operator.kafka.balance.goals.bytes_out import BytesOut
from odradek_operator.kafka.balance.goals.disk import DiskUse
from odradek_operator.kafka.balance.goals.disk_capacity import DiskCapacity
from odradek_operator.kafka.balance.goals.distinct_brokers import DistinctBrokers
from odradek_operator.kafka.balance.goals.exclusions import Exclusions
from odradek_operator.kafka.balance.goals.hard import HardGoal
from odradek_operator.kafka.balance.goals.leader_bytes_in import LeaderBytesIn
from odradek_operator.kafka.balance.goals.leaders import Leaders
from odradek_operator.kafka.balance.goals.min_isr import MinIsr
from odradek_operator.kafka.balance.goals.rack_aware import RackAware
from odradek_operator.kafka.balance.goals.replica_capacity import ReplicaCapacity
from odradek_operator.kafka.balance.goals.replicas import Replicas

# The cheapest rule first: most brokers are refused by an early one.
HARD: tuple[HardGoal, ...] = (
    Exclusions(),
    DistinctBrokers(),
    MinIsr(),
    RackAware(),
    DiskCapacity(),
    ReplicaCapacity(),
)
LOADS: tuple[LoadGoal, ...] = (
    DiskUse(),
    BytesIn(),
    BytesOut(),
    LeaderBytesIn(),
    Leaders(),
    Replicas(),
)
TOPIC_SPREAD = "topic-spread"  # the last one; it has no load per broker: topic_spread.py
NAMES: tuple[str, ...] = (*(goal.name for goal in LOADS), TOPIC_SPREAD)
