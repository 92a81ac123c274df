"""`ssl.SSLContext`s for either side of a connection, from settings with Kafka's names.

`ssl.cipher.suites` has Java's names. Python's `ssl` cannot restrict the suites of TLS 1.3, so a
list without any of them turns TLS 1.3 off, and a list of only those turns TLS 1.2 off.
"""

from __future__ import annotations

import re
import ssl

from odradek_protocol.security.errors import SecurityError
from odradek_protocol.security.stores import Get, Stores

VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
TLS13_SUITES = frozenset(
    (
        "TLS_AES_128_GCM_SHA256",
        "TLS_AES_256_GCM_SHA384",
        "TLS_CHACHA20_POLY1305_SHA256",
    )
)
_SUITE = re.compile(r"TLS_(?P<exchange>[A-Z]+(?:_[A-Z]+)?)_WITH_(?P<cipher>[A-Z0-9_]+)")
CLIENT_AUTH = {
    "none": ssl.CERT_NONE,
    "requested": ssl.CERT_OPTIONAL,
    "required": ssl.CERT_REQUIRED,
}


def client_context(get: Get, stores: Stores | None = None) -> ssl.SSLContext:
    """For outgoing connections; the server's certificate is always verified."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    algorithm = get("ssl.endpoint.identification.algorithm")
    if algorithm is not None and algorithm.lower() not in ("", "https"):
        raise SecurityError(
            f"ssl.endpoint.identification.algorithm {algorithm}: must be https or empty"
        )
    context.check_hostname = algorithm is None or algorithm.lower() == "https"
    (stores or Stores.of(get)).load_into(context)
    _restrict(context, get)
    return context


def server_context(get: Get, stores: Stores | None = None) -> ssl.SSLContext:
    stores = stores or Stores.of(get)
    if stores.keys is None:
        raise SecurityError(
            "ssl.keystore.location (or ssl.keystore.key) must be set for a listener with TLS"
        )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    client_auth = (get("ssl.client.auth") or "none").lower()
    if client_auth not in CLIENT_AUTH:
        raise SecurityError(f"ssl.client.auth {client_auth}: must be none, requested or required")
    context.verify_mode = CLIENT_AUTH[client_auth]
    context.options |= ssl.OP_NO_RENEGOTIATION
    context.num_tickets = 0  # Kafka's clients do not resume sessions; a ticket costs memory
    stores.load_into(context)
    _restrict(context, get)
    return context


def _restrict(context: ssl.SSLContext, get: Get) -> None:
    names = [one.strip() for one in (get("ssl.enabled.protocols") or "").split(",") if one.strip()]
    unknown = [name for name in names if name not in VERSIONS]
    if unknown:
        raise SecurityError(
            f"ssl.enabled.protocols {', '.join(unknown)}: supported are {', '.join(VERSIONS)}"
        )
    versions = [VERSIONS[name] for name in names] or list(VERSIONS.values())
    suites = [one.strip() for one in (get("ssl.cipher.suites") or "").split(",") if one.strip()]
    older = [suite for suite in suites if suite not in TLS13_SUITES]
    if suites and not older:
        versions = [v for v in versions if v is ssl.TLSVersion.TLSv1_3]
    elif suites and len(older) == len(suites):
        versions = [v for v in versions if v is ssl.TLSVersion.TLSv1_2]
    if not versions:
        raise SecurityError("ssl.cipher.suites has no suite of the ssl.enabled.protocols")
    context.minimum_version, context.maximum_version = min(versions), max(versions)
    if older:
        try:
            context.set_ciphers(":".join(map(_openssl_name, older)))
        except ssl.SSLError:
            raise SecurityError(
                f"ssl.cipher.suites {', '.join(older)}: none of them is available"
            ) from None


def _openssl_name(suite: str) -> str:
    """TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256 → ECDHE-RSA-AES128-GCM-SHA256."""
    match = _SUITE.fullmatch(suite)
    if match is None:
        return suite  # OpenSSL's own name
    exchange = "" if match["exchange"] == "RSA" else match["exchange"].replace("_", "-") + "-"
    cipher = re.sub(r"AES_(128|256)", r"AES\1", match["cipher"]).replace("_", "-")
    # The names of CBC suites leave the mode out; the one of ChaCha20 leaves the hash out.
    cipher = cipher.replace("-CBC", "").replace("POLY1305-SHA256", "POLY1305")
    return exchange + cipher
