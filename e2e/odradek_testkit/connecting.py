"""How each kind of client connects to a server: address and, if the server asks, TLS and a login.

    Producer({**for_librdkafka(server), "acks": "all"})
    KafkaConsumer(**for_python(server))                        # aiokafka too
    kafka_tool("org.apache.kafka.tools.TopicCommand", *for_java(server), "--list")

A server asks for a login if it has a `client_config`: a file of Java-style properties, as Kafka's
scripts take it by --command-config. Otherwise clients connect in plain text. Passwords go to
programs in files, never as arguments, which everybody on the machine can read.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from odradek_cli.librdkafka import security_settings
from odradek_cli.properties import read_properties
from odradek_protocol.client import ClientSettings
from odradek_protocol.client.security import SecuritySettings
from odradek_protocol.security.contexts import client_context

# librdkafka's names → the keywords of kafka-python and aiokafka.
KEYWORDS = {
    "security.protocol": "security_protocol",
    "sasl.mechanism": "sasl_mechanism",
    "sasl.username": "sasl_plain_username",
    "sasl.password": "sasl_plain_password",
}


class HasAddress(Protocol):
    """A server or a cluster; it may have a `client_config`."""

    @property
    def bootstrap(self) -> str: ...


def client_config(server: HasAddress) -> Path | None:
    return getattr(server, "client_config", None)


def properties_of(server: HasAddress) -> dict[str, str]:
    """Java's settings of TLS and SASL; none for a plain listener."""
    path = client_config(server)
    return {} if path is None else read_properties("client_config", path)


def for_librdkafka(server: HasAddress) -> dict[str, Any]:
    return {"bootstrap.servers": server.bootstrap, **security_settings(properties_of(server))}


def for_python(server: HasAddress) -> dict[str, Any]:
    """For kafka-python and aiokafka."""
    properties = properties_of(server)
    given = security_settings(properties)
    found: dict[str, Any] = {KEYWORDS[name]: given[name] for name in KEYWORDS if name in given}
    if found.get("security_protocol", "").endswith("SSL"):
        found["ssl_context"] = client_context(properties.get)
    return {"bootstrap_servers": server.bootstrap, **found}


def for_java(server: HasAddress) -> list[str]:
    """Arguments of Kafka's scripts."""
    path = client_config(server)
    config = [] if path is None else ["--command-config", str(path)]
    return ["--bootstrap-server", server.bootstrap, *config]


def for_ours(server: HasAddress) -> ClientSettings:
    """For the project's own client."""
    return ClientSettings(security=SecuritySettings.from_properties(properties_of(server)))


def settings_file(server: HasAddress) -> list[str]:
    """The argument of our Java programs for TLS and the login."""
    path = client_config(server)
    return [] if path is None else [f"@{path}"]


def for_kcat(server: HasAddress) -> list[str]:
    path = client_config(server)
    if path is None:
        return ["-b", server.bootstrap]
    config = kcat_config(path)
    if not config.exists():
        write_properties(config, security_settings(read_properties("client_config", path)))
    return ["-F", str(config), "-b", server.bootstrap]


def kcat_config(path: Path) -> Path:
    """librdkafka's settings, as a file next to Java's; it is made unless it exists."""
    return path.with_suffix(".kcat")


def write_properties(path: Path, settings: Mapping[str, str]) -> None:
    path.touch(mode=0o600)
    path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
