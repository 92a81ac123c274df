"""Limits of connections, without sockets."""

import pytest

from odradek_broker.model.config_table import ConfigError
from odradek_broker.runtime.settings import Settings
from odradek_broker.security.connection_limits import ConnectionLimits, parse_overrides
from odradek_broker.security.rates import Windows


def limits(settings: dict[str, str] | None = None, protected: str = "") -> ConnectionLimits:
    return ConnectionLimits(Settings(settings), Windows(), protected)


def test_overrides_of_single_addresses() -> None:
    assert parse_overrides("10.0.0.7:5, ::1:20,[fe80::1]:3") == {
        "10.0.0.7": 5,
        "::1": 20,
        "fe80::1": 3,
    }
    some = limits({"max.connections.per.ip": "2", "max.connections.per.ip.overrides": "::1:0"})
    assert (some.per_ip_max("10.0.0.7"), some.per_ip_max("::1")) == (2, 0)
    for wrong in ("host.example:5", "10.0.0.7", "10.0.0.7:x"):
        with pytest.raises(ConfigError):
            parse_overrides(wrong)


def test_connections_of_a_listener() -> None:
    some = limits({"listener.name.external.max.connections": "2"})
    for _ in range(2):
        assert not some.is_full("EXTERNAL")
        some.opened("EXTERNAL")
    assert some.is_full("EXTERNAL")
    assert not some.is_full("INTERNAL")
    some.closed("EXTERNAL")
    assert not some.is_full("EXTERNAL")


def test_the_rate_of_the_broker_does_not_hold_up_other_brokers() -> None:
    some = limits({"max.connection.creation.rate": "1"}, protected="INTERNAL")
    paused = [some.accepted("EXTERNAL", 0.0) for _ in range(12)]
    assert paused[:10] == [0] * 10  # what ten windows allow
    assert paused[10] == 1000
    assert some.accepted("INTERNAL", 0.0) == 0
    assert some.pauses == 2


def test_the_rate_of_a_listener() -> None:
    some = limits({"listener.name.external.max.connection.creation.rate": "1"})
    assert [some.accepted("EXTERNAL", 0.0) for _ in range(11)][-1] == 1000
    assert some.accepted("OTHER", 0.0) == 0


def test_the_rate_of_an_address() -> None:
    some = limits()
    assert some.throttled_ms("10.0.0.7", 0.0) == 0
    some.apply(
        {
            (("ip", None),): {"connection_creation_rate": 1.0},
            (("ip", "10.0.0.8"),): {"connection_creation_rate": 100.0},
            (("user", "alice"),): {"producer_byte_rate": 1.0},
        }
    )
    assert [some.throttled_ms("10.0.0.7", 0.0) for _ in range(11)] == [0] * 10 + [1000]
    assert [some.throttled_ms("10.0.0.8", 0.0) for _ in range(11)] == [0] * 11
    # A refused connection does not count: the client is served again when the windows have passed.
    assert some.throttled_ms("10.0.0.7", 11_000.0) == 0
    some.apply({})
    assert some.throttled_ms("10.0.0.7", 11_000.0) == 0
