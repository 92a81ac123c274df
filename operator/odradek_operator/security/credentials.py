"""The Secret of a KafkaUser: its desired content, given the present one. Does no I/O.

    decided = decide(user, stored, Sources(password=None, clients_ca=ca), now, randomness)
    data = render(user, decided, ClusterAccess("main-0:9093", "SASL_SSL", ca_pem), stored)

Credentials are kept as long as they are usable, so that a pass which finds nothing new writes
nothing: a password until a rotation is asked for or its source changes, a certificate until two
thirds of its life are over or the CA has changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from odradek_operator.reason import Reason
from odradek_operator.security.pki import (
    InvalidCertificateError,
    KeyPair,
    Subject,
    Usage,
    belongs,
    days,
    issue,
    read,
)
from odradek_operator.security.users import ITERATIONS, DesiredUser, is_scram, new_iterations

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

CERTIFICATE_VALID_S = days(365)
RENEW_AFTER = 2 / 3  # of a certificate's life
PASSWORD_BYTES = 24
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
USERNAME, PASSWORD, BOOTSTRAP = "username", "password", "bootstrap.servers"
CA, CERTIFICATE, KEY = "ca.crt", "user.crt", "user.key"
PROPERTIES, LIBRDKAFKA, JAAS = "client.properties", "librdkafka.conf", "sasl.jaas.config"


@dataclass(frozen=True)
class Stored:
    """The Secret as it was found."""

    data: Mapping[str, bytes] = field(repr=False, default_factory=dict)
    owner: str = ""  # "namespace/name" of the KafkaUser that it was made for
    iterations: int = 0  # of the password; 0: none
    rotation: str = ""  # the rotation that was asked for when the credentials were made


@dataclass(frozen=True)
class Sources:
    """The inputs of credentials."""

    password: str | None = field(repr=False, default=None)  # of spec.authentication.passwordFrom
    clients_ca: KeyPair | None = None
    iterations_used: frozenset[int] = frozenset()  # by this user in Kafka


@dataclass(frozen=True)
class Randomness:
    password: Callable[[], str]
    below: Callable[[int], int]


@dataclass(frozen=True)
class Credentials:
    password: str = field(repr=False, default="")
    iterations: int = 0
    certificate: KeyPair | None = None
    rotation: str = ""

    @property
    def scram(self) -> tuple[str, int] | None:
        return (self.password, self.iterations) if self.password else None


@dataclass(frozen=True)
class ClusterAccess:
    """How clients reach the cluster with these credentials."""

    bootstrap: str
    protocol: str = "PLAINTEXT"
    ca_pem: bytes = b""  # the CAs that clients trust; empty without TLS


class NoCredentialsError(Exception):
    """There is nothing to make the credentials from; `reason` says what is missing."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(reason.message)
        self.reason = reason


# -- decide ----------------------------------------------------------------------------------------


def decide(
    user: DesiredUser, stored: Stored, sources: Sources, now: float, randomness: Randomness
) -> Credentials:
    if is_scram(user):
        return _password(user, stored, sources, randomness)
    if user.authentication == "mtls":
        return _certificate(user, stored, sources, now)
    return Credentials(rotation=user.rotation)


def _password(
    user: DesiredUser, stored: Stored, sources: Sources, randomness: Randomness
) -> Credentials:
    known = stored.data.get(PASSWORD, b"").decode()
    usable = stored.iterations in ITERATIONS
    if user.password_from is not None:
        wanted = sources.password
        if not wanted:
            secret, key = user.password_from
            message = f"Secret {secret} does not exist, or has no key {key}"
            raise NoCredentialsError(Reason("PasswordMissing", message))
        keep = known == wanted and usable
    else:
        keep = bool(known) and usable and stored.rotation == user.rotation
        wanted = known if keep else randomness.password()
    if keep:
        return Credentials(wanted, stored.iterations, rotation=user.rotation)
    used = sources.iterations_used | {stored.iterations}
    return Credentials(wanted, new_iterations(used, randomness.below), rotation=user.rotation)


def _certificate(user: DesiredUser, stored: Stored, sources: Sources, now: float) -> Credentials:
    ca = sources.clients_ca
    if ca is None:
        message = "the cluster has no listener with authentication mtls, and so no CA of clients"
        raise NoCredentialsError(Reason("NoClientsCA", message))
    found = KeyPair(stored.data.get(CERTIFICATE, b""), stored.data.get(KEY, b""))
    if stored.rotation == user.rotation and not _why_renew(user, found, ca, now):
        return Credentials(certificate=found, rotation=user.rotation)
    made = issue(ca, Subject(user.name), Usage.CLIENT, now, CERTIFICATE_VALID_S)
    return Credentials(certificate=made, rotation=user.rotation)


def _why_renew(user: DesiredUser, found: KeyPair, ca: KeyPair, now: float) -> str:
    """Empty if the certificate is usable."""
    try:
        if not belongs(found):
            return "the key is another one's"
        certificate = read(found.certificate_pem)
    except InvalidCertificateError as error:
        return str(error)
    if certificate.distinguished_name != f"CN={user.name}":
        return "it is another user's"
    if certificate.issuer_key_id != read(ca.certificate_pem).key_id:
        return "the CA has changed"
    life = certificate.not_after - certificate.not_before
    if not certificate.not_before <= now < certificate.not_before + life * RENEW_AFTER:
        return "it expires soon"
    return ""


# -- render ----------------------------------------------------------------------------------------


def render(
    user: DesiredUser, credentials: Credentials, access: ClusterAccess, stored: Stored
) -> dict[str, bytes]:
    """All keys of the Secret."""
    data = {USERNAME: user.name.encode(), BOOTSTRAP: access.bootstrap.encode()}
    if access.ca_pem:
        data[CA] = access.ca_pem
    if credentials.password:
        data[PASSWORD] = credentials.password.encode()
    if credentials.certificate is not None:
        data[CERTIFICATE] = credentials.certificate.certificate_pem
        data[KEY] = credentials.certificate.key_pem
    settings = client_settings(user, credentials, access)
    if PROPERTIES in user.keys:
        data[PROPERTIES] = properties_text(settings).encode()
    if LIBRDKAFKA in user.keys:
        data[LIBRDKAFKA] = _librdkafka(user, credentials, access).encode()
    if JAAS in user.keys and JAAS in settings:
        data[JAAS] = settings[JAAS].encode()
    if "servicebinding" in user.keys:
        data |= _service_binding(user, credentials, access)
    if "pkcs12" in user.keys:
        data |= _pkcs12(data, stored, user.name)
    return data


def client_settings(
    user: DesiredUser, credentials: Credentials, access: ClusterAccess
) -> dict[str, str]:
    """client.properties of Java's client. It contains the certificates, so it can be copied
    anywhere.
    """
    settings = {BOOTSTRAP: access.bootstrap, "security.protocol": access.protocol}
    if access.protocol.endswith("SSL"):
        settings["ssl.truststore.type"] = "PEM"
        settings["ssl.truststore.certificates"] = access.ca_pem.decode()
    if access.protocol.endswith("SSL") and credentials.certificate is not None:
        settings["ssl.keystore.type"] = "PEM"
        settings["ssl.keystore.certificate.chain"] = (
            credentials.certificate.certificate_pem.decode()
        )
        settings["ssl.keystore.key"] = credentials.certificate.key_pem.decode()
    if access.protocol.startswith("SASL") and credentials.password:
        settings["sasl.mechanism"] = user.authentication.upper()
        settings[JAAS] = (
            f"{SCRAM_MODULE} required username={_quoted(user.name)} "
            f"password={_quoted(credentials.password)};"
        )
    return settings


def properties_text(settings: Mapping[str, str]) -> str:
    """Java's properties format: a value of several lines is written with \\n."""
    return "".join(f"{name}={_escaped(value)}\n" for name, value in settings.items())


def _escaped(value: str) -> str:
    text = value.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")
    return f"\\{text}" if text[:1] in (" ", "\t") else text


def _quoted(value: str) -> str:
    """A value in JAAS."""
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _librdkafka(user: DesiredUser, credentials: Credentials, access: ClusterAccess) -> str:
    """name=value lines; \\n in a value stands for the end of a line."""
    settings = {BOOTSTRAP: access.bootstrap, "security.protocol": access.protocol}
    if access.protocol.endswith("SSL"):
        settings["ssl.ca.pem"] = access.ca_pem.decode()
    if access.protocol.endswith("SSL") and credentials.certificate is not None:
        settings["ssl.certificate.pem"] = credentials.certificate.certificate_pem.decode()
        settings["ssl.key.pem"] = credentials.certificate.key_pem.decode()
    if access.protocol.startswith("SASL") and credentials.password:
        settings["sasl.mechanism"] = user.authentication.upper()
        settings["sasl.username"] = user.name
        settings["sasl.password"] = credentials.password
    lines = {name: value.replace("\n", "\\n") for name, value in settings.items()}
    return "".join(f"{name}={value}\n" for name, value in lines.items())


def _service_binding(
    user: DesiredUser, credentials: Credentials, access: ClusterAccess
) -> dict[str, bytes]:
    """Entries with the names that servicebinding.io and its Kafka bindings define."""
    entries = {
        "type": "kafka",
        "provider": "odradek",
        "bootstrapServers": access.bootstrap,
        "securityProtocol": access.protocol,
        USERNAME: user.name,
    }
    if credentials.password:
        entries |= {"saslMechanism": user.authentication.upper(), PASSWORD: credentials.password}
    data = {name: value.encode() for name, value in entries.items()}
    if access.ca_pem:
        data["certificates"] = access.ca_pem
    if credentials.certificate is not None:
        data["private-key"] = credentials.certificate.key_pem
    return data


def _pkcs12(data: Mapping[str, bytes], stored: Stored, name: str) -> dict[str, bytes]:
    """Key stores; those that were made of the same certificates are kept: each one is encrypted
    with another salt, and would be a change."""
    from cryptography import x509
    from cryptography.hazmat.primitives.serialization import BestAvailableEncryption
    from cryptography.hazmat.primitives.serialization.pkcs12 import (
        PKCS12Certificate,
        serialize_java_truststore,
        serialize_key_and_certificates,
    )

    password = _p12_password(data)
    made = {}
    if CA in data or CERTIFICATE in data:
        made["p12.password"] = password
    encryption = BestAvailableEncryption(password)
    if CA in data:
        authorities = x509.load_pem_x509_certificates(data[CA])
        made["ca.p12"] = _kept(stored, data, (CA,), "ca.p12") or serialize_java_truststore(
            [PKCS12Certificate(one, f"ca-{n}".encode()) for n, one in enumerate(authorities)],
            encryption,
        )
    if CERTIFICATE in data:
        (certificate, *chain) = x509.load_pem_x509_certificates(data[CERTIFICATE])
        made["user.p12"] = _kept(
            stored, data, (CERTIFICATE, KEY), "user.p12"
        ) or serialize_key_and_certificates(
            name.encode(), _private_key(data[KEY]), certificate, chain, encryption
        )
    return made


def _kept(
    stored: Stored, data: Mapping[str, bytes], made_of: Iterable[str], name: str
) -> bytes | None:
    same = all(stored.data.get(part) == data.get(part) for part in made_of)
    same = same and stored.data.get("p12.password") == _p12_password(data)
    return stored.data.get(name) if same else None


def _p12_password(data: Mapping[str, bytes]) -> bytes:
    """Key stores need a password. It is derived from what the Secret holds in clear anyway."""
    from hashlib import sha256

    return sha256(data.get(KEY, b"") + data.get(PASSWORD, b"")).hexdigest()[:32].encode()


def _private_key(pem: bytes) -> EllipticCurvePrivateKey:
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    return load_pem_private_key(pem, None)  # type: ignore[return-value]  # issue() makes these
