"""The addresses of the metadata quorum: two settings of Kafka, parsed once by `Settings`.

    controller.quorum.voters=1@broker-1:9092,2@broker-2:9092,3@broker-3:9092
    controller.quorum.bootstrap.servers=broker-1:9092,broker-2:9092

The first has the nodes that form a new cluster together. The second has nodes of an existing
cluster that a new node asks first. A node that has the metadata log on its disk needs neither,
unless the addresses of all voters change at once.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

from odradek_broker.model.config_table import ConfigError

VOTERS = "controller.quorum.voters"
BOOTSTRAP_SERVERS = "controller.quorum.bootstrap.servers"

_VOTER = re.compile(r"(\d+)@(.+)")
_ADDRESS = re.compile(r"\[?([0-9a-zA-Z\-%._:]+)\]?:(\d+)")


class Address(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_voters(texts: Sequence[str]) -> dict[int, Address]:
    """Node id → address. ConfigError if they are not a valid set of voters."""
    voters: dict[int, Address] = {}
    for text in texts:
        match = _VOTER.fullmatch(text)
        if match is None:
            raise ConfigError(
                f"Invalid value {text} for configuration {VOTERS}: must be <id>@<host>:<port>"
            )
        node_id, address = int(match[1]), _address(VOTERS, match[2])
        if node_id in voters:
            raise ConfigError(f"{VOTERS}: node {node_id} is named twice")
        if address in voters.values():
            raise ConfigError(f"{VOTERS}: {address} is named twice")
        voters[node_id] = address
    return voters


def parse_bootstrap_servers(texts: Sequence[str]) -> tuple[Address, ...]:
    return tuple(_address(BOOTSTRAP_SERVERS, text) for text in texts)


def _address(setting: str, text: str) -> Address:
    match = _ADDRESS.fullmatch(text)
    if match is None or not 0 < int(match[2]) <= 65535:
        raise ConfigError(
            f"Invalid value {text} for configuration {setting}: must be <host>:<port>"
        )
    return Address(match[1], int(match[2]))
