"""Settings of a broker with users: a listener with SCRAM, and an open one that may do everything.

The open one stands for the operator's own listener, where a secured cluster asks for a certificate.
"""

from __future__ import annotations

AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512")


def secured_settings(own: str, clients: str, controller: str | None = None) -> dict[str, str]:
    """For both engines; `controller`: the address of Apache Kafka's controller."""
    settings = {
        "listeners": f"PLAINTEXT://{own},CLIENTS://{clients}",
        "listener.security.protocol.map": (
            "PLAINTEXT:PLAINTEXT,CLIENTS:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT"
        ),
        "inter.broker.listener.name": "PLAINTEXT",
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        "authorizer.class.name": AUTHORIZER,
        "super.users": "User:ANONYMOUS",
    }
    for mechanism in MECHANISMS:
        name = f"listener.name.clients.{mechanism.lower()}.sasl.jaas.config"
        settings[name] = f"{SCRAM_MODULE} required;"
    if controller is not None:
        settings["listeners"] += f",CONTROLLER://{controller}"
        settings["controller.quorum.voters"] = f"1@{controller}"
    return settings
