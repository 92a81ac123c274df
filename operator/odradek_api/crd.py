"""Generates the CRDs from the types: `python -m odradek_api.crd` writes crds/*.yaml (`make gen`);
with --check it only compares (`make check`).

msgspec generates JSON schema. Kubernetes accepts a structural subset of OpenAPI v3, so references
are inlined, a nullable field becomes an optional one, and an object whose fields all have defaults
gets the default {}, so that the API server fills in the defaults inside it. A field that may be a
list or a mapping cannot be described: its type is left open, and parse.py checks it.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import msgspec
import yaml

from odradek_api.base import GROUP, VERSION, Rule
from odradek_api.kinds import KINDS, Kind

CRDS = Path(__file__).parents[2] / "crds"
HEADER = "# Generated from odradek_api by `make gen`; do not edit.\n"
_KEEP = {"x-kubernetes-preserve-unknown-fields": True}
CONDITION_TYPES = ["type"]  # the key of the conditions list, for server-side apply


def crd(kind: Kind, *, documentation: bool = False) -> dict[str, Any]:
    """`documentation`: with the preferred form of fields whose type is left open."""
    version: dict[str, Any] = {
        "name": VERSION,
        "served": True,
        "storage": True,
        "additionalPrinterColumns": [
            {"name": c.name, "type": c.type, "jsonPath": c.path}
            | ({"priority": c.priority} if c.priority else {})
            for c in kind.columns
        ],
        "subresources": _subresources(kind),
        "schema": {"openAPIV3Schema": _schema(kind, documentation=documentation)},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{kind.plural}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": kind.name,
                "listKind": f"{kind.name}List",
                "plural": kind.plural,
                "singular": kind.name.lower(),
                "shortNames": list(kind.short_names),
                "categories": ["kafka", "odradek"],
            },
            "versions": [version],
        },
    }


def crd_text(kind: Kind) -> str:
    plain = msgspec.json.decode(msgspec.json.encode(crd(kind)))  # a deep copy: no YAML anchors
    return HEADER + yaml.safe_dump(plain, sort_keys=False, width=100, allow_unicode=True)


def crd_file(kind: Kind) -> str:
    return f"{GROUP}_{kind.plural}.yaml"


def _subresources(kind: Kind) -> dict[str, Any]:
    subresources: dict[str, Any] = {"status": {}}
    if kind.scale:
        spec, status, selector = kind.scale
        subresources["scale"] = {
            "specReplicasPath": spec,
            "statusReplicasPath": status,
            "labelSelectorPath": selector,
        }
    return subresources


def _schema(kind: Kind, *, documentation: bool) -> dict[str, Any]:
    (spec_ref, status_ref), components = msgspec.json.schema_components(
        [kind.spec, kind.status], ref_template="{name}"
    )
    if not documentation:
        components = {name: _with_open_types(value) for name, value in components.items()}
    spec = _structural(spec_ref, components)
    spec.pop("default", None)  # spec is required; an empty one would break the rules
    status = _structural(status_ref, components, defaults=False)
    status["properties"]["conditions"] |= {
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": CONDITION_TYPES,
    }
    spec["x-kubernetes-validations"] = [_cel(rule) for rule in kind.rules if rule.cel]
    return {
        "type": "object",
        "description": kind.description,
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string", "description": f"{GROUP}/{VERSION}."},
            "kind": {"type": "string", "description": f"{kind.name}."},
            "metadata": {"type": "object"},  # the API server refuses a description here
            "spec": spec,
            "status": status,
        },
    }


def _cel(rule: Rule) -> dict[str, str]:
    return {
        "rule": rule.cel,
        "message": f"spec.{rule.field}: {rule.message}",
    }


def _with_open_types(component: dict[str, Any]) -> dict[str, Any]:
    """A struct in which fields with several forms have no type."""
    properties = {
        name: {"description": value.get("description", ""), **_KEEP}
        if len([o for o in value.get("anyOf", ()) if o.get("type") != "null"]) > 1
        else value
        for name, value in component.get("properties", {}).items()
    }
    return {**component, "properties": properties} if properties else component


def _structural(
    schema: dict[str, Any], components: dict[str, Any], *, defaults: bool = True
) -> dict[str, Any]:
    """One schema with all references inlined; `defaults=False` for the status."""
    own = dict(schema)
    if options := own.pop("anyOf", None):
        present = next(option for option in options if option.get("type") != "null")
        return _structural({**present, **own}, components, defaults=defaults)
    if ref := own.pop("$ref", None):
        target = dict(components[ref])
        if not target.get("required") and "default" not in own:
            own["default"] = {}
        return _structural({**target, **own}, components, defaults=defaults)
    for unwanted in ("title", "additionalProperties"):
        own.pop(unwanted, None)
    if not own.get("required"):
        own.pop("required", None)
    if "default" in own and (own["default"] is None or not defaults):
        del own["default"]
    if "enum" in own:
        own["type"] = "string"
    if "items" in own:
        own["items"] = _structural(own["items"], components, defaults=defaults)
        own["items"].pop("default", None)
    if "properties" in own:
        own["properties"] = {
            name: _structural(value, components, defaults=defaults)
            for name, value in own["properties"].items()
        }
    return own


def main(arguments: list[str]) -> int:
    stale = []
    for kind in KINDS.values():
        path = CRDS / crd_file(kind)
        if not path.exists() or path.read_text() != crd_text(kind):
            stale.append(path.name)
            if "--check" not in arguments:
                path.parent.mkdir(exist_ok=True)
                path.write_text(crd_text(kind))
    if stale and "--check" in arguments:
        print(f"crds/ is out of date ({', '.join(stale)}): run `make gen`")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
