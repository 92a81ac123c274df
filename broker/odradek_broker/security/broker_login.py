"""How this broker connects to others through one of their listeners: TLS and a login.

A login with SCRAM needs a credential on the other side, which is in the metadata log; the log is
replicated through the same listeners. So that a cluster can form, and elect a leader after all of
its brokers were down, a broker that is starting accepts the user of its own settings with the
password of its own settings: `OwnUser`. From its registration on, when its metadata is current,
only the metadata log counts. The node that forms a cluster writes its own user into the log.
"""

import hashlib
import hmac
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from odradek_broker.metadata.delegation_tokens import TokenKey
from odradek_broker.metadata.image import MetadataImage
from odradek_broker.metadata.records import UserScramCredentialRecord
from odradek_broker.metadata.scram import (
    ITERATIONS_DEFAULT,
    SALT_BYTES,
    ScramCredential,
    ScramImage,
    ScramMechanism,
    make_credential,
)
from odradek_broker.model.principal import USER
from odradek_broker.runtime.listeners import Listener
from odradek_broker.runtime.peer_security import PeerSecurity
from odradek_broker.runtime.settings import Settings
from odradek_broker.security.sasl.scram import TokenLogin
from odradek_protocol.security.contexts import client_context
from odradek_protocol.security.errors import SecurityError
from odradek_protocol.security.sasl_client import Login, login_of
from odradek_protocol.security.stores import Stores


@dataclass(frozen=True)
class OwnUser:
    """The user as which this broker logs in with SCRAM."""

    mechanism: ScramMechanism
    login: Login
    credential: ScramCredential

    @classmethod
    def of(cls, login: Login | None) -> "OwnUser | None":
        """None if the login is not SCRAM, or if there is none. Runs PBKDF2, some 3 ms."""
        mechanism = None if login is None else ScramMechanism.named(login.mechanism)
        if login is None or mechanism is None or not login.user:
            return None
        salt = secrets.token_bytes(SALT_BYTES)
        made = make_credential(mechanism, login.password, salt, ITERATIONS_DEFAULT)
        return cls(mechanism, login, made)

    def has_password_of(self, record: UserScramCredentialRecord) -> bool:
        made = make_credential(self.mechanism, self.login.password, record.salt, record.iterations)
        return hmac.compare_digest(made.stored_key, record.stored_key)

    def record(self) -> UserScramCredentialRecord:
        made = self.credential
        return UserScramCredentialRecord(
            self.login.user,
            self.mechanism,
            made.salt,
            made.stored_key,
            made.server_key,
            made.iterations,
        )


@dataclass
class Credentials:
    """Values that mechanisms need besides settings; `secret` makes the salts of unknown users."""

    image: Callable[[], MetadataImage]
    secret: bytes = field(default_factory=lambda: secrets.token_bytes(32), repr=False)
    # By listener, while this broker is starting; empty from its registration on.
    own: dict[str, OwnUser] = field(default_factory=dict)
    token_key: TokenKey | None = field(default=None, repr=False)  # None: no delegation tokens
    _forms_of: ScramImage | None = field(default=None, repr=False)
    _forms: dict[ScramMechanism, list[tuple[int, int]]] = field(default_factory=dict, repr=False)

    def scram(self, listener: str, mechanism: ScramMechanism, user: str) -> ScramCredential | None:
        own = self.own.get(listener)
        # First: the image of a start is that of a snapshot, which may have an older password.
        if own is not None and (own.mechanism, own.login.user) == (mechanism, user):
            return own.credential
        return self.image().scram.credential(mechanism, user)

    def decoy(self, mechanism: ScramMechanism, user: str) -> ScramCredential:
        """For a user that does not exist: the same each time, with the length of the salt and the
        number of iterations of a user that does, so that they tell nothing."""
        image = self.image().scram
        if image is not self._forms_of:
            self._forms_of, self._forms = image, forms(image)
        derived = hmac.digest(self.secret, f"{mechanism.label}\0{user}".encode(), "sha512")
        known = self._forms.get(mechanism) or [(SALT_BYTES, ITERATIONS_DEFAULT)]
        salt_bytes, iterations = known[int.from_bytes(derived[-8:]) % len(known)]
        salt = hashlib.shake_256(derived).digest(salt_bytes)
        size = hashlib.new(mechanism.hash_name).digest_size
        return ScramCredential(salt, bytes(size), bytes(size), iterations)

    def token(self, mechanism: ScramMechanism, token_id: str) -> TokenLogin | None:
        """Slow at the first login with a token; it may run in a thread."""
        token = self.image().tokens.get(token_id)
        if token is None or self.token_key is None:
            return None
        kind, _, owner = token.owner.partition(":")
        if kind != USER:  # written by another program: such a principal does not exist here
            return None
        credential = self.token_key.credential(mechanism, token_id)
        return TokenLogin(owner, token.expiration_timestamp, credential)


def forms(image: ScramImage) -> dict[ScramMechanism, list[tuple[int, int]]]:
    """(length of the salt, iterations) of all users of each mechanism."""
    found: dict[ScramMechanism, list[tuple[int, int]]] = {}
    for key, credential in image.credentials.items():
        form = len(credential.salt), credential.iterations
        found.setdefault(key.mechanism, []).append(form)
    return {mechanism: sorted(own) for mechanism, own in found.items()}


def peer_security(
    settings: Settings, listener: Listener, mechanism_setting: str, offered: tuple[str, ...]
) -> PeerSecurity | None:
    """`offered` are the mechanisms of that listener, which other brokers have too. None: without
    TLS and SASL. Raises SecurityError."""
    if listener.security_protocol == "PLAINTEXT":
        return None
    tls, fingerprint = None, ""
    if listener.security_protocol.endswith("SSL"):
        get = partial(settings.listener_text, listener.name)
        stores = Stores.of(get)
        tls, fingerprint = client_context(get, stores), stores.fingerprint
    login = None
    if listener.security_protocol.startswith("SASL"):
        login = _login(settings, listener.name, mechanism_setting, offered)
    # Named as a broker: it gets in although clients have taken all connections (adr/0016).
    return PeerSecurity(tls, login, fingerprint, f"broker-{settings.node_id}-login")


def _login(
    settings: Settings, listener: str, mechanism_setting: str, offered: tuple[str, ...]
) -> Login:
    mechanism = settings.str(mechanism_setting).upper()
    if mechanism not in offered:
        raise SecurityError(
            f"{mechanism_setting} {mechanism} must be one of the sasl.enabled.mechanisms of "
            f"listener {listener}"
        )
    try:
        return login_of(mechanism, lambda name: settings.listener_text(listener, name, mechanism))
    except SecurityError as error:
        if not settings.quorum_voters and not settings.quorum_bootstrap_servers:
            return Login(mechanism)  # alone: it never connects to another broker
        raise SecurityError(f"listener {listener}: {error}") from None
