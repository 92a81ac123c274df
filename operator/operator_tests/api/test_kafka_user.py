"""KafkaUser manifests: what is accepted, and the sentence for what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from odradek_api.base import API_VERSION, InvalidManifestError, Resource
from odradek_api.kafka_user.rules import user_cluster, user_name
from odradek_api.kafka_user.spec import KafkaUserSpec
from odradek_api.parse import parse

TOPIC = {"type": "topic", "name": "orders"}


def user(**spec: Any) -> Resource[KafkaUserSpec]:
    spec = {"cluster": {"name": "main"}, **spec}
    document = {"apiVersion": API_VERSION, "kind": "KafkaUser", "metadata": {"name": "billing"}}
    found = parse({**document, "spec": spec})
    assert found is not None
    return found


def test_a_user_needs_only_its_cluster() -> None:
    found = user()
    assert found.spec.authentication.type == "scram-sha-512"
    assert user_name(found) == "billing"
    assert user_cluster(found) == "default/main"


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"name": "a,b"}, "spec.name: may contain letters"),
        (
            {"authentication": {"type": "mtls", "passwordFrom": {"name": "s"}}},
            "spec.authentication.passwordFrom: only users of scram",
        ),
        ({"acls": [{"resource": {"type": "topic"}, "operations": ["read"]}]}, "name is required"),
        (
            {"acls": [{"resource": {"type": "cluster", "name": "x"}, "operations": ["alter"]}]},
            "whose only name is kafka-cluster",
        ),
        (
            {"acls": [{"resource": {**TOPIC, "name": "*", "pattern": "prefix"},
                       "operations": ["read"]}]},
            "use it with pattern literal",
        ),
        ({"acls": [{"resource": TOPIC, "operations": []}]}, "spec.acls[0].operations"),
        ({"acls": [{"resource": TOPIC, "operations": ["reed"]}]}, "allowed are all, read, write"),
        ({"authentication": {"type": "mtls"}, "name": "x" * 65}, "at most 64 characters"),
        ({"quotas": {"producerByteRate": 0}}, "spec.quotas.producerByteRate"),
        ({"secret": {"keys": ["jks"]}}, "spec.secret.keys"),
    ],
)  # fmt: skip
def test_what_is_refused(spec: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidManifestError) as refused:
        user(**spec)
    assert words in str(refused.value)


def test_an_external_principal_may_have_any_characters() -> None:
    dn = "CN=app,O=Example"
    assert user_name(user(name=dn, authentication={"type": "external"})) == dn
