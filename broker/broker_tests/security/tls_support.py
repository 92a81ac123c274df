"""Certificates and settings for tests with TLS and SASL; everything is made in the test."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import trustme

from odradek_protocol.client import ClientSettings, KafkaClient
from odradek_protocol.client.security import SecuritySettings

HOSTS = ("localhost", "127.0.0.1")
PASSWORD = "open-sesame"
JAAS_PLAIN = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required "
    f'username="broker" password="{PASSWORD}-b" '
    f'user_broker="{PASSWORD}-b" user_alice="{PASSWORD}";'
)


@dataclass
class Authority:
    """A CA with its file of trusted certificates."""

    ca: trustme.CA
    directory: Path

    @classmethod
    def make(cls, directory: Path, name: str = "ca") -> Authority:
        directory.mkdir(parents=True, exist_ok=True)
        authority = cls(trustme.CA(), directory)
        authority.ca.cert_pem.write_to_path(str(authority.trusted(name)))
        return authority

    def trusted(self, name: str = "ca") -> Path:
        return self.directory / f"{name}.pem"

    def issue(self, name: str, *hosts: str, common_name: str | None = None) -> Path:
        """A PEM file with private key and certificate chain."""
        issued = self.ca.issue_cert(*(hosts or HOSTS), common_name=common_name)
        path = self.directory / f"{name}.pem"
        path.write_bytes(issued.private_key_and_cert_chain_pem.bytes())
        return path


def tls_settings(authority: Authority, key_store: Path) -> dict[str, str]:
    return {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(key_store),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(authority.trusted()),
    }


def listener(protocol: str, **more: str) -> dict[str, str]:
    """The settings of a broker whose only listener has this protocol."""
    return {
        "listeners": f"{protocol}://127.0.0.1:0",
        "security.inter.broker.protocol": protocol,
        **more,
    }


def client(bootstrap: str, properties: dict[str, str]) -> KafkaClient:
    security = SecuritySettings.from_properties(properties)
    return KafkaClient(bootstrap, ClientSettings(security=security, deadline_s=10.0))


def trusting(authority: Authority, protocol: str = "SSL", **more: str) -> dict[str, str]:
    """Properties of a client."""
    return {
        "security.protocol": protocol,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(authority.trusted()),
        **{name.replace("_", "."): value for name, value in more.items()},
    }
