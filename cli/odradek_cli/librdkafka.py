"""Settings and errors of librdkafka (confluent-kafka), with which the CLI produces and consumes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from odradek_cli import session
from odradek_cli.errors import UsageError

if TYPE_CHECKING:
    from confluent_kafka import KafkaException

TIMEOUT_S = 30.0

# librdkafka logs every failed connection to stderr; one sentence of ours is enough.
QUIET = {"log_level": 2, "socket.connection.setup.timeout.ms": 5_000}


# Java's names → librdkafka's. A PEM key store has key and certificate in one file.
SECURITY_NAMES = {
    "ssl.truststore.location": ("ssl.ca.location",),
    "ssl.truststore.certificates": ("ssl.ca.pem",),
    "ssl.keystore.location": ("ssl.certificate.location", "ssl.key.location"),
    "ssl.keystore.certificate.chain": ("ssl.certificate.pem",),
    "ssl.keystore.key": ("ssl.key.pem",),
    "ssl.key.password": ("ssl.key.password",),
    "sasl.mechanism": ("sasl.mechanism",),
    "sasl.username": ("sasl.username",),
    "sasl.password": ("sasl.password",),
}


def settings(bootstrap: str, **more: Any) -> dict[str, Any]:
    """librdkafka's settings; keyword names have _ for dots."""
    return {
        "bootstrap.servers": bootstrap,
        **QUIET,
        **security_settings(session.current().settings),
        **{name.replace("_", "."): value for name, value in more.items()},
    }


def security_settings(given: Mapping[str, str]) -> dict[str, str]:
    """Java's settings of TLS and SASL under librdkafka's names; unsupported ones are refused."""
    from odradek_protocol.security.jaas import parse_jaas

    protocol = given.get("security.protocol", "PLAINTEXT").upper()
    if protocol == "PLAINTEXT":
        return {}
    found = {"security.protocol": protocol}
    for name, value in given.items():
        if name == "sasl.jaas.config":
            options = parse_jaas(value).options
            if options.get("tokenauth", "").lower() == "true":
                raise UsageError(
                    "--client-config: sasl.jaas.config: produce, consume and transactions abort "
                    "cannot log in with a delegation token (tokenauth): librdkafka lacks them"
                )
            names = [one for one in ("username", "password") if one in options]
            found |= {f"sasl.{one}": options[one] for one in names}
        elif name in SECURITY_NAMES:
            found |= dict.fromkeys(SECURITY_NAMES[name], value)
        elif name == "ssl.endpoint.identification.algorithm":
            found[name] = value or "none"
        elif name in ("ssl.truststore.type", "ssl.keystore.type") and value.upper() == "PEM":
            continue
        elif name.startswith(("ssl.", "sasl.")):
            raise UsageError(
                f"--client-config: {name}: produce, consume and transactions abort cannot use it; "
                "they take PEM files and the mechanisms PLAIN and SCRAM"
            )
    return found


def reason(error: KafkaException) -> str:
    """The broker's own words, and Kafka's name of the error for looking it up."""
    kafka_error = error.args[0]
    return f"{kafka_error.str().rstrip('.')} ({kafka_error.name()})"
