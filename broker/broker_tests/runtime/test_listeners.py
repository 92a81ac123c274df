"""Listeners as users write them, and the errors that they get."""

import pytest

from odradek_broker.model.config_table import ConfigError
from odradek_broker.runtime.listeners import Listener, Listeners
from odradek_broker.runtime.settings import Settings


def listeners(**texts: str) -> Listeners:
    return Settings({name.replace("_", "."): text for name, text in texts.items()}).listeners


def test_default_is_plaintext_9092_on_every_interface() -> None:
    found = listeners()
    assert found.brokers == (Listener("PLAINTEXT", "", 9092, "PLAINTEXT"),)
    assert found.advertised == found.brokers
    assert found.inter_broker_name == "PLAINTEXT"


def test_several_with_advertised_addresses() -> None:
    found = listeners(
        listeners="inside://:0,OUTSIDE://[::]:9094",
        advertised_listeners="INSIDE://broker-0.svc:9092,OUTSIDE://kafka.example:30094",
        listener_security_protocol_map="INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT",
        inter_broker_listener_name="INSIDE",
    )
    assert [str(listener) for listener in found.brokers] == ["INSIDE://:0", "OUTSIDE://[::]:9094"]
    assert [str(listener) for listener in found.advertise({"INSIDE": 1, "OUTSIDE": 2})] == [
        "INSIDE://broker-0.svc:9092",
        "OUTSIDE://kafka.example:30094",
    ]


def test_brokers_move_from_one_listener_to_another() -> None:
    """Both take requests of brokers for that time, and no other listener does."""
    settings = {
        "listeners": "OLD://:9092,NEW://:9091,CLIENTS://:9095",
        "advertised_listeners": "OLD://b:9092,NEW://b:9091,CLIENTS://b:9095",
        "listener_security_protocol_map": "OLD:PLAINTEXT,NEW:PLAINTEXT,CLIENTS:PLAINTEXT",
        "inter_broker_listener_name": "NEW",
    }
    found = listeners(**settings)
    assert found.from_brokers == found.to_quorum == ("NEW",)
    found = listeners(**settings, odradek_inter_broker_listener_names="old")
    assert found.from_brokers == found.to_quorum == ("NEW", "OLD")
    with pytest.raises(ConfigError, match=r"OTHER must be in advertised\.listeners"):
        listeners(**settings, odradek_inter_broker_listener_names="OTHER")


def test_bound_port_is_advertised_when_the_system_chose_it() -> None:
    found = listeners(listeners="PLAINTEXT://127.0.0.1:0")
    assert str(found.advertise({"PLAINTEXT": 4711})[0]) == "PLAINTEXT://127.0.0.1:4711"


def test_a_file_written_for_apache_kafka() -> None:
    found = listeners(
        process_roles="broker,controller",
        controller_listener_names="CONTROLLER",
        controller_quorum_voters="1@localhost:9093",
        listeners="PLAINTEXT://:9092,CONTROLLER://:9093",
        advertised_listeners="PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093",
        inter_broker_listener_name="PLAINTEXT",
    )
    assert [listener.name for listener in found.brokers] == ["PLAINTEXT"]
    assert [listener.name for listener in found.advertised] == ["PLAINTEXT"]
    assert [listener.name for listener in found.controllers] == ["CONTROLLER"]
    assert (found.inter_broker_name, found.quorum_name) == ("PLAINTEXT", "CONTROLLER")
    assert [str(listener) for listener in found.advertise({})] == [
        "PLAINTEXT://localhost:9092",
        "CONTROLLER://localhost:9093",
    ]


def test_a_controller_listener_that_is_not_bound_leaves_the_quorum_where_it_was() -> None:
    found = listeners(controller_listener_names="CONTROLLER")
    assert found.bound == found.brokers
    assert found.quorum_name == "PLAINTEXT"


@pytest.mark.parametrize(
    ("texts", "reason"),
    [
        ({"listeners": "9092"}, "must be <listener name>://<host>:<port>"),
        ({"listeners": "PLAINTEXT://:70000"}, "out of range"),
        (
            {"listeners": "PLAINTEXT://:1,PLAINTEXT://:2"},
            "Each listener must have a different name",
        ),
        ({"listeners": "PLAINTEXT://:1,SSL://:1"}, "Each listener must have a different port"),
        ({"listeners": "OUTSIDE://:1"}, "No security protocol defined for listener OUTSIDE"),
        (
            {"listeners": "SSL://:1"},
            "valid options based on currently configured listeners are SSL",
        ),
        ({"advertised.listeners": "PLAINTEXT://0.0.0.0:1"}, "nonroutable meta-address"),
        ({"advertised.listeners": "SSL://x:1"}, "listener names must only include"),
        ({"inter.broker.listener.name": "INSIDE"}, r"inter\.broker\.listener\.name must be"),
        (
            {
                "process.roles": "broker",
                "controller.listener.names": "CONTROLLER",
                "advertised.listeners": "PLAINTEXT://x:1,CONTROLLER://x:2",
            },
            "must not contain KRaft controller listeners",
        ),
        ({"listener.security.protocol.map": "A"}, r"listener\.security\.protocol\.map"),
        (
            {"inter.broker.listener.name": "PLAINTEXT", "security.inter.broker.protocol": "SSL"},
            "Only one of",
        ),
        (
            {"listeners": "CONTROLLER://:1", "controller.listener.names": "CONTROLLER"},
            "at least one that is not a controller listener",
        ),
    ],
)
def test_errors_name_what_is_wrong(texts: dict[str, str], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        Settings(texts)
