"""The CRDs in crds/ equal what the types generate, and meet the rules of an API server."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from odradek_api.crd import CRDS, crd, crd_file, crd_text
from odradek_api.kinds import KINDS, Kind

# Omitting one of these has a meaning of its own, so it must not have a default.
BY_PRESENCE = {
    "imbalance",
    "controllers",
    "external",
    "topic",
    "table",
    "mirror",
    "console",
    "files",
    "rate",
}
BY_PRESENCE |= {"passwordFrom", "issuerRef", "registry", "executor"}
all_kinds = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)


@all_kinds
def test_files_are_up_to_date(kind: Kind) -> None:
    text = (CRDS / crd_file(kind)).read_text()
    assert text == crd_text(kind), "run `make gen`"
    assert yaml.safe_load(text) == crd(kind)


def schema(kind: Kind) -> dict[str, Any]:
    found: dict[str, Any] = crd(kind)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return found


@all_kinds
def test_schemas_are_structural(kind: Kind) -> None:
    """Every node has a type, and no keyword that Kubernetes does not support."""

    def check(part: dict[str, Any], where: str) -> None:
        if where == ".spec.listeners":  # a list, or the deprecated mapping
            assert part.keys() == {"description", "x-kubernetes-preserve-unknown-fields"}
            return
        assert part.get("type"), where
        assert not {"$ref", "anyOf", "title", "additionalProperties"} & part.keys(), where
        if part["type"] == "object" and "properties" not in part and where != ".metadata":
            assert part.get("x-kubernetes-preserve-unknown-fields"), where
        if part["type"] == "array":
            check(part["items"], f"{where}[]")
        for name, inner in part.get("properties", {}).items():
            check(inner, f"{where}.{name}")

    check(schema(kind), "")


@all_kinds
def test_every_default_is_filled_in(kind: Kind) -> None:
    """An object without a default of its own would hide the defaults of its fields."""

    def reachable(part: dict[str, Any], where: str) -> None:
        for name, inner in part.get("properties", {}).items():
            optional = name not in part.get("required", [])
            has_defaults = any("default" in p for p in inner.get("properties", {}).values())
            if optional and has_defaults and name not in BY_PRESENCE:
                assert inner.get("default") == {}, f"{where}.{name}"
            reachable(inner, f"{where}.{name}")

    reachable(schema(kind)["properties"]["spec"], "spec")


def test_what_kubectl_shows() -> None:
    cluster = crd(KINDS["KafkaCluster"])
    assert cluster["spec"]["names"]["shortNames"] == ["kc"]
    assert "kafka" in cluster["spec"]["names"]["categories"]
    version = cluster["spec"]["versions"][0]
    assert version["subresources"]["scale"]["specReplicasPath"] == ".spec.brokers"
    assert {"Ready", "Rolling", "Brokers"} <= {
        c["name"] for c in version["additionalPrinterColumns"]
    }
    rules = schema(KINDS["KafkaCluster"])["properties"]["spec"]["x-kubernetes-validations"]
    assert all(rule["message"].startswith("spec.") for rule in rules)


@all_kinds
def test_every_field_has_a_description(kind: Kind) -> None:
    """In the file that is installed: `kubectl explain` and the reference in docs/ show it."""
    document = yaml.safe_load((CRDS / crd_file(kind)).read_text())
    top = document["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    missing: list[str] = []
    silent: list[str] = []

    def check(part: dict[str, Any], where: str) -> None:
        for name, inner in part.get("properties", {}).items():
            if (where, name) == (kind.name, "metadata"):
                continue  # the API server refuses a description of it
            if not inner.get("description", "").endswith((".", "…", "*")):
                missing.append(f"{where}.{name}")
            if _hides_its_default(part, name, f"{where}.{name}", kind):
                silent.append(f"{where}.{name}")
            check(inner, f"{where}.{name}")
        for one in (part.get("items"), part.get("additionalProperties")):
            if isinstance(one, dict):
                check(one, f"{where}[]")

    check(top, kind.name)
    assert not missing, "fields without a description, or not a sentence"
    assert not silent, "optional fields of the spec whose default is neither in schema nor text"
    assert top["description"]


def _hides_its_default(part: dict[str, Any], name: str, where: str, kind: Kind) -> bool:
    inner = part["properties"][name]
    of_spec = where.startswith(f"{kind.name}.spec.")
    return (
        of_spec
        and name not in part.get("required", ())
        and "default" not in inner
        and "default" not in inner["description"].lower()
    )
