"""A simulated broker with share groups: the production service, persister and share coordinator."""

from __future__ import annotations

from functools import partial
from typing import Any, cast

from broker_tests.sim.asking_node import AskingNode, SimCalls
from odradek_broker.share.coordinator import ShareCoordinator
from odradek_broker.share.persister import ANSWERS, SharePersister
from odradek_broker.share.service import ShareService


class ShareNode(AskingNode):
    """`shares` is None unless this broker serves."""

    shares: ShareService | None = None
    coordinator: ShareCoordinator
    persister: SharePersister

    def start(self) -> None:
        self.shares = None
        super().start()

    @property
    def serves(self) -> bool:
        return self.shares is not None

    def serve_others(self) -> None:
        metadata = self.metadata
        self.coordinator = ShareCoordinator(
            self.settings, self.partitions, self.clock, cast(Any, self.loop)
        )
        self.persister = SharePersister(cast(Any, SimCalls(self)), lambda: metadata.image)
        self.shares = ShareService(self.settings, self.partitions, self.persister, self.clock)
        self.local = {key: partial(answer, self.coordinator) for key, answer in ANSWERS.items()}
        self.coordinator.start()
        metadata.subscribe(self.coordinator.shards.metadata_changed)
