"""The security of all listeners of this broker, and of its connections to other brokers.

Built at start: what cannot be loaded then is a ConfigError. While the broker runs, `run` looks at
the files every `odradek.ssl.reload.interval.ms` (Secret volumes of Kubernetes replace them) and
`reconfigure` is called when dynamic settings change. A certificate that cannot be loaded leaves the
old one in place and is logged; established connections keep what they have.
"""

import asyncio
import ipaddress
import logging
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from odradek_broker.metadata.image import MetadataImage
from odradek_broker.model.config_table import ConfigError
from odradek_broker.runtime.peer_security import PeerSecurity
from odradek_broker.runtime.settings import Settings
from odradek_broker.runtime.tls_socket import TlsSocket
from odradek_broker.security.listener import (
    Credentials,
    ListenerSecurity,
    listener_security,
    load_tls,
)
from odradek_protocol.security.contexts import client_context
from odradek_protocol.security.errors import SecurityError
from odradek_protocol.security.sasl_client import Login, login_of
from odradek_protocol.security.scram import HASHES
from odradek_protocol.security.stores import Stores

logger = logging.getLogger(__name__)


class BrokerSecurity:
    def __init__(self, settings: Settings, image: Callable[[], MetadataImage]) -> None:
        """Raises ConfigError."""
        self._settings = settings
        self._look = asyncio.Event()
        self._refused: dict[str, str] = {}  # listener → reason that was logged
        credentials = Credentials(image)
        try:
            self.listeners: dict[str, ListenerSecurity] = {
                listener.name: listener_security(listener, settings, credentials)
                for listener in settings.listeners.brokers
            }
            self.peers = self._peer_security()
        except SecurityError as error:
            raise ConfigError(str(error)) from None

    # --- connections to other brokers ----------------------------------------------------

    def _peer_security(self) -> PeerSecurity | None:
        listener = next(
            one
            for one in self._settings.listeners.brokers
            if one.name == self._settings.listeners.inter_broker_name
        )
        if listener.security_protocol == "PLAINTEXT":
            return None
        tls, fingerprint = None, ""
        if listener.security_protocol.endswith("SSL"):
            get = partial(self._settings.listener_text, listener.name)
            stores = Stores.of(get)
            tls, fingerprint = client_context(get, stores), stores.fingerprint
            tls.sslsocket_class = TlsSocket
        login = None
        if listener.security_protocol.startswith("SASL"):
            login = self._login(listener.name)
        # Named as a broker: it gets in although clients have taken all connections (adr/0016).
        client_id = f"broker-{self._settings.node_id}-login"
        return PeerSecurity(tls, login, fingerprint, client_id)

    def _login(self, listener: str) -> Login:
        settings = self._settings
        mechanism = settings.str("sasl.mechanism.inter.broker.protocol").upper()
        alone = not settings.quorum_voters and not settings.quorum_bootstrap_servers
        if mechanism in HASHES and not alone:
            raise SecurityError(
                f"sasl.mechanism.inter.broker.protocol {mechanism}: credentials of SCRAM are in "
                "the metadata log, which brokers replicate through this listener; use PLAIN or "
                "OAUTHBEARER, or SSL with ssl.client.auth=required"
            )
        rules = self.listeners[listener].sasl
        assert rules is not None
        if mechanism not in rules.mechanisms:
            raise SecurityError(
                f"sasl.mechanism.inter.broker.protocol {mechanism} must be one of the "
                f"sasl.enabled.mechanisms of listener {listener}"
            )
        try:
            return login_of(mechanism, lambda n: settings.listener_text(listener, n, mechanism))
        except SecurityError as error:
            if alone:  # it never connects to another broker
                return Login(mechanism)
            raise SecurityError(f"listener {listener}: {error}") from None

    # --- while the broker runs -----------------------------------------------------------

    @property
    def reloads(self) -> bool:
        return any(one.tls for one in self.listeners.values())

    def reconfigure(self) -> None:
        """Dynamic settings changed: look at once."""
        self._look.set()

    async def run(self) -> None:
        seconds = self._settings.int("odradek.ssl.reload.interval.ms") / 1000
        while self.reloads:
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._look.wait()
            self._look.clear()
            await self.reload()

    async def reload(self) -> None:
        """Loads what changed; new connections use it."""
        for name, listener in self.listeners.items():
            if listener.tls is None:
                continue
            try:
                loaded = await asyncio.to_thread(load_tls, name, self._settings)
            except SecurityError as error:
                self._keep_old(name, str(error))
                continue
            self._refused.pop(name, None)
            if loaded.fingerprint != listener.tls.fingerprint:
                listener.tls.context = loaded.context
                listener.tls.to_principal = loaded.to_principal
                listener.tls.fingerprint = loaded.fingerprint
                logger.info("listener %s: the new certificate or trust store is used", name)
        await self._reload_peers()

    async def _reload_peers(self) -> None:
        if self.peers is None or self.peers.tls is None:
            return
        try:
            loaded = await asyncio.to_thread(self._peer_security)
        except SecurityError:
            return  # logged for the listener
        if loaded is not None and loaded.fingerprint != self.peers.fingerprint:
            self.peers.tls, self.peers.fingerprint = loaded.tls, loaded.fingerprint

    def _keep_old(self, name: str, reason: str) -> None:
        if self._refused.get(name) != reason:
            self._refused[name] = reason
            logger.error(
                "listener %s: the new certificate or trust store is not used, the old one stays: "
                "%s",
                name,
                reason,
            )


def unprotected_listeners(settings: Settings, security: BrokerSecurity) -> list[str]:
    """Listeners beyond loopback on which nobody has to authenticate."""
    found = []
    for listener in settings.listeners.brokers:
        held = security.listeners[listener.name]
        authenticates = held.sasl is not None or (
            held.tls is not None and held.tls.context.verify_mode.name == "CERT_REQUIRED"
        )
        if not authenticates and not _is_loopback(listener.host):
            found.append(str(listener))
    return found


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
