"""The public keys of an identity provider, from a URL or a file (JWKS).

Read again after `refresh_ms`, and at once, but at most every MISS_MS, when a token names a key that
is not known: providers rotate their keys. If that fails, the old keys stay.

Called from threads. One of them reads; logins with a known key go on meanwhile, others wait WAIT_S.
So neither a provider that hangs nor clients that make up keys hold up logins with a known key.
"""

import json
import logging
import threading
import time
from http.client import HTTPException
from typing import Any
from urllib.parse import unquote, urlsplit

from odradek_broker.security.sasl.oauthbearer import TokenError

logger = logging.getLogger(__name__)

BYTES_MAX = 1024 * 1024
TIMEOUT_S = 10.0
MISS_MS = 10_000
WAIT_S = 2.0  # for the keys that another thread is reading


class Jwks:
    def __init__(self, url: str, refresh_ms: int) -> None:
        self._url = url
        self._refresh_ms = refresh_ms
        self._lock = threading.Lock()
        self._keys: dict[str | None, Any] = {}
        self._read_at_ms = -float("inf")

    def key(self, kid: str | None) -> Any:
        """The key with this id; a token without one may use the only key. Raises TokenError."""
        if self._is_due(kid) and self._lock.acquire(timeout=0 if self._has(kid) else WAIT_S):
            try:
                if self._is_due(kid):  # another thread may have read them while this one waited
                    self._read()
            finally:
                self._lock.release()
        keys = self._keys
        if kid is None and len(keys) == 1:
            return next(iter(keys.values()))
        if kid not in keys:
            raise TokenError(f"the key {kid!r} of the token is not known")
        return keys[kid]

    def _has(self, kid: str | None) -> bool:
        return kid in self._keys or (kid is None and len(self._keys) == 1)

    def _is_due(self, kid: str | None) -> bool:
        age_ms = time.monotonic() * 1000 - self._read_at_ms
        return age_ms > (self._refresh_ms if self._has(kid) else min(MISS_MS, self._refresh_ms))

    def _read(self) -> None:
        import jwt

        try:
            found = jwt.PyJWKSet.from_dict(json.loads(_content(self._url)))
        except (OSError, HTTPException, ValueError, TypeError, AttributeError,
                jwt.PyJWTError) as error:  # fmt: skip
            logger.error(
                "sasl.oauthbearer.jwks.endpoint.url %s: no keys: %s; %d keys of before are used",
                self._url,
                error,
                len(self._keys),
            )
        else:
            self._keys = {one.key_id: one.key for one in found.keys}
        finally:
            self._read_at_ms = time.monotonic() * 1000


def _content(url: str) -> bytes:
    from urllib.request import urlopen

    if url.startswith("file:"):
        with open(unquote(urlsplit(url).path), "rb") as file:
            return file.read(BYTES_MAX)
    if not url.startswith(("https:", "http:")):
        raise ValueError("must be an https, http or file URL")
    with urlopen(url, timeout=TIMEOUT_S) as answer:
        content: bytes = answer.read(BYTES_MAX)
        return content
