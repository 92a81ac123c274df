"""A table of allowed steps, and things that take only those.

Used for replicas (`replica_states.py`) and partitions (`partition_states.py`), each with the
table of its own file. A step that the table does not have is refused: logged, counted, and the
thing stays as it is (MISSION C6, C7). Since when a thing is in its state and how many steps it
took is kept for people who look (`admin/controller_states.py`); nothing is decided by it.
"""

import logging
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping
from enum import Enum
from typing import Generic, NamedTuple, TypeVar

logger = logging.getLogger(__name__)

K = TypeVar("K", bound=Hashable)
S = TypeVar("S", bound=Enum)

# A controller that goes wrong for ten thousand replicas at once must not fill the disk with it.
ILLEGAL_LOGGED_MAX = 100


class Stay(NamedTuple, Generic[S]):
    """A thing in its state."""

    state: S
    since_ms: int  # wall clock; of the last step, or when this controller found it so
    transitions: int  # taken under this controller


class StateMachine(Generic[K, S]):
    """Things (`K`) in states (`S`). One that is in `absent` is not kept."""

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
        """To look at."""
        return self._stays

    def state(self, key: K) -> S:
        stay = self._stays.get(key)
        return self._absent if stay is None else stay.state

    def count(self) -> Counter[S]:
        """How many are in each state."""
        return Counter(stay.state for stay in self._stays.values())

    def move(self, key: K, *path: S) -> bool:
        """Takes the steps of `path` one after another; False at the first that is illegal."""
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
        """What a new controller finds is no step: it was taken under another one."""
        self._stays[key] = Stay(state, self._wall_ms(), 0)

    def _refused(self, key: K, state: S, target: S) -> None:
        self.illegal_transitions += 1
        if self.illegal_transitions <= ILLEGAL_LOGGED_MAX:
            logger.error("%s: illegal state change %s → %s", key, state.value, target.value)
