"""The replicas of each topic are spread over the brokers, so that a hot topic makes no hot broker.

A broker may have half as many replicas again as its share of the topic, and at least two more:
a strict limit would move a quarter of all data of a cluster with many small topics, for little.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from odradek_operator.kafka.balance.model import Floats, Ints

if TYPE_CHECKING:
    from odradek_operator.kafka.balance.state import State

NAME, TITLE = "topic-spread", "Spread of each topic"
TOLERANCE = 0.5
SLACK = 2


class TopicSpread:
    def __init__(self, state: State) -> None:
        counted = state.cluster.live & ~state.leaving
        size = state.of_topic.sum(axis=1)
        share = size / max(1, int((counted & state.open).sum()))
        self._size = max(1, int(size.sum()))
        self._counted = counted
        self.limit: Ints = np.maximum(
            np.ceil(share * (1 + TOLERANCE)), np.ceil(share) + SLACK
        ).astype(np.int32)  # T

    def crowded(self, state: State) -> Ints:
        """Rows (topic, broker) with more replicas than the limit."""
        return np.argwhere(self._over(state) > 0).astype(np.int32)

    def _over(self, state: State) -> Ints:
        over: Ints = np.maximum(state.of_topic - self.limit[:, None], 0)
        over[:, ~self._counted] = 0
        return over

    def score(self, state: State) -> float:
        """Replicas above the limits, of all replicas."""
        return float(self._over(state).sum() / self._size)

    def gain(self, state: State, topic: int, src: int) -> Floats:
        """B: what moving one replica of the topic to each broker removes from the score."""
        count, limit = state.of_topic[topic], self.limit[topic]
        relieved = float(count[src] > limit)
        gain: Floats = (relieved - (count >= limit)) / self._size
        return gain
