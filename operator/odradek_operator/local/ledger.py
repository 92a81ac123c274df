"""The persistent state of the local runtime: state.json in the directory of a cluster.

On Kubernetes the status of the resources holds the same facts. It is written before the actions
that depend on it, to a second file that is then renamed.

    {"clusterId": "…", "formation": [0, 1, 2], "brokers": {"0": {"rack": "a", "port": 21001, …}},
     "topics": {"orders": {"owner": "default/orders", "retain": false, "settings": []}}}
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec

from odradek_api.kafka_rebalance.status import KafkaRebalanceStatus

FILE = "state.json"


class BrokerEntry(msgspec.Struct, rename="camel"):
    rack: str
    port: int
    admin_port: int
    controller_port: int = 0  # engine apache; 0: from an older ledger, same as admin_port
    kept: bool = False  # the broker was removed, its directories were kept
    listeners: dict[str, int] = {}  # ports of further listeners, by Kafka's name


class TopicEntry(msgspec.Struct, rename="camel"):
    owner: str
    retain: bool = False
    settings: list[str] = []


class UserEntry(msgspec.Struct, rename="camel"):
    """A KafkaUser that manages a principal."""

    owner: str
    secret: str
    authentication: str


class RebalanceEntry(msgspec.Struct, rename="camel"):
    """The state that Kubernetes keeps in the status of a KafkaRebalance."""

    status: KafkaRebalanceStatus = KafkaRebalanceStatus()


class Ledger(msgspec.Struct, rename="camel"):
    cluster_id: str = ""
    formation: list[int] = []
    brokers: dict[int, BrokerEntry] = {}
    topics: dict[str, TopicEntry] = {}
    dynamic_config: list[str] = []
    users: dict[str, UserEntry] = {}  # principal → who manages it
    rebalances: dict[str, RebalanceEntry] = {}  # KafkaRebalance → its last status


class LedgerError(Exception):
    """A file cannot be read or written; the message names it."""


def read_ledger(directory: Path) -> Ledger:
    path = directory / FILE
    try:
        return msgspec.json.decode(path.read_bytes(), type=Ledger)
    except FileNotFoundError:
        return Ledger()
    except (OSError, msgspec.DecodeError) as error:
        raise LedgerError(f"{path} cannot be read: {error}") from error


def write_ledger(directory: Path, ledger: Ledger) -> None:
    write_json(directory / FILE, ledger)


def write_json(path: Path, value: Any) -> None:
    """Writes atomically: a reader sees the old file or the new one."""
    data = msgspec.json.format(msgspec.json.encode(value), indent=1)
    temporary = path.with_suffix(".tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(temporary, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        raise LedgerError(f"{path} cannot be written: {error}") from error
