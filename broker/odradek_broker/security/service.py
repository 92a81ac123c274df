"""The security of all listeners of this broker, and of its connections to other brokers.

Built at start: what cannot be loaded then is a ConfigError. While the broker runs, `run` looks at
the files every `odradek.ssl.reload.interval.ms` (Secret volumes of Kubernetes replace them) and
`reconfigure` is called when dynamic settings change. A certificate that cannot be loaded leaves the
old one in place and is logged; established connections keep what they have.
"""

import asyncio
import ipaddress
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress

from odradek_broker.metadata.delegation_tokens import TokenKey
from odradek_broker.metadata.image import MetadataImage
from odradek_broker.model.config_table import ConfigError
from odradek_broker.runtime.peer_security import PeerSecurity
from odradek_broker.runtime.settings import Settings
from odradek_broker.security.broker_login import Credentials, OwnUser, peer_security
from odradek_broker.security.listener import ListenerSecurity, listener_security, load_tls
from odradek_protocol.security.errors import SecurityError

logger = logging.getLogger(__name__)

MECHANISM = "sasl.mechanism.inter.broker.protocol"
CONTROLLER_MECHANISM = "sasl.mechanism.controller.protocol"


class BrokerSecurity:
    def __init__(self, settings: Settings, image: Callable[[], MetadataImage]) -> None:
        """Raises ConfigError."""
        self._settings = settings
        self._look = asyncio.Event()
        self._refused: dict[str, str] = {}  # listener → reason that was logged
        key = TokenKey.of(settings)
        self._credentials = credentials = Credentials(image, token_key=key)
        try:
            self.listeners: dict[str, ListenerSecurity] = {
                listener.name: listener_security(listener, settings, credentials)
                for listener in settings.listeners.bound
            }
            self.peers = self._peer_security()
            self.controllers = self._controller_security()
        except SecurityError as error:
            raise ConfigError(str(error)) from None
        names = settings.listeners.inter_broker_name, settings.listeners.quorum_name
        for name, security in zip(names, (self.peers, self.controllers), strict=True):
            own = OwnUser.of(security.login) if security is not None else None
            if own is not None:
                credentials.own.setdefault(name, own)

    # --- connections to other brokers ----------------------------------------------------

    def _peer_security(self) -> PeerSecurity | None:
        return self._security_to(self._settings.listeners.inter_broker_name, MECHANISM)

    def _controller_security(self) -> PeerSecurity | None:
        """Security of connections to the quorum; the same object if it shares a listener."""
        listeners = self._settings.listeners
        if listeners.quorum_name == listeners.inter_broker_name:
            return self.peers
        return self._security_to(listeners.quorum_name, CONTROLLER_MECHANISM)

    def _security_to(self, name: str, mechanism_setting: str) -> PeerSecurity | None:
        listener = next(one for one in self._settings.listeners.bound if one.name == name)
        sasl = self.listeners[name].sasl
        offered = () if sasl is None else tuple(sasl.mechanisms)
        return peer_security(self._settings, listener, mechanism_setting, offered)

    @property
    def own_users(self) -> Sequence[OwnUser]:
        """The users as which this broker logs in with SCRAM, while it is starting."""
        return tuple(self._credentials.own.values())

    def metadata_is_current(self) -> None:
        """This broker is registered: from now on only the metadata log has users of SCRAM."""
        self._credentials.own.clear()

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
        await self._replace(self.peers, self._peer_security)
        if self.controllers is not self.peers:
            await self._replace(self.controllers, self._controller_security)

    @staticmethod
    async def _replace(held: PeerSecurity | None, load: Callable[[], PeerSecurity | None]) -> None:
        if held is None or held.tls is None:
            return
        try:
            loaded = await asyncio.to_thread(load)
        except SecurityError:
            return  # logged for the listener
        if loaded is not None and loaded.fingerprint != held.fingerprint:
            held.tls, held.fingerprint = loaded.tls, loaded.fingerprint

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
    """Listeners beyond loopback without authentication."""
    found = []
    for listener in settings.listeners.bound:
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
