"""How one listener authenticates its clients, built from the broker's settings.

Settings of a listener win over those of the broker, as in Kafka:

    listener.name.external.ssl.keystore.location   >   ssl.keystore.location
    listener.name.external.plain.sasl.jaas.config  >   listener.name.external.sasl.jaas.config
"""

import logging
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from odradek_broker.metadata.scram import ScramCredential, ScramMechanism
from odradek_broker.model.principal import ANONYMOUS, USER, Principal
from odradek_broker.runtime.listeners import Listener
from odradek_broker.runtime.settings import Settings
from odradek_broker.runtime.tls_socket import TlsSocket
from odradek_broker.security.authentication import SaslRules
from odradek_broker.security.broker_login import Credentials
from odradek_broker.security.principal_mapping import distinguished_name, map_name, parse_rules
from odradek_broker.security.sasl.mechanism import Conversation
from odradek_broker.security.sasl.plain import Plain
from odradek_broker.security.sasl.scram import Scram, TokenLogin
from odradek_protocol.security.contexts import server_context
from odradek_protocol.security.errors import SecurityError
from odradek_protocol.security.jaas import JaasConfig, parse_jaas
from odradek_protocol.security.sasl_client import MECHANISMS, OAUTHBEARER, PLAIN
from odradek_protocol.security.scram import HASHES, new_nonce
from odradek_protocol.security.stores import Stores

logger = logging.getLogger(__name__)

ToPrincipal = Callable[[TlsSocket], Principal]
UNSECURED = "odradek.sasl.oauthbearer.unsecured.enable"


@dataclass
class ListenerTls:
    """The certificate of a listener; `context` is replaced when it is loaded again."""

    context: ssl.SSLContext
    fingerprint: str
    to_principal: ToPrincipal


@dataclass(frozen=True)
class ListenerSecurity:
    name: str
    tls: ListenerTls | None = None
    sasl: SaslRules | None = None


def listener_security(
    listener: Listener, settings: Settings, credentials: Credentials
) -> ListenerSecurity:
    """Raises SecurityError, whose text names listener and setting."""
    protocol = listener.security_protocol
    try:
        tls = load_tls(listener.name, settings) if protocol.endswith("SSL") else None
        sasl = None
        if protocol.startswith("SASL"):
            sasl = _sasl(listener.name, settings, credentials)
    except SecurityError as error:
        raise SecurityError(f"listener {listener.name}: {error}") from None
    return ListenerSecurity(listener.name, tls, sasl)


# --- TLS -----------------------------------------------------------------------------------------


def load_tls(listener: str, settings: Settings) -> ListenerTls:
    """Reads the files of key and trust store: call it in a thread once the broker runs."""
    get = partial(settings.listener_text, listener)
    stores = Stores.of(get)
    context = server_context(get, stores)
    rules = parse_rules(get("ssl.principal.mapping.rules") or "DEFAULT")

    def to_principal(sock: TlsSocket) -> Principal:
        certificate = sock.getpeercert()
        if not certificate:
            return ANONYMOUS
        subject = certificate["subject"]
        return Principal(USER, map_name(rules, distinguished_name(subject)))

    return ListenerTls(context, f"{stores.fingerprint} {settings_of(get)}", to_principal)


def settings_of(get: Callable[[str], str | None]) -> str:
    """The other settings of a context, to see whether they changed."""
    names = ("ssl.client.auth", "ssl.enabled.protocols", "ssl.cipher.suites")
    return " ".join(str(get(name)) for name in (*names, "ssl.principal.mapping.rules"))


# --- SASL ----------------------------------------------------------------------------------------


def _sasl(listener: str, settings: Settings, credentials: Credentials) -> SaslRules:
    text = settings.listener_text(listener, "sasl.enabled.mechanisms") or ""
    names = [name.strip().upper() for name in text.split(",") if name.strip()]
    unknown = [name for name in names if name not in MECHANISMS]
    if unknown or not names:
        raise SecurityError(
            f"sasl.enabled.mechanisms {', '.join(unknown) or 'is empty'}: supported are "
            f"{', '.join(MECHANISMS)}"
        )
    made = {name: _mechanism(name, listener, settings, credentials) for name in names}
    reauth = {}
    for name in names:
        limit = settings.listener_text(listener, "connections.max.reauth.ms", name) or "0"
        reauth[name] = _integer("connections.max.reauth.ms", limit)
    receive = settings.listener_text(listener, "sasl.server.max.receive.size") or "524288"
    return SaslRules(
        made,
        reauth,
        settings.int("connection.failed.authentication.delay.ms"),
        _integer("sasl.server.max.receive.size", receive),
    )


def _integer(name: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise SecurityError(f"{name} {text}: must be a number") from None


def _mechanism(
    name: str, listener: str, settings: Settings, credentials: Credentials
) -> Callable[[], Conversation]:
    if name == PLAIN:
        users = _jaas(listener, settings, name).users
        if not users:
            raise SecurityError(
                f"listener.name.{listener.lower()}.plain.sasl.jaas.config: PLAIN needs users: "
                'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="…";'
            )
        return lambda: Plain(users)
    if name in HASHES:
        number = ScramMechanism.named(name)
        assert number is not None

        def lookup(user: str) -> ScramCredential | None:
            return credentials.scram(listener, number, user)

        def token(token_id: str) -> TokenLogin | None:
            return credentials.token(number, token_id)

        tokens = None if credentials.token_key is None else token
        return lambda: Scram(name, lookup, new_nonce(), partial(credentials.decoy, number), tokens)
    assert name == OAUTHBEARER
    return _oauthbearer(listener, settings)


def _jaas(listener: str, settings: Settings, mechanism: str) -> JaasConfig:
    text = settings.listener_text(listener, "sasl.jaas.config", mechanism)
    if not text:
        return JaasConfig("", {})
    setting = f"listener.name.{listener.lower()}.{mechanism.lower()}.sasl.jaas.config"
    return parse_jaas(text, setting)


def _oauthbearer(listener: str, settings: Settings) -> Callable[[], Conversation]:
    from odradek_broker.security.sasl import oauthbearer
    from odradek_broker.security.sasl.jwks import Jwks

    def get(name: str) -> str | None:
        return settings.listener_text(listener, name, OAUTHBEARER)

    checks = oauthbearer.TokenChecks(
        issuer=get("sasl.oauthbearer.expected.issuer") or None,
        audience=tuple(
            one.strip()
            for one in (get("sasl.oauthbearer.expected.audience") or "").split(",")
            if one.strip()
        ),
        skew_s=_integer("clock skew", get("sasl.oauthbearer.clock.skew.seconds") or "30"),
        subject_claim=get("sasl.oauthbearer.sub.claim.name") or "sub",
        scope_claim=get("sasl.oauthbearer.scope.claim.name") or "scope",
    )

    def refused(reason: str) -> None:
        # It may repeat what the token says, which a stranger wrote.
        logger.info("listener %s: a token was refused: %.200s", listener, reason)

    url = get("sasl.oauthbearer.jwks.endpoint.url")
    if url:
        refresh = get("sasl.oauthbearer.jwks.endpoint.refresh.ms") or "3600000"
        jwks = Jwks(url, _integer("sasl.oauthbearer.jwks.endpoint.refresh.ms", refresh))
        verify = oauthbearer.signed(checks, jwks.key)
        return lambda: oauthbearer.OauthBearer(verify, refused, slow=True)
    if (get(UNSECURED) or "").lower() == "true":
        unsigned = oauthbearer.unsecured(checks)
        logger.warning("listener %s accepts tokens without a signature (%s)", listener, UNSECURED)
        return lambda: oauthbearer.OauthBearer(unsigned, refused, slow=False)
    raise SecurityError(
        "sasl.oauthbearer.jwks.endpoint.url must be set for OAUTHBEARER (for tests, "
        f"{UNSECURED}=true accepts tokens without a signature)"
    )
