"""Sessions: which browser acts as which user.

Two kinds, and no third:

- Without --login the console acts with the credentials that it was started with. Whoever opens the
  printed address, which has a random token, gets a session; other users of the machine and other
  pages of the browser do not know the token.
- With --login a user gives credentials, with which the console logs in to Kafka: name and password,
  a certificate with its key, or the token of an identity provider. The session has its own view:
  connections, answers and history of this user only.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import secrets
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import ParamSpec, TypeVar

from odradek_console.cluster.access import Access
from odradek_console.cluster.view import ClusterView
from odradek_console.web.changes import PendingChanges
from odradek_protocol.security.errors import SecurityError

logger = logging.getLogger(__name__)

SESSIONS_MAX = 200  # a script that logs in again and again must not fill the memory
IDLE_S = 30 * 60.0
LIFETIME_S = 12 * 3600.0
# Of one session at a time: a slow broker of one user must not take all threads.
CALLS_MAX = 4
SCANS_MAX = 2
THREADS_MAX = 48

P = ParamSpec("P")
T = TypeVar("T")


class TooManySessionsError(Exception):
    """No further session fits; an old one has to end first."""


@dataclass
class Session:
    """One browser. `view` is shared only between sessions without a login."""

    id: str = field(repr=False)
    view: ClusterView
    threads: ThreadPoolExecutor
    own_view: bool
    csrf: str = field(default_factory=lambda: secrets.token_urlsafe(24), repr=False)
    changes: PendingChanges = field(default_factory=PendingChanges)
    notices: list[tuple[str, str]] = field(default_factory=list)  # kind, text; shown once
    began: float = field(default_factory=time.monotonic)
    used: float = field(default_factory=time.monotonic)
    calls: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(CALLS_MAX))
    scans: int = 0
    closed: bool = False

    @property
    def access(self) -> Access:
        return self.view.access

    @property
    def user(self) -> str:
        return self.access.user

    async def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Blocking work in a thread."""
        async with self.calls:
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self.threads, partial(work, *args, **kwargs))

    async def is_alive(self) -> bool:
        """Whether the issuer still vouches for the user; renews the token when it is due."""
        tokens = self.access.tokens
        if tokens is None or not tokens.is_due:
            return True
        try:
            await self.run(tokens.renew)
        except SecurityError as error:
            logger.info("the session of %s ends: %s", self.user, error)
            return False
        return True

    def notice(self, kind: str, text: str) -> None:
        self.notices = [*self.notices[-4:], (kind, text)]

    def take_notices(self) -> list[tuple[str, str]]:
        taken, self.notices = self.notices, []
        return taken


class Sessions:
    """All sessions of the process; used in the event loop only."""

    def __init__(self, access: Access, *, login: bool) -> None:
        self._login = login
        self._by_id: dict[str, Session] = {}
        self.threads = ThreadPoolExecutor(THREADS_MAX, "console")
        self.shared = None if login else ClusterView(access)
        self.token = "" if login else secrets.token_urlsafe(24)

    def knows_token(self, given: str) -> bool:
        return bool(self.token) and hmac.compare_digest(given.encode(), self.token.encode())

    def begin(self, view: ClusterView | None = None) -> Session:
        """`view`: of a user who has logged in; the caller has checked the credentials."""
        self.sweep()
        if len(self._by_id) >= SESSIONS_MAX:
            raise TooManySessionsError(f"there are {SESSIONS_MAX} sessions already")
        chosen = view or self.shared
        assert chosen is not None, "with a login every session has a view of its own"
        session = Session(secrets.token_urlsafe(32), chosen, self.threads, view is not None)
        self._by_id[session.id] = session
        return session

    def find(self, session_id: str | None) -> Session | None:
        session = self._by_id.get(session_id or "")
        if session is None or self._over(session):
            return None
        session.used = time.monotonic()
        session.view.used_at = session.used
        return session

    def end(self, session: Session) -> None:
        if self._by_id.pop(session.id, None) is not None:
            session.closed = True
            if session.own_view:
                session.view.close()

    def sweep(self) -> None:
        for session in [one for one in self._by_id.values() if self._over(one)]:
            self.end(session)

    def views(self) -> list[ClusterView]:
        """Views whose history goes on."""
        own = [one.view for one in self._by_id.values() if one.own_view]
        return own if self.shared is None else [self.shared, *own]

    def close(self) -> None:
        for session in list(self._by_id.values()):
            self.end(session)
        if self.shared is not None:
            self.shared.close()
        self.threads.shutdown(wait=False, cancel_futures=True)

    @staticmethod
    def _over(session: Session) -> bool:
        now = time.monotonic()
        return now - session.used > IDLE_S or now - session.began > LIFETIME_S
