"""Settings of a registry, and its content: schemas under subjects, versions and ids."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Self
from urllib.parse import urlsplit

from odradek_schemas.errors import SettingsError

Kind = Literal["AVRO", "PROTOBUF", "JSON"]
KINDS: tuple[Kind, ...] = ("AVRO", "PROTOBUF", "JSON")

# Confluent's names of the same settings, for files that users have already.
USER_INFO, TOKEN, CA = "basic.auth.user.info", "bearer.auth.token", "ssl.ca.location"
PREFIX = "schema.registry."


@dataclass(frozen=True)
class Registry:
    """Where a registry is, and how to log in: with user and password, with a token, or not."""

    url: str
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)
    ca: Path | None = None  # PEM; default: the certificates that the system trusts

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise SettingsError(f"{_without_login(self.url)} is not the URL of a schema registry: "
                                "http://HOST:PORT or https://HOST:PORT")  # fmt: skip
        if parts.username is not None or parts.password is not None:
            raise SettingsError(
                f"the URL of the schema registry at {parts.hostname} contains a login, which would "
                f"be in logs and process lists: give it as {USER_INFO} in a file"
            )
        if self.token is not None and self.user is not None:
            raise SettingsError(f"{self.url}: {USER_INFO} and {TOKEN} exclude each other")
        if (self.user is None) != (self.password is None):
            raise SettingsError(f"{self.url}: {USER_INFO} needs user and password as USER:PASSWORD")

    @classmethod
    def of(cls, url: str, properties: Mapping[str, str]) -> Self:
        """From settings with Confluent's names, with or without `schema.registry.` before them."""
        given = {name.removeprefix(PREFIX): value for name, value in properties.items()}
        user, colon, password = given.get(USER_INFO, "").partition(":")
        if USER_INFO in given and not (user and colon):
            raise SettingsError(f"{USER_INFO} is not USER:PASSWORD")
        return cls(
            url,
            user=user or None,
            password=password if colon else None,
            token=given.get(TOKEN),
            ca=Path(given[CA]) if CA in given else None,
        )


def _without_login(url: str) -> str:
    before, at, after = url.rpartition("@")
    return f"…@{after}" if at and before else url


@dataclass(frozen=True)
class Reference:
    """A schema that another one imports under `name`."""

    name: str
    subject: str
    version: int


@dataclass(frozen=True)
class Schema:
    """One schema: its kind, its text, and its imports."""

    kind: Kind
    text: str
    references: tuple[Reference, ...] = ()


@dataclass(frozen=True)
class Registered:
    """A version of a subject."""

    subject: str
    version: int
    id: int
    schema: Schema
