"""Requests to a registry: one call each, with a limit on time and size; what is fixed is kept.

Schemas by id, and versions by number, never change and are kept until `CACHED_MAX` newer ones came.
The newest version of a subject is kept for `LATEST_MAX_AGE_S`, an id that does not exist for
`MISSING_MAX_AGE_S`, so that a topic full of garbage does not become a request per record.
Redirects are refused: they would take the login to another host.
"""

from __future__ import annotations

import base64
import http.client
import json
import ssl
import threading
import time
import urllib.error
import urllib.request
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, NoReturn
from urllib.parse import quote

from odradek_schemas.errors import RegistryError, SchemaNotFoundError, SettingsError
from odradek_schemas.registry import KINDS, Kind, Reference, Registered, Registry, Schema

TIMEOUT_S = 15.0
ANSWER_BYTES_MAX = 16 * 1024 * 1024  # a schema has kilobytes; a wrong URL may have anything
CACHED_MAX = 10_000
LATEST_MAX_AGE_S = 60.0
MISSING_MAX_AGE_S = 10.0
REFERENCES_MAX = 1_000  # of one schema, directly or not
CONTENT_TYPE = "application/vnd.schemaregistry.v1+json"


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        return None


class Client:
    """A registry's schemas; may be used by several threads."""

    def __init__(
        self,
        registry: Registry,
        *,
        timeout_s: float = TIMEOUT_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.registry = registry
        self._url = registry.url.rstrip("/")
        self._timeout_s = timeout_s
        self._clock = clock
        self._lock = threading.Lock()
        self._ids: OrderedDict[int, Schema] = OrderedDict()
        self._versions: OrderedDict[tuple[str, int], Registered] = OrderedDict()
        self._latest: OrderedDict[str, tuple[float, Registered]] = OrderedDict()
        self._missing: OrderedDict[int, tuple[float, SchemaNotFoundError]] = OrderedDict()
        handlers: list[urllib.request.BaseHandler] = [_NoRedirects()]
        if self._url.startswith("https:"):
            handlers.append(urllib.request.HTTPSHandler(context=_context(registry)))
        self._opener = urllib.request.build_opener(*handlers)

    def by_id(self, schema_id: int) -> Schema:
        with self._lock:
            found = self._ids.get(schema_id)
            at, error = self._missing.get(schema_id, (0.0, None))
        if found is not None:
            return found
        if error is not None and self._clock() - at < MISSING_MAX_AGE_S:
            raise error
        what = f"schema id {schema_id}"
        try:
            schema = _schema(self._ask("GET", f"/schemas/ids/{schema_id}", what), what)
        except SchemaNotFoundError as missing:
            self._keep(self._missing, schema_id, (self._clock(), missing))
            raise
        self._keep(self._ids, schema_id, schema)
        return schema

    def version(self, subject: str, version: int) -> Registered:
        with self._lock:
            found = self._versions.get((subject, version))
        return found or self._registered(subject, str(version))

    def latest(self, subject: str) -> Registered:
        """The newest version, or that of at most a minute ago."""
        with self._lock:
            at, found = self._latest.get(subject, (0.0, None))
        if found is not None and self._clock() - at < LATEST_MAX_AGE_S:
            return found
        newest = self._registered(subject, "latest")
        self._keep(self._latest, subject, (self._clock(), newest))
        return newest

    def subjects(self) -> list[str]:
        answer = self._ask("GET", "/subjects", "the list of subjects")
        if not isinstance(answer, list):
            self._nonsense("the list of subjects")
        return [str(subject) for subject in answer]

    def versions(self, subject: str) -> list[int]:
        what = f"subject {subject}"
        answer = self._ask("GET", f"/subjects/{quote(subject, safe='')}/versions", what)
        if not isinstance(answer, list):
            self._nonsense(what)
        return [int(version) for version in answer]

    def register(self, subject: str, schema: Schema) -> int:
        """The id of this schema under the subject, registered now or before."""
        given: dict[str, object] = {"schema": schema.text}
        if schema.kind != "AVRO":
            given["schemaType"] = schema.kind
        if schema.references:
            given["references"] = [
                {"name": one.name, "subject": one.subject, "version": one.version}
                for one in schema.references
            ]
        what = f"subject {subject}"
        path = f"/subjects/{quote(subject, safe='')}/versions"
        answer = self._ask("POST", path, what, given)
        with self._lock:
            self._latest.pop(subject, None)
        return _number(answer, "id", what)

    def with_references(self, schema: Schema) -> dict[str, Schema]:
        """Everything that a schema imports, directly or not, by the names that it uses."""
        found: dict[str, Schema] = {}
        left = list(schema.references)
        while left:
            reference = left.pop()
            if reference.name in found:
                continue
            if len(found) >= REFERENCES_MAX:
                raise RegistryError(f"{self._url}: a schema imports over {REFERENCES_MAX} others")
            imported = self.version(reference.subject, reference.version).schema
            found[reference.name] = imported
            left += imported.references
        return found

    def _registered(self, subject: str, version: str) -> Registered:
        what = f"version {version} of subject {subject}"
        path = f"/subjects/{quote(subject, safe='')}/versions/{version}"
        answer = self._ask("GET", path, what)
        schema = _schema(answer, what)
        found = Registered(
            subject, _number(answer, "version", what), _number(answer, "id", what), schema
        )
        self._keep(self._versions, (subject, found.version), found)
        self._keep(self._ids, found.id, schema)
        return found

    def _keep(self, cache: OrderedDict[Any, Any], key: object, value: object) -> None:
        with self._lock:
            cache[key] = value
            while len(cache) > CACHED_MAX:
                cache.popitem(last=False)

    def _ask(self, method: str, path: str, what: str, given: object = None) -> Any:
        body = None if given is None else json.dumps(given).encode()
        request = urllib.request.Request(f"{self._url}{path}", body, method=method)
        request.add_header("Accept", f"{CONTENT_TYPE}, application/json")
        if body is not None:
            request.add_header("Content-Type", CONTENT_TYPE)
        if (login := _login(self.registry)) is not None:
            request.add_unredirected_header("Authorization", login)
        try:
            with self._opener.open(request, timeout=self._timeout_s) as answer:
                content = answer.read(ANSWER_BYTES_MAX + 1)
        except urllib.error.HTTPError as error:
            with error:
                self._refused(error, what)
        except (OSError, http.client.HTTPException) as error:
            why = getattr(error, "reason", None) or error
            raise RegistryError(f"{self._url} does not answer ({what}): {why}") from None
        if len(content) > ANSWER_BYTES_MAX:
            raise RegistryError(
                f"{self._url}: the answer ({what}) exceeds {ANSWER_BYTES_MAX} bytes"
            )
        try:
            return json.loads(content)
        except ValueError:
            self._nonsense(what)

    def _refused(self, error: urllib.error.HTTPError, what: str) -> NoReturn:
        status = error.code
        try:
            answer = json.loads(error.read(ANSWER_BYTES_MAX))
            code, message = int(answer.get("error_code", 0)), str(answer.get("message", ""))
        except (ValueError, AttributeError, TypeError, OSError):
            code, message = 0, ""
        given = {"status": status, "code": code}
        if status == 404 and code:
            raise SchemaNotFoundError(f"{what} is not in {self._url}: {message}", **given)
        if status == 401:
            sent = "no login was sent" if _login(self.registry) is None else "the login is wrong"
            raise RegistryError(f"{self._url} refuses {what}: {sent} (401)", **given)
        if status == 403:
            raise RegistryError(f"{self._url}: this user may not use {what} (403)", **given)
        if 300 <= status < 400:
            to = error.headers.get("Location", "another address")
            raise RegistryError(f"{self._url} redirects to {to}: use the URL it names", **given)
        if status == 409:
            raise RegistryError(f"{self._url}: the schema is not compatible with {what}: {message}",
                                **given)  # fmt: skip
        hint = " (is this the URL of the REST API?)" if status == 404 else ""
        raise RegistryError(f"{self._url} refuses {what}: {status} {message}{hint}", **given)

    def _nonsense(self, what: str) -> NoReturn:
        raise RegistryError(f"{self._url}: the answer ({what}) is not that of a schema registry")


def _context(registry: Registry) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=str(registry.ca) if registry.ca else None)
    except (OSError, ssl.SSLError) as error:
        raise SettingsError(f"ssl.ca.location: {registry.ca} cannot be read: {error}") from None


def _login(registry: Registry) -> str | None:
    if registry.token is not None:
        return f"Bearer {registry.token}"
    if registry.user is None:
        return None
    pair = f"{registry.user}:{registry.password}".encode()
    return f"Basic {base64.b64encode(pair).decode()}"


def _schema(answer: Any, what: str) -> Schema:
    kind = answer.get("schemaType", "AVRO") if isinstance(answer, dict) else None
    if not isinstance(answer, dict) or not isinstance(answer.get("schema"), str):
        raise RegistryError(f"the registry's answer ({what}) contains no schema")
    if kind not in KINDS:
        raise RegistryError(f"{what} is of the type {kind}; there are {', '.join(KINDS)}")
    known: Kind = kind
    references = tuple(
        Reference(str(one["name"]), str(one["subject"]), int(one["version"]))
        for one in answer.get("references") or []
    )
    return Schema(known, answer["schema"], references)


def _number(answer: Any, name: str, what: str) -> int:
    found = answer.get(name) if isinstance(answer, dict) else None
    if not isinstance(found, int):
        raise RegistryError(f"the registry's answer ({what}) has no {name}")
    return found
