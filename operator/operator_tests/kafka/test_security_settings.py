"""Settings of secured brokers, for both engines, and how the operator finds its way to them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from odradek_api.kafka_cluster.spec import KafkaClusterSpec
from odradek_api.parse import parse
from odradek_operator.kafka.links import final
from odradek_operator.kafka.routes import (
    ClusterRoute,
    internal_address,
    mtls_address,
    operator_route,
)
from odradek_operator.kafka.security_settings import (
    KeyStores,
    key_store_settings,
    protocols,
)
from odradek_operator.kafka.security_settings import (
    security_settings as render,
)
from operator_tests.worlds import cluster

STORES = KeyStores("/keys/broker-0.pem", "/trust/cluster-ca.crt", "/trust/clients-ca.crt")
MTLS = {"name": "partners", "port": 9095, "tls": True, "authentication": {"type": "mtls"}}
PLAIN = {"name": "plaintext", "port": 9092}


def spec(**given: Any) -> KafkaClusterSpec:
    head = {"apiVersion": "odradek.dev/v1alpha1", "kind": "KafkaCluster"}
    resource = parse({**head, "metadata": {"name": "main"}, "spec": given})
    assert resource is not None
    assert isinstance(resource.spec, KafkaClusterSpec)
    return resource.spec


def security_settings(given: KafkaClusterSpec, stores: KeyStores | None) -> dict[str, str]:
    return render(given, final(given), stores)


def test_an_open_cluster_has_no_setting_of_security() -> None:
    """So a cluster of an earlier version is not restarted by a new operator."""
    assert security_settings(spec(), None) == {}
    assert security_settings(spec(engine="apache"), None) == {}
    assert security_settings(spec(listeners={"port": 9092, "external": {}}), None) == {}


def test_further_open_listeners_are_mapped() -> None:
    made = security_settings(spec(listeners=[PLAIN, {"name": "other", "port": 9095}]), None)
    assert made == {
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,OTHER:PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
    }


@pytest.mark.parametrize("engine", ["embedded", "apache"])
def test_a_strict_cluster(engine: str) -> None:
    made = security_settings(spec(engine=engine, security="strict"), STORES)
    controller = ",CONTROLLERTLS:SSL" if engine == "apache" else ""
    assert made["listener.security.protocol.map"] == f"CLIENTS:SASL_SSL,REPLICATION:SSL{controller}"
    assert made["inter.broker.listener.name"] == "REPLICATION"
    assert made["listener.name.replication.ssl.client.auth"] == "required"
    assert made["listener.name.replication.ssl.truststore.location"] == STORES.cluster_trust
    assert made["listener.name.clients.ssl.client.auth"] == "none"
    assert made["listener.name.clients.sasl.enabled.mechanisms"] == "SCRAM-SHA-512"
    assert made["super.users"] == (
        "User:CN=odradek-broker,O=odradek.dev;User:CN=odradek-operator,O=odradek.dev"
    )
    internal = {"replication", "controllertls"} if engine == "apache" else {"replication"}
    files = key_store_settings(made)
    assert {name.split(".")[2] for name in files} == {"clients", *internal}
    assert len(files) == 2 * len({"clients", *internal})


def test_anonymous_clients_keep_their_rights_while_a_listener_admits_them() -> None:
    config = {"super.users": "User:root"}
    made = security_settings(spec(listeners=[PLAIN, MTLS], config=config), STORES)
    assert made["super.users"].endswith(";User:ANONYMOUS;User:root")
    assert made["listener.name.partners.ssl.truststore.location"] == STORES.clients_trust
    assert made["listener.name.partners.ssl.principal.mapping.rules"].startswith("RULE:^CN=")
    assert not any(name.startswith("listener.name.plaintext.") for name in made)


def test_oauth_is_rendered() -> None:
    oauth = {"type": "oauth", "oauth": {"jwksUrl": "https://id/keys", "issuer": "https://id"}}
    listener = {"name": "web", "port": 9095, "tls": True, "authentication": oauth}
    made = security_settings(spec(listeners=[listener]), STORES)
    prefix = "listener.name.web."
    assert made[f"{prefix}sasl.enabled.mechanisms"] == "OAUTHBEARER"
    assert made[f"{prefix}sasl.oauthbearer.jwks.endpoint.url"] == "https://id/keys"
    assert made[f"{prefix}sasl.oauthbearer.expected.issuer"] == "https://id"
    assert f"{prefix}sasl.oauthbearer.expected.audience" not in made


def settings(number: int, *names: str) -> dict[str, str]:
    """Of a running broker with these listeners."""
    found = protocols(spec(security="strict"), final(spec(security="strict"))) | {
        "PLAINTEXT": "PLAINTEXT"
    }
    return {
        "log.dirs": "/data",
        "advertised.listeners": ",".join(f"{name}://{name.lower()}-{number}:1" for name in names),
        "listener.security.protocol.map": ",".join(f"{n}:{found[n]}" for n in names),
    }


def test_the_operator_takes_the_listener_that_all_brokers_have() -> None:
    secured = [settings(n, "CLIENTS", "REPLICATION") for n in (0, 1)]
    assert operator_route(secured) == ClusterRoute("replication-0:1,replication-1:1", tls=True)
    mixed = [settings(0, "PLAINTEXT"), settings(1, "PLAINTEXT", "REPLICATION")]
    assert operator_route(mixed) == ClusterRoute("plaintext-0:1,plaintext-1:1")
    assert operator_route([]) == ClusterRoute("")
    plain = {"advertised.listeners": "PLAINTEXT://a:1,EXTERNAL://b:2"}
    assert operator_route([plain]) == ClusterRoute("a:1")
    assert internal_address(secured[0]) == "replication-0:1"
    assert internal_address(plain) == mtls_address(secured[0]) == ""


def test_clients_and_brokers_have_different_addresses() -> None:
    made = cluster(brokers=1)
    (broker,) = made.brokers.values()
    assert made.bootstrap == broker.address
    moved = replace(made, brokers={0: replace(broker, clients="main-0:9095")})
    assert moved.bootstrap == "main-0:9095"
