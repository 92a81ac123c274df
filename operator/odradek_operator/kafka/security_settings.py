"""Broker settings that follow from the listeners of a spec: protocols, key stores, ACLs.

    security_settings(spec, KeyStores("/c/brokers/broker-0.pem", "/c/trust/cluster-ca.crt", …))

Both engines take the same settings, with Kafka's names. Without TLS and without authentication
there are none, and the cluster is exactly what it was before there was a list of listeners.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from odradek_api.base import settings_text
from odradek_api.kafka_cluster.listeners import REPLICATION, Listener
from odradek_api.kafka_cluster.security import (
    BROKER_NAME,
    OPERATOR_NAME,
    PRINCIPAL_RULES,
    principal,
)
from odradek_api.kafka_cluster.spec import KafkaClusterSpec
from odradek_operator.kafka.links import (
    CONTROLLER_NAME,
    CONTROLLER_TLS_NAME,
    FURTHER_INTER_BROKER,
    INTER_BROKER,
    PROTOCOL_MAP,
    REPLICATION_NAME,
    Links,
)

SUPER_USERS = "super.users"
AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
ANONYMOUS = "User:ANONYMOUS"
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
OAUTH_MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required;"
OAUTH_HANDLER = "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler"
_KNOWN = {"PLAINTEXT", "EXTERNAL", CONTROLLER_NAME}  # listeners of a cluster without a list
# How often our broker looks at the files; Apache Kafka is asked to, by altering its settings.
RELOAD_INTERVAL_MS = "2000"


@dataclass(frozen=True, slots=True)
class KeyStores:
    """Paths of the files of one node, where it runs."""

    own: str  # private key and certificate
    cluster_trust: str
    clients_trust: str
    given: str = ""  # shown to clients; empty: `own`


def protocols(spec: KafkaClusterSpec, links: Links) -> dict[str, str]:
    """Kafka's name of each listener that a broker has → its security protocol, in this order."""
    found = {one.kafka_name: one.protocol for one in spec.listener_list}
    return found | ({REPLICATION_NAME: "SSL"} if links.replication else {})


def security_settings(
    spec: KafkaClusterSpec, links: Links, stores: KeyStores | None
) -> dict[str, str]:
    """`stores` may be None if no listener has TLS."""
    mapped = protocols(spec, links)
    for name in links.controllers:
        mapped[name] = "SSL" if name == CONTROLLER_TLS_NAME else "PLAINTEXT"
    made = {
        PROTOCOL_MAP: ",".join(f"{name}:{protocol}" for name, protocol in mapped.items()),
        INTER_BROKER: links.inter_broker,
    }
    if links.further and spec.engine != "apache":
        made[FURTHER_INTER_BROKER] = ",".join(links.further)
    if not links.secured:
        return made if links.further or not mapped.keys() <= _KNOWN else {}
    if stores is None:
        raise ValueError("this platform has no place for certificates")
    internal = [REPLICATION] if links.replication else []
    if CONTROLLER_TLS_NAME in links.controllers:
        internal.append(CONTROLLER_TLS_NAME.lower())
    for name in internal:
        made |= _tls(name, stores.own, stores.cluster_trust, client_auth="required")
    for listener in spec.listener_list:
        made |= _listener(listener, stores)
    if spec.authorized:
        made |= {"authorizer.class.name": AUTHORIZER, SUPER_USERS: _super_users(spec)}
    if spec.engine != "apache":
        made["odradek.ssl.reload.interval.ms"] = RELOAD_INTERVAL_MS
    return made


def key_store_settings(settings: Mapping[str, str]) -> dict[str, str]:
    """The settings that name files of certificates: altering them makes Kafka load the files."""
    endings = (".ssl.keystore.location", ".ssl.truststore.location")
    return {n: v for n, v in settings.items() if n.endswith(endings)}


def _listener(listener: Listener, stores: KeyStores) -> dict[str, str]:
    if not listener.tls:
        return {}
    kind = listener.authentication.type
    made = _tls(
        listener.name,
        stores.given or stores.own,
        stores.clients_trust,
        client_auth="required" if kind == "mtls" else "none",
    )
    prefix = f"listener.name.{listener.name}."
    if kind == "mtls":
        made[f"{prefix}ssl.principal.mapping.rules"] = PRINCIPAL_RULES
    elif kind.startswith("scram"):
        made[f"{prefix}sasl.enabled.mechanisms"] = kind.upper()
        made[f"{prefix}{kind}.sasl.jaas.config"] = SCRAM_MODULE
    elif kind == "oauth":
        made |= _oauth(listener, prefix)
    return made


def _oauth(listener: Listener, prefix: str) -> dict[str, str]:
    oauth = listener.authentication.oauth
    assert oauth is not None
    given = {
        "sasl.oauthbearer.jwks.endpoint.url": oauth.jwks_url,
        "sasl.oauthbearer.expected.issuer": oauth.issuer,
        "sasl.oauthbearer.expected.audience": oauth.audience,
        "sasl.oauthbearer.sub.claim.name": oauth.user_claim,
    }
    return {
        f"{prefix}sasl.enabled.mechanisms": "OAUTHBEARER",
        f"{prefix}oauthbearer.sasl.jaas.config": OAUTH_MODULE,
        f"{prefix}oauthbearer.sasl.server.callback.handler.class": OAUTH_HANDLER,
        **{f"{prefix}{name}": value for name, value in given.items() if value is not None},
    }


def _tls(listener: str, own: str, trust: str, *, client_auth: str) -> dict[str, str]:
    return {
        f"listener.name.{listener}.{name}": value
        for name, value in {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": own,
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": trust,
            "ssl.client.auth": client_auth,
        }.items()
    }


def _super_users(spec: KafkaClusterSpec) -> str:
    """With `security: open`, anonymous clients keep all rights as long as a listener admits them.

    So users with ACLs can be added to a running open cluster before its clients move.
    """
    names = [principal(BROKER_NAME), principal(OPERATOR_NAME)]
    if any(one.authentication.type == "none" for one in spec.listener_list):
        names.append(ANONYMOUS)
    return ";".join([*names, *_own_super_users(settings_text(spec.config).get(SUPER_USERS, ""))])


def _own_super_users(text: str) -> Iterable[str]:
    return filter(None, (name.strip() for name in text.split(";")))
