"""A fetch session as the follower keeps it (KIP-227): only what changed is sent. Pure.

The leader remembers what was asked last of each partition, so a request names only those that
are new or moved on, and those to forget; the answer names only those that have something new.

    session id 0, epoch 0       everything; please open a session
    session id s, epoch 1, 2 …  what changed
    session id s, epoch 0       everything; close s and open another one
"""

from dataclasses import dataclass

from odradek_protocol.messages.fetch import FetchPartition

Key = tuple[bytes, int]  # topic id, partition

EPOCH_MAX = 2**31 - 1


@dataclass(frozen=True, slots=True)
class SessionRequest:
    session_id: int
    epoch: int
    partitions: list[tuple[Key, FetchPartition]]
    forgotten: list[Key]
    generation: int  # of the session; an answer from before a reset says nothing


class FollowerSession:
    """Invariants: `_changed` ⊆ `wanted`; what is in `_forgotten` is known to the leader and not
    wanted."""

    def __init__(self) -> None:
        self.wanted: dict[Key, FetchPartition] = {}
        self.generation = 0
        self._id = 0
        self._epoch = 0
        self._known: set[Key] = set()  # to the leader
        self._changed: dict[Key, None] = {}
        self._forgotten: dict[Key, None] = {}

    @property
    def is_open(self) -> bool:
        return self._epoch > 0

    @property
    def has_news(self) -> bool:
        """Whether there is something that the leader does not know."""
        return bool(self._changed or self._forgotten) or not self.is_open

    def want(self, key: Key, asked: FetchPartition) -> bool:
        """Fetch this from now on, until it is forgotten. False if the leader does so already."""
        if self.wanted.get(key) == asked and key in self._known and self.is_open:
            return False
        self.wanted[key] = asked
        self._changed[key] = None
        self._forgotten.pop(key, None)
        return True

    def forget(self, key: Key) -> None:
        if self.wanted.pop(key, None) is not None:
            self._changed.pop(key, None)
            if key in self._known:
                self._forgotten[key] = None

    def next_request(self) -> SessionRequest:
        """What to send now. The next one follows on it, whether it is answered yet or not."""
        epoch = self._epoch
        if epoch == 0:
            named = list(self.wanted.items())
            forgotten: list[Key] = []
            self._known = set(self.wanted)
        else:
            named = [(key, self.wanted[key]) for key in self._changed]
            forgotten = list(self._forgotten)
            self._known.update(self._changed)
            self._known.difference_update(forgotten)
            self._epoch = 1 if epoch == EPOCH_MAX else epoch + 1
        self._changed.clear()
        self._forgotten.clear()
        return SessionRequest(self._id, epoch, named, forgotten, self.generation)

    def opened(self, session_id: int) -> None:
        """The answer to a request for everything: 0 if the leader has no room for a session."""
        self._id = session_id
        self._epoch = 1 if session_id else 0

    def reset(self) -> None:
        """Begin again with everything: the connection broke, or the leader forgot us."""
        self._epoch = 0
        self.generation += 1
