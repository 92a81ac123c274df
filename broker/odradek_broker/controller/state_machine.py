"""A table of allowed steps, and things that take only those.

Used for replicas (`replica_states.py`) and partitions (`partition_states.py`), each with the
table of its own file. A step that the table does not have is refused: logged, counted, and the
thing stays as it is (MISSION C6, C7).
"""

import logging
from collections import Counter
from collections.abc import Hashable, Iterator, Mapping
from enum import Enum
from typing import Generic, TypeVar

logger = logging.getLogger(__name__)

K = TypeVar("K", bound=Hashable)
S = TypeVar("S", bound=Enum)

# A controller that goes wrong for ten thousand replicas at once must not fill the disk with it.
ILLEGAL_LOGGED_MAX = 100


class StateMachine(Generic[K, S]):
    """Things (`K`) in states (`S`). One that is in `absent` is not kept."""

    def __init__(self, transitions: Mapping[S, frozenset[S]], absent: S) -> None:
        self._transitions = transitions
        self._absent = absent
        self._states: dict[K, S] = {}
        self.illegal_transitions = 0

    def __len__(self) -> int:
        return len(self._states)

    def __iter__(self) -> Iterator[tuple[K, S]]:
        return iter(self._states.items())

    def state(self, key: K) -> S:
        return self._states.get(key, self._absent)

    def count(self) -> Counter[S]:
        """How many are in each state."""
        return Counter(self._states.values())

    def move(self, key: K, *path: S) -> bool:
        """Takes the steps of `path` one after another; False at the first that is illegal."""
        state = self._states.get(key, self._absent)
        for target in path:
            if target not in self._transitions[state]:
                self._refused(key, state, target)
                return False
            state = target
            if state is self._absent:
                del self._states[key]
            else:
                self._states[key] = state
        return True

    def adopt(self, key: K, state: S) -> None:
        """What a new controller finds is no step: it was taken under another one."""
        self._states[key] = state

    def _refused(self, key: K, state: S, target: S) -> None:
        self.illegal_transitions += 1
        if self.illegal_transitions <= ILLEGAL_LOGGED_MAX:
            logger.error("%s: illegal state change %s → %s", key, state.value, target.value)
