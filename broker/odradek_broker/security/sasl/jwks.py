"""The public keys of an identity provider, from a URL or a file (JWKS).

Read again after `refresh_ms`, and at once, but at most every MISS_MS, when a token names a key that
is not known: providers rotate their keys. If that fails, the old keys stay. Called from a thread.
"""

import json
import logging
import threading
import time
from typing import Any
from urllib.parse import unquote, urlsplit

from odradek_broker.security.sasl.oauthbearer import TokenError

logger = logging.getLogger(__name__)

BYTES_MAX = 1024 * 1024
TIMEOUT_S = 10.0
MISS_MS = 10_000


class Jwks:
    def __init__(self, url: str, refresh_ms: int) -> None:
        self._url = url
        self._refresh_ms = refresh_ms
        self._lock = threading.Lock()
        self._keys: dict[str | None, Any] = {}
        self._read_at_ms = -float("inf")

    def key(self, kid: str | None) -> Any:
        """The key with this id; a token without one may use the only key. Raises TokenError."""
        with self._lock:
            age_ms = time.monotonic() * 1000 - self._read_at_ms
            missing = kid not in self._keys
            if age_ms > self._refresh_ms or (missing and age_ms > MISS_MS):
                self._read()
            if kid is None and len(self._keys) == 1:
                return next(iter(self._keys.values()))
            if kid not in self._keys:
                raise TokenError(f"the key {kid!r} of the token is not known")
            return self._keys[kid]

    def _read(self) -> None:
        import jwt

        self._read_at_ms = time.monotonic() * 1000
        try:
            found = jwt.PyJWKSet.from_dict(json.loads(_content(self._url)))
        except (OSError, ValueError, AttributeError, jwt.PyJWTError) as error:
            logger.error(
                "sasl.oauthbearer.jwks.endpoint.url %s: no keys: %s; %d keys of before are used",
                self._url,
                error,
                len(self._keys),
            )
            return
        self._keys = {one.key_id: one.key for one in found.keys}


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
