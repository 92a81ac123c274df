"""KafkaRebalances of a local runtime: proposals are files in the directory of the cluster.

A KafkaRebalance that is no longer in the manifests is cancelled: its moves stop, what has moved
stays, and the throttle is removed. The ledger says which ones there were.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from odradek_api.base import Resource
from odradek_api.kafka_rebalance.spec import KafkaRebalanceSpec
from odradek_api.kafka_rebalance.status import KafkaRebalanceStatus
from odradek_operator.kafka.balance.document import Proposal, from_json
from odradek_operator.kafka.rebalance_states import WantedRebalance, wanted_of
from odradek_operator.local.ledger import Ledger, RebalanceEntry, write_json
from odradek_operator.reconcile.rebalances import Assessed, Item, RebalanceKeeper


class FileDocuments:
    """The port `Documents` of reconcile/rebalances.py."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def _path(self, key: str) -> Path:
        return self._directory / "rebalances" / f"{key.replace('/', '.')}.json"

    def read(self, key: str) -> Proposal | None:
        try:
            return from_json(self._path(key).read_text())
        except (OSError, ValueError):
            return None

    def write(self, key: str, proposal: Proposal) -> str:
        write_json(self._path(key), proposal)
        return str(self._path(key))

    def remove(self, key: str) -> None:
        self._path(key).unlink(missing_ok=True)


@dataclass
class LocalRebalances:
    """The rebalances of one cluster."""

    keeper: RebalanceKeeper
    declared: list[Resource[KafkaRebalanceSpec]] = field(default_factory=list)

    def begin(self, ledger: Ledger) -> None:
        wanted = {one.key: wanted_of(one) for one in self.declared}
        for key in ledger.rebalances:
            wanted.setdefault(key, WantedRebalance(key, None, deleting=True))
        known = ledger.rebalances
        self.keeper.begin(
            Item(one, known[key].status if key in known else KafkaRebalanceStatus())
            for key, one in wanted.items()
        )

    def persist(self, ledger: Ledger) -> bool:
        """Documents first; returns whether the ledger changed and has to be saved."""
        after: dict[str, RebalanceEntry] = {}
        for one in self.keeper.assessed:
            if one.gone:
                self.keeper.documents.remove(one.key)
                continue
            status = one.status
            if one.document is not None:
                name = self.keeper.documents.write(one.key, one.document)
                status = msgspec.structs.replace(status, document=name)
            after[one.key] = RebalanceEntry(status)
        changed = after != ledger.rebalances
        ledger.rebalances = after
        return changed

    @property
    def lines(self) -> list[str]:
        return [line for one in self.keeper.assessed for line in one.lines]

    def report(self) -> dict[str, KafkaRebalanceStatus]:
        return {one.key: one.status for one in self._present()}

    def _present(self) -> list[Assessed]:
        return [one for one in self.keeper.assessed if not one.wanted.deleting]
