"""Broker ids of tests: `ids(1, 2)` is a tuple of the type that replicas and ISRs have."""

from odradek_protocol.ids import BrokerId


def ids(*numbers: int) -> tuple[BrokerId, ...]:
    return tuple(BrokerId(number) for number in numbers)
