"""What the local runtime writes down: state.json in the directory of a cluster.

On Kubernetes the same facts live in the status of the resources. Written before anything is done
that could not be understood without it, by way of a second file and a rename.

    {"clusterId": "…", "formation": [0, 1, 2], "brokers": {"0": {"rack": "a", "port": 21001, …}},
     "topics": {"orders": {"owner": "default/orders", "retain": false, "settings": []}}}
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec

FILE = "state.json"


class BrokerEntry(msgspec.Struct, rename="camel"):
    rack: str
    port: int
    admin_port: int
    controller_port: int = 0  # engine apache; 0: one that is older, on the admin port
    kept: bool = False  # the broker is gone, its directories are there


class TopicEntry(msgspec.Struct, rename="camel"):
    owner: str
    retain: bool = False
    settings: list[str] = []


class Ledger(msgspec.Struct, rename="camel"):
    cluster_id: str = ""
    formation: list[int] = []
    brokers: dict[int, BrokerEntry] = {}
    topics: dict[str, TopicEntry] = {}
    dynamic_config: list[str] = []


class LedgerError(Exception):
    """The file cannot be read or written; a sentence that names it."""


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
    """The whole file or the one before, never a part of it."""
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
