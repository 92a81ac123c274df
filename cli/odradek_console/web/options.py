"""How this console was started."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from odradek_console.cluster.access import Access
from odradek_console.cluster.runtime_state import RuntimeSource
from odradek_console.records.masking import Masks

if TYPE_CHECKING:
    from odradek_console.cluster.oidc import OidcSettings
    from odradek_console.records.decoding import Schemas

LOOPBACK = ("127.0.0.1", "::1", "localhost")


@dataclass(frozen=True)
class ConsoleOptions:
    """`login` None: everybody who opened the printed address acts with the client config."""

    access: Access  # with --login: addresses and TLS; the credentials come from the user
    host: str = "127.0.0.1"
    port: int = 8080
    login: str | None = None  # one of LOGINS: a SASL mechanism, OIDC or CERTIFICATE
    read_only: bool = False
    masks: Masks = field(default_factory=Masks)
    audit_log: Path | None = None
    tls: ssl.SSLContext | None = field(default=None, repr=False)
    behind_proxy: bool = False  # a proxy in front of it has TLS
    schemas: Schemas | None = None  # records of a schema registry are shown as JSON
    runtime: RuntimeSource | None = None  # whose plan and pipelines are shown
    oidc: OidcSettings | None = None  # with login OIDC
    # With login CERTIFICATE: trust settings of --client-config, without keys.
    transport: Mapping[str, str] = field(default_factory=dict, repr=False)
    names: tuple[str, ...] = ()  # further host names under which browsers reach it
    end_with_stdin: bool = False  # started by `odradek local up`, which may be killed

    @property
    def scheme(self) -> str:
        return "https" if self.tls is not None or self.behind_proxy else "http"

    @property
    def secure_cookies(self) -> bool:
        return self.scheme == "https"
