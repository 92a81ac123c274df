"""A fetch session as the follower keeps it (KIP-227): only changes are sent. Does no I/O.

The leader remembers what was asked last of each partition, so a request names only those that
are new or moved on, and those to forget; the answer names only those that have something new.

    session id 0, epoch 0       everything; opens a session
    session id s, epoch 1, 2 …  what changed
    session id s, epoch 0       everything; close s and open another one

A request names PER_REQUEST partitions at most, so that neither side's event loop is kept by ten
thousand of them; the rest follows in the next requests of the same session.
"""

from dataclasses import dataclass
from itertools import islice

from odradek_protocol.messages.fetch import FetchPartition

Key = tuple[bytes, int]  # topic id, partition

EPOCH_MAX = 2**31 - 1
# Some 5 ms of work for the leader, and as much for the follower when the answer comes.
PER_REQUEST = 500


@dataclass(frozen=True, slots=True)
class SessionRequest:
    session_id: int
    epoch: int
    partitions: list[tuple[Key, FetchPartition]]
    forgotten: list[Key]
    generation: int  # of the session; an answer from before a reset is ignored


class FollowerSession:
    """Invariants: `_changed` ⊆ `wanted`; what is in `_forgotten` is known to the leader and not
    wanted; while the session is open, what is wanted and not in `_changed` is known to the leader.
    """

    def __init__(self) -> None:
        self.wanted: dict[Key, FetchPartition] = {}
        self.generation = 0
        self._id = 0
        self._epoch = 0
        self._refused = False  # the leader had no room: each request names all that is wanted
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
        if (
            self.wanted.get(key) == asked
            and key in self._known
            and key not in self._changed
            and self.is_open
        ):
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
        """The request to send now. The next one builds on it, whether it is answered yet or not."""
        epoch = self._epoch
        if epoch == 0:
            at_most = len(self.wanted) if self._refused else PER_REQUEST
            named = list(islice(self.wanted.items(), at_most))
            self._changed = dict.fromkeys(islice(self.wanted, at_most, None))
            self._known = {key for key, _ in named}
            self._forgotten.clear()
            return SessionRequest(self._id, epoch, named, [], self.generation)
        named = [(key, self.wanted[key]) for key in islice(self._changed, PER_REQUEST)]
        forgotten = list(islice(self._forgotten, PER_REQUEST))
        for key, _ in named:
            del self._changed[key]
            self._known.add(key)
        for key in forgotten:
            del self._forgotten[key]
            self._known.discard(key)
        self._epoch = 1 if epoch == EPOCH_MAX else epoch + 1
        return SessionRequest(self._id, epoch, named, forgotten, self.generation)

    def opened(self, session_id: int) -> None:
        """The answer to a request for everything: 0 if the leader has no room for a session."""
        self._id = session_id
        self._epoch = 1 if session_id else 0
        self._refused = not session_id

    def reset(self) -> None:
        """Start over with everything: the connection broke, or the leader evicted the session."""
        self._epoch = 0
        self.generation += 1
