"""Parses manifests into resources; each problem is a sentence that names the field.

    resources = load([Path("examples/quickstart")])     # files and directories, YAML or JSON; "-"

All problems of all files are collected into one InvalidManifestError, for example
    cluster.yaml: KafkaCluster default/main: spec.brokrs: unknown field; did you mean brokers?
Documents of other API groups are ignored: a directory may contain a Deployment too.
"""

from __future__ import annotations

import difflib
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import msgspec
import yaml

from odradek_api.base import (
    API_VERSION,
    GROUP,
    InvalidManifestError,
    Problem,
    Resource,
    settings_text,
)
from odradek_api.kafka_cluster.spec import (
    RESERVED_SETTINGS,
    SECURED_SETTINGS,
    KafkaClusterSpec,
)
from odradek_api.kafka_rebalance.rules import refusals as rebalance_refusals
from odradek_api.kafka_rebalance.spec import KafkaRebalanceSpec
from odradek_api.kinds import KINDS, Kind
from odradek_api.pipeline.rules import refusals
from odradek_api.pipeline.spec import SparkPipelineSpec
from odradek_api.topic import TopicSpec

SUFFIXES = (".yaml", ".yml", ".json")
STDIN = Path("-")
FILE_BYTES_MAX = 16 << 20  # refuses a data file that was given by mistake

_AT = re.compile(r"^(?P<what>.*?)(?: - at `\$\.?(?P<path>.*)`)?$", re.DOTALL)
_NAMES = {"int": "an integer", "str": "a string", "bool": "true or false", "float": "a number"}
# What to write, by a part of the pattern that a value does not match.
_EXPECTED = {
    "milliseconds?": "a duration such as 10 seconds (also milliseconds, minutes, hours, days)",
    "(k|m|g|t)": "a size of memory such as 2g (also k, m, t)",
    "Ki|Mi": "a quantity such as 10Gi (also Ki, Mi, Ti, Pi, and k, M, G, T, P for powers of 1000)",
}
_NAMES |= {"array": "a list", "object": "a mapping", "null": "null"}


def load(paths: Iterable[Path]) -> list[Resource[Any]]:
    """All resources of these files and directories; duplicates are refused."""
    problems: list[Problem] = []
    found: dict[tuple[str, str], Resource[Any]] = {}
    for path in _files(paths):
        for document in _documents(path):
            try:
                resource = parse(document, path.name)
            except InvalidManifestError as refused:
                problems += refused.problems
                continue
            if resource is None:
                continue
            other = found.setdefault((resource.kind, resource.key), resource)
            if other is not resource:
                subject = f"{resource.kind} {resource.key}"
                problems.append(
                    Problem(path.name, subject, "", f"is also defined in {other.source}")
                )
    if problems:
        raise InvalidManifestError(problems)
    return list(found.values())


def parse(
    document: Any, source: str = "", old: Resource[Any] | None = None
) -> Resource[Any] | None:
    """Parses one document; None if it is of another API group. `old` adds the rules for changes."""
    if not isinstance(document, Mapping):
        raise _refused(source, "", "", "must be a mapping with apiVersion, kind and spec")
    api_version, name = str(document.get("apiVersion", "")), document.get("kind")
    if not api_version.startswith(f"{GROUP}/"):
        if not api_version:
            raise _refused(source, "", "apiVersion", f"is missing; expected {API_VERSION}")
        return None
    if api_version != API_VERSION:
        raise _refused(source, "", "apiVersion", f"{api_version} is not {API_VERSION}")
    kind = KINDS.get(str(name))
    if kind is None:
        raise _refused(source, "", "kind", f"{name} is unknown{_hint(str(name), KINDS)}")
    meta = document.get("metadata") or {}
    if not isinstance(meta, Mapping) or not isinstance(meta.get("name"), str):
        raise _refused(source, kind.name, "metadata.name", "is missing")
    subject = f"{kind.name} {meta.get('namespace') or 'default'}/{meta['name']}"
    spec = _spec(kind, document.get("spec"), source, subject)
    problems = _broken_rules(kind, spec, old.spec if old else None, source, subject)
    problems += _beyond_schema(spec, source, subject)
    if problems:
        raise InvalidManifestError(problems)
    return Resource(
        kind=kind.name,
        name=meta["name"],
        spec=spec,
        namespace=meta.get("namespace") or "default",
        annotations={str(k): str(v) for k, v in (meta.get("annotations") or {}).items()},
        labels={str(k): str(v) for k, v in (meta.get("labels") or {}).items()},
        generation=int(meta.get("generation") or 0),
        uid=str(meta.get("uid") or ""),
        deleting=bool(meta.get("deletionTimestamp")),
        source=source,
    )


# -- files -----------------------------------------------------------------------------------------


def _files(paths: Iterable[Path]) -> list[Path]:
    files: list[Path] = []
    for path in paths:
        if path == STDIN:
            files.append(path)
        elif path.is_dir():
            inside = sorted(
                p
                for p in path.iterdir()
                if p.suffix in SUFFIXES and p.is_file() and not _is_data(p)
            )
            if not inside:
                raise _refused(str(path), "", "", "contains no .yaml, .yml or .json file")
            files += inside
        elif path.is_file():
            files.append(path)
        else:
            raise _refused(str(path), "", "", "no such file or directory")
    return files


def _is_data(path: Path) -> bool:
    """A .json file in a directory that does not mention our API is data, not a manifest."""
    try:
        return path.suffix == ".json" and GROUP.encode() not in path.read_bytes()
    except OSError:
        return False  # the error is reported when it is parsed


def _documents(path: Path) -> list[Any]:
    try:
        if path != STDIN and path.stat().st_size > FILE_BYTES_MAX:
            raise _refused(path.name, "", "", "is too large for a manifest (over 16 MiB)")
        text = sys.stdin.read(FILE_BYTES_MAX) if path == STDIN else path.read_text()
        return [d for d in yaml.safe_load_all(text) if d is not None]
    except yaml.MarkedYAMLError as error:
        at = f" in line {error.problem_mark.line + 1}" if error.problem_mark else ""
        raise _refused(path.name, "", "", f"is not valid YAML: {error.problem}{at}") from None
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise _refused(path.name, "", "", f"cannot be read: {error}") from None


# -- fields ----------------------------------------------------------------------------------------


def _spec(kind: Kind, given: Any, source: str, subject: str) -> Any:
    if given is None:
        raise _refused(source, subject, "spec", "is missing")
    try:
        return msgspec.convert(given, kind.spec)
    except msgspec.ValidationError as error:
        field, message = _sentence(kind, str(error))
        raise _refused(source, subject, field, message) from None


def _sentence(kind: Kind, text: str) -> tuple[str, str]:
    """msgspec's message as the field and its error."""
    match = _AT.match(text)
    assert match is not None
    what, path = match["what"], match["path"] or ""
    field = f"spec.{path}" if path else "spec"
    if unknown := re.fullmatch(r"Object contains unknown field `(.*)`", what):
        known = _fields_at(kind, path)
        return f"{field}.{unknown[1]}", f"unknown field{_hint(unknown[1], known)}"
    if missing := re.fullmatch(r"Object missing required field `(.*)`", what):
        return f"{field}.{missing[1]}", "is missing"
    if enum := re.fullmatch(r"Invalid enum value (.*)", what):
        values = _values_at(kind, path)
        allowed = f"; allowed are {', '.join(values)}" if values else ""
        return field, f"{enum[1]} is not an allowed value{allowed}"
    if "matching regex" in what:
        pattern = what.split("regex ")[1]
        expected = next((text for key, text in _EXPECTED.items() if key in pattern), "")
        return field, f"expected {expected}" if expected else f"does not match {pattern}"
    what = re.sub(r"`(\w+)( \| null)?`", lambda m: _NAMES.get(m[1], m[1]), what)
    what = what.replace(" >= ", " of at least ").replace(" <= ", " of at most ")
    return field, what[:1].lower() + what[1:]


def _fields_at(kind: Kind, path: str) -> Sequence[str]:
    """The fields of the mapping at a path such as "storage" or "listeners[0]"."""
    return [f.encode_name for s in _structs_at(kind, path) for f in msgspec.structs.fields(s)]


def _values_at(kind: Kind, path: str) -> list[str]:
    """The values that the field at a path may have."""
    parent, _, last = path.rpartition(".")
    hints = [_hint_of(struct, last) for struct in _structs_at(kind, parent)]
    return [str(value) for hint in hints for value in _literals(hint)]


def _structs_at(kind: Kind, path: str) -> list[type[msgspec.Struct]]:
    """The types that a path leads to: several, if a field has several forms."""
    found: list[type[msgspec.Struct]] = [kind.spec]
    for step in filter(None, re.sub(r"\[.*?\]", "", path).split(".")):
        found = [inner for struct in found for inner in _structs(_hint_of(struct, step))]
    return found


def _hint_of(struct: Any, name: str) -> Any:
    name = re.sub(r"\[.*?\]", "", name)
    names = {f.encode_name: f.name for f in msgspec.structs.fields(struct)}
    return get_type_hints(struct).get(names.get(name, ""))


def _literals(hint: Any) -> list[Any]:
    if get_origin(hint) is Literal:
        return list(get_args(hint))
    return [value for inner in get_args(hint) for value in _literals(inner)]


def _structs(hint: Any) -> list[type[msgspec.Struct]]:
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return [hint]
    return [s for inner in getattr(hint, "__args__", ()) for s in _structs(inner)]


def _hint(given: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(given, list(known), 1, cutoff=0.6)
    return f"; did you mean {close[0]}?" if close else ""


def refused_changes(new: Resource[Any], old: Resource[Any]) -> list[Problem]:
    """Changes of an existing resource that are not possible: a smaller disk, another engine."""
    subject = f"{new.kind} {new.key}"
    return _broken_rules(KINDS[new.kind], new.spec, old.spec, new.source, subject)


def _broken_rules(kind: Kind, spec: Any, old: Any, source: str, subject: str) -> list[Problem]:
    return [
        Problem(source, subject, f"spec.{rule.field}", rule.message)
        for rule in kind.rules
        if not rule.holds(spec, old)
    ]


def _beyond_schema(spec: Any, source: str, subject: str) -> list[Problem]:
    """Rules that a schema cannot express: reserved settings, settings that are not scalars."""
    if isinstance(spec, SparkPipelineSpec):
        return [Problem(source, subject, field, message) for field, message in refusals(spec)]
    if isinstance(spec, KafkaRebalanceSpec):
        found = rebalance_refusals(spec)
        return [Problem(source, subject, field, message) for field, message in found]
    problems: list[Problem] = []

    def refuse(field: str, message: str) -> None:
        problems.append(Problem(source, subject, field, message))

    config = spec.config if isinstance(spec, KafkaClusterSpec | TopicSpec) else {}
    for name, value in config.items():
        if value is None or isinstance(value, Mapping):
            refuse(f"spec.config[{name}]", "must be a string, a number, true, false or a list")
        elif isinstance(spec, KafkaClusterSpec) and name in RESERVED_SETTINGS:
            refuse(f"spec.config[{name}]", f"is reserved: {RESERVED_SETTINGS[name]}")
        elif (
            isinstance(spec, KafkaClusterSpec)
            and name.startswith(SECURED_SETTINGS)
            and (spec.secured or spec.authorized)
        ):
            refuse(f"spec.config[{name}]", "is reserved: set spec.listeners")
    if isinstance(spec, TopicSpec) and not problems:
        min_isr = settings_text(spec.config).get("min.insync.replicas", "")
        factor = spec.replication_factor
        if factor is not None and min_isr.isdecimal() and int(min_isr) > factor:
            refuse(
                "spec.config[min.insync.replicas]",
                f"{min_isr} exceeds the replication factor {factor}: no write with acks=all would "
                "ever succeed",
            )
    return problems


def _refused(source: str, subject: str, field: str, message: str) -> InvalidManifestError:
    return InvalidManifestError([Problem(source, subject, field, message)])
