"""Writes `kio_table.py` and `api_keys.py` from the installed kio.

    python -m odradek_protocol.messages.generate

kio has one module per API and version. Importing all of them to know which fields exist in
which version would cost the broker 2 s and 60 MB, so this module extracts that knowledge once, into
a small table. A test holds both files equal to the installed kio.
"""

import dataclasses
import importlib
import sys
from pathlib import Path
from typing import Any

from kio.schema.index import api_key_map, schema_name_map

from odradek_protocol.messages.schema import Kind, MessageField, fields_of, is_flexible
from odradek_protocol.messages.struct import Struct

Fields = dict[str, dict[str, str]]  # class name → field name → its default, as source text

HEAD = '''"""Generated from kio by `python -m odradek_protocol.messages.generate`. Do not edit.

APIS: per API key, kio's name, the lowest and highest version that kio knows, and the first
flexible version (highest + 1 if none is).
REQUEST_FIELDS, RESPONSE_FIELDS: per API and class, the fields that some versions of that class
have and others lack, with the default that stands in for them.
"""

# fmt: off
from odradek_protocol.messages.struct import Struct

'''

API_KEYS_HEAD = '''\
"""Generated from kio by `python -m odradek_protocol.messages.generate`. Do not edit.

The names of Kafka's APIs in place of their numbers: `ApiKey.METADATA` is 3.
"""

from enum import IntEnum


class ApiKey(IntEnum):
'''


def source_of(value: Any) -> str:
    """Python source text for a default value."""
    if isinstance(value, Struct):
        parts = (f"{name}={source_of(item)}" for name, item in vars(value).items())
        return f"Struct({', '.join(parts)})"
    if isinstance(value, int) and not isinstance(value, bool):
        return str(int(value))  # also ErrorCode and kio's own integer types
    return repr(value)


def classes_of(name: str, version: int, kind: Kind) -> dict[str, type]:
    module = importlib.import_module(f"kio.schema.{name}.v{version}.{kind}")
    return {
        cls.__name__: cls
        for cls in vars(module).values()
        if dataclasses.is_dataclass(cls)
        and isinstance(cls, type)
        and cls.__module__ == module.__name__
    }


def partial_fields(name: str, versions: list[int], kind: Kind) -> Fields:
    """The fields of this API that some versions of a class lack."""
    seen: dict[str, int] = {}  # class → number of versions that have it
    found: dict[str, dict[str, list[MessageField]]] = {}
    for version in versions:
        for class_name, cls in classes_of(name, version, kind).items():
            seen[class_name] = seen.get(class_name, 0) + 1
            for field in fields_of(cls):
                found.setdefault(class_name, {}).setdefault(field.name, []).append(field)
    table: Fields = {}
    for class_name, fields in found.items():
        for field_name, occurrences in fields.items():
            if len(occurrences) != seen[class_name]:
                default = source_of(occurrences[-1].default)
                table.setdefault(class_name, {})[field_name] = default
    return table


def first_flexible(name: str, versions: list[int], kind: Kind) -> int:
    for version in versions:
        if any(is_flexible(cls) for cls in classes_of(name, version, kind).values()):
            return version
    return versions[-1] + 1


def render() -> str:
    apis: list[str] = []
    tables: dict[Kind, list[str]] = {"request": [], "response": []}
    for api_key, name in sorted(api_key_map.items()):
        versions = sorted(schema_name_map[name])
        assert versions == list(range(versions[0], versions[-1] + 1)), name
        flexible = first_flexible(name, versions, "request")
        assert flexible == first_flexible(name, versions, "response"), name
        apis.append(f'    {api_key}: ("{name}", {versions[0]}, {versions[-1]}, {flexible}),\n')
        for kind, lines in tables.items():
            if fields := partial_fields(name, versions, kind):
                lines.append(f'    "{name}": {{\n')
                for class_name, defaults in fields.items():
                    lines.append(f'        "{class_name}": {{\n')
                    lines += [f'            "{n}": {d},\n' for n, d in defaults.items()]
                    lines.append("        },\n")
                lines.append("    },\n")
    return (
        HEAD
        + "APIS: dict[int, tuple[str, int, int, int]] = {\n"
        + "".join(apis)
        + "}\n\nREQUEST_FIELDS: dict[str, dict[str, dict[str, object]]] = {\n"
        + "".join(tables["request"])
        + "}\n\nRESPONSE_FIELDS: dict[str, dict[str, dict[str, object]]] = {\n"
        + "".join(tables["response"])
        + "}\n"
    )


def render_api_keys() -> str:
    names = sorted(api_key_map.items())
    return API_KEYS_HEAD + "".join(f"    {name.upper()} = {key}\n" for key, name in names)


if __name__ == "__main__":
    for target, text in (("kio_table.py", render()), ("api_keys.py", render_api_keys())):
        Path(__file__).with_name(target).write_text(text)
        sys.stdout.write(f"{target}: {len(text.splitlines())} lines\n")
