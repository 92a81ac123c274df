"""State machines given as a table of allowed transitions.

Used for replicas (`replica_states.py`) and partitions (`partition_states.py`), each with its own
table. A transition that is not in the table is refused: it is logged and counted, and the state
stays (MISSION C6, C7). The time and number of transitions are kept for display
(`admin/controller_states.py`); no decision depends on them.
"""

import logging
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping
from enum import Enum
from typing import Generic, NamedTuple, TypeVar

logger = logging.getLogger(__name__)

K = TypeVar("K", bound=Hashable)
S = TypeVar("S", bound=Enum)

# A bug that concerns ten thousand replicas at once must not fill the disk with log lines.
ILLEGAL_LOGGED_MAX = 100


class Stay(NamedTuple, Generic[S]):
    """The state of one replica or partition."""

    state: S
    since_ms: int  # wall clock: of the last transition, or of the start of this controller
    transitions: int  # made under this controller


class StateMachine(Generic[K, S]):
    """Keys (`K`) in states (`S`). A key in the state `absent` is not kept."""

    def __init__(
        self,
        transitions: Mapping[S, frozenset[S]],
        absent: S,
        wall_ms: Callable[[], int] = lambda: 0,
    ) -> None:
        self._transitions = transitions
        self._absent = absent
        self._wall_ms = wall_ms
        self._stays: dict[K, Stay[S]] = {}
        self.transitions = 0
        self.illegal_transitions = 0

    def __len__(self) -> int:
        return len(self._stays)

    def __iter__(self) -> Iterator[tuple[K, S]]:
        return ((key, stay.state) for key, stay in self._stays.items())

    def stays(self) -> Mapping[K, Stay[S]]:
        """Read-only."""
        return self._stays

    def state(self, key: K) -> S:
        stay = self._stays.get(key)
        return self._absent if stay is None else stay.state

    def count(self) -> Counter[S]:
        """The number of keys in each state."""
        return Counter(stay.state for stay in self._stays.values())

    def move(self, key: K, *path: S) -> bool:
        """Makes the transitions of `path` in order; False at the first illegal one."""
        state = self.state(key)
        for target in path:
            if target not in self._transitions[state]:
                self._refused(key, state, target)
                return False
            state = target
            self.transitions += 1
            before = self._stays.pop(key, None)
            if state is not self._absent:
                steps = 1 if before is None else before.transitions + 1
                self._stays[key] = Stay(state, self._wall_ms(), steps)
        return True

    def adopt(self, key: K, state: S) -> None:
        """Sets the state that a new controller finds; this is not a transition."""
        self._stays[key] = Stay(state, self._wall_ms(), 0)

    def _refused(self, key: K, state: S, target: S) -> None:
        self.illegal_transitions += 1
        if self.illegal_transitions <= ILLEGAL_LOGGED_MAX:
            logger.error("%s: illegal transition %s → %s", key, state.value, target.value)
