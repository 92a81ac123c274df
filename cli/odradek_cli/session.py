"""How this run of the command reaches its cluster: options, environment, profile, in this order.

    --bootstrap after the command, or in front of it
    the local runtime of --file
    `bootstrap.servers` of --client-config, the bootstrap of --profile
    ODRADEK_BOOTSTRAP
    the same of ODRADEK_CLIENT_CONFIG, ODRADEK_PROFILE, or the current profile
    localhost:9092

The options in front of the command are read before the command's own: `begin` keeps them for
`bootstrap_of` and `client_settings`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from odradek_cli import profiles
from odradek_cli.errors import UsageError
from odradek_cli.properties import read_properties

if TYPE_CHECKING:
    from odradek_protocol.client.security import SecuritySettings

LOCALHOST = "localhost:9092"


@dataclass(frozen=True)
class ConnectionOptions:
    """The options in front of the command."""

    bootstrap: str | None = None
    client_config: Path | None = None
    profile: str | None = None
    files: tuple[Path, ...] = ()  # manifests of the local runtime that runs the cluster
    environment: Mapping[str, str] = field(default_factory=dict)
    configured: bool = True  # False: the command has clusters of its own, without these settings

    @cached_property
    def _profile(self) -> profiles.Profile | None:
        if not self.configured:
            return None
        name = self.profile or self.environment.get("ODRADEK_PROFILE")
        known = profiles.load()
        name = name or known.current
        return known.get(name) if name else None

    @cached_property
    def settings(self) -> dict[str, str]:
        """The client's settings."""
        if not self.configured:
            return {}
        option, path = "--client-config", self.client_config
        if path is None and (given := self.environment.get("ODRADEK_CLIENT_CONFIG")):
            option, path = "ODRADEK_CLIENT_CONFIG", Path(given)
        if path is None and self._profile is not None and self._profile.client_config is not None:
            option, path = f"profile {self._profile.name}:", self._profile.client_config
        if path is None:
            return {}
        return read_properties(option, path)

    def security(self) -> SecuritySettings:
        """TLS and SASL as the settings say."""
        from odradek_protocol.client.security import SecuritySettings
        from odradek_protocol.security.errors import SecurityError

        try:
            return SecuritySettings.from_properties(self.settings)
        except SecurityError as error:
            raise UsageError(f"--client-config: {error}") from error

    def explicit_bootstrap(self) -> str | None:
        """The value from the command line or the environment."""
        given = self.bootstrap
        if given is None and (self.client_config is not None or self.profile is not None):
            given = self._configured
        return given or self.environment.get("ODRADEK_BOOTSTRAP") or None

    def resolved_bootstrap(self) -> str:
        return self.explicit_bootstrap() or self._configured or LOCALHOST

    @property
    def _configured(self) -> str | None:
        servers = self.settings.get("bootstrap.servers")
        return servers or (self._profile.bootstrap if self._profile else None)

    def milliseconds(self, name: str, default_s: float) -> float:
        """A setting in milliseconds, as seconds."""
        text = self.settings.get(name)
        if text is None:
            return default_s
        if not text.isdecimal() or not int(text):
            raise UsageError(f"--client-config: {name}={text}: expected milliseconds, at least 1")
        return int(text) / 1000


_current: ContextVar[ConnectionOptions | None] = ContextVar("session", default=None)


def begin(
    bootstrap: str | None = None,
    client_config: Path | None = None,
    profile: str | None = None,
    files: Iterable[Path] = (),
    *,
    configured: bool = True,
) -> None:
    options = ConnectionOptions(
        bootstrap, client_config, profile, tuple(files), dict(os.environ), configured
    )
    _current.set(options)


def current() -> ConnectionOptions:
    """The session that `begin` made; outside of the command line, that of the environment."""
    return _current.get() or ConnectionOptions(environment=dict(os.environ))
