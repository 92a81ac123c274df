"""The properties file of a broker on Kubernetes: what is read back, and what is derived."""

from odradek_operator.kafka.apache import FORMAT, apache_settings
from odradek_operator.kafka.desired import IMAGE
from odradek_operator.kubernetes.properties import (
    properties_text,
    read_properties,
    voters_of,
)

CONTROLLERS = {broker: {"CONTROLLER": f"main-{broker}:9093"} for broker in range(4)}


def apache(broker: int) -> dict[str, str]:
    listeners = "PLAINTEXT://:9092,EXTERNAL://:9094"
    advertised = "PLAINTEXT://main-0:9092,EXTERNAL://${env:HOST_IP}:31000"
    made = apache_settings(
        broker, listeners, advertised, "0.0.0.0:9404", (0, 1, 2), CONTROLLERS, "AbcD"
    )
    return {"node.id": str(broker), **made, IMAGE: "x"}


def test_only_settings_are_read_back() -> None:
    settings = {"node.id": "0", "a": "back\\slash\nline", IMAGE: "odradek/broker:2"}
    text = properties_text(settings)
    assert read_properties(text) == {"node.id": "0", "a": "back\\slash\nline"}
    assert IMAGE not in text


def test_the_format_of_an_apache_disk_is_in_the_settings() -> None:
    settings = apache(1)
    text = properties_text(settings)
    assert "odradek.cluster.id=AbcD\n" in text
    assert f"odradek.storage.format={settings[FORMAT]}\n" in text
    own = {n: v for n, v in settings.items() if not n.startswith("@")}
    assert read_properties(text) == own
    # A second value of a setting would win over the first.
    assert text.count("listener.security.protocol.map=") == 1
    assert "CONTROLLER:PLAINTEXT" in text
    assert "config.providers=env\n" in text


def test_the_first_voters_of_an_apache_cluster_are_in_the_file_of_each() -> None:
    found = voters_of(properties_text(apache(2)))
    assert [one.partition("@")[0] for one in found.split(",")] == ["0", "1", "2"]
    assert voters_of(properties_text(apache(3))) == ""
