"""Listeners as a list, the deprecated mapping, and the rules of secured clusters."""

from __future__ import annotations

from typing import Any

import pytest

from odradek_api.kafka_cluster.spec import KafkaClusterSpec
from odradek_api.parse import parse
from operator_tests.api.test_parse import cluster, words

SCRAM = {"type": "scram-sha-512"}
SAFE = {"name": "clients", "port": 9092, "tls": True, "authentication": SCRAM}


def spec(**given: Any) -> KafkaClusterSpec:
    resource = parse(cluster(**given))
    assert resource is not None
    assert isinstance(resource.spec, KafkaClusterSpec)
    return resource.spec


def test_without_listeners_there_is_one_and_strict_makes_it_safe() -> None:
    (plain,) = spec().listener_list
    assert (plain.kafka_name, plain.port, plain.protocol) == ("PLAINTEXT", 9092, "PLAINTEXT")
    strict = spec(security="strict")
    (safe,) = strict.listener_list
    assert (safe.kafka_name, safe.protocol) == ("CLIENTS", "SASL_SSL")
    assert strict.secured
    assert strict.authorized
    assert not spec().secured


def test_the_mapping_becomes_the_same_list() -> None:
    addresses = [{"id": 0, "host": "kafka.example.com", "port": 31000, "nodePort": 31000}]
    external = {"type": "LoadBalancer", "port": 9094, "brokers": addresses, "annotations": {"a": 1}}
    mapping = spec(listeners={"port": 19092, "external": external})
    listed = spec(
        listeners=[
            {"name": "plaintext", "port": 19092},
            {
                "name": "external",
                "port": 9094,
                "type": "loadbalancer",
                "advertised": addresses,
                "annotations": {"a": 1},
            },
        ]
    )
    assert mapping.listener_list == listed.listener_list
    assert "spec.listeners is a mapping" in mapping.deprecated
    assert listed.deprecated == spec().deprecated == ""


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (
            {"listeners": [{**SAFE, "tsl": True}]},
            "spec.listeners[0].tsl: unknown field; did you mean tls?",
        ),
        (
            {"listeners": [{**SAFE, "authentication": {"type": "scram"}}]},
            "spec.listeners[0].authentication.type: 'scram' is not an allowed value; allowed are "
            "none, scram-sha-512, scram-sha-256, oauth, mtls",
        ),
        (
            {"listeners": []},
            "spec.listeners: must have 1 to 8 listeners, one of them of type internal",
        ),
        (
            {"listeners": [SAFE, {**SAFE, "name": "web", "port": 9096, "type": "passthrough"}]},
            "spec.listeners: type passthrough needs tls: true and hostPattern: the proxy chooses "
            "the broker by the name that TLS sends",
        ),
        (
            {"listeners": [{**SAFE, "hostPattern": "kafka-{id}.example.com"}]},
            "spec.listeners: hostPattern is for clients outside Kubernetes: type internal has none",
        ),
        (
            {"listeners": [{**SAFE, "type": "nodeport", "hostPattern": "kafka.example.com"}, SAFE]},
            "spec.listeners[0].hostPattern: does not match '^[-a-z0-9.]*\\\\{id\\\\}[-a-z0-9.]*$'",
        ),
        (
            {"certificates": {"secretName": "web", "issuerRef": {"name": "company"}}},
            "spec.certificates: certificates.issuerRef and certificates.secretName exclude each "
            "other",
        ),
        (
            {"listeners": [SAFE, {**SAFE, "port": 9094}]},
            "spec.listeners: must not name a listener twice",
        ),
        (
            {"listeners": [SAFE, {**SAFE, "name": "others"}]},
            "spec.listeners: the ports of the listeners and metrics.port must differ",
        ),
        (
            {"listeners": [{**SAFE, "name": "replication"}]},
            "spec.listeners: the names replication, controller, controllertls are reserved for the "
            "brokers",
        ),
        (
            {"listeners": [{**SAFE, "port": 9091}]},
            "spec.listeners: port 9091 is reserved for the brokers of a cluster with TLS: choose "
            "another port for the listener, or another metrics.port",
        ),
        (
            {"listeners": [{**SAFE, "tls": False}]},
            "spec.listeners: authentication needs tls: true: a password, a token or a certificate "
            "is not sent over an unencrypted connection",
        ),
        (
            {"listeners": [{**SAFE, "authentication": {"type": "oauth"}}]},
            "spec.listeners: authentication of type oauth needs oauth.jwksUrl, and no other type "
            "has `oauth`",
        ),
        (
            {"security": "strict", "listeners": [SAFE, {"name": "plain", "port": 9094}]},
            "spec.listeners: with security strict every listener needs tls: true and "
            "authentication",
        ),
        (
            {"security": "strict", "listeners": {"port": 9092}},
            "spec.listeners: with security strict every listener needs tls: true and "
            "authentication",
        ),
        (
            {"security": "strict", "config": {"ssl.keystore.location": "mine.pem"}},
            "spec.config[ssl.keystore.location]: is reserved: set spec.listeners",
        ),
        (
            {"certificates": {"validityDays": 30}},
            "spec.certificates.renewBeforeDays: must be less than certificates.validityDays",
        ),
    ],
)
def test_refusals(given: dict[str, Any], sentence: str) -> None:
    assert words(cluster(**given)) == [f"f.yaml: KafkaCluster default/m: {sentence}"]


def test_an_open_cluster_may_set_up_tls_by_itself_as_before() -> None:
    assert spec(config={"ssl.keystore.location": "/mine.pem"}).config
