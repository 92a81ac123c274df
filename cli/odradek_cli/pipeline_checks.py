"""The checks of `odradek pipeline plan`, `run`, `odradek plan` and `local up` before Spark starts.

Nothing is changed.
Clusters answer, topics exist, Python files are there and define their functions, column types are
Spark's, and SQL begins like a query. Names of columns and the rest of the SQL are checked by Spark
when it starts.
"""

from __future__ import annotations

import ast
import difflib
import re
from collections.abc import Container, Iterable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from odradek_cli.errors import CliError

if TYPE_CHECKING:
    from odradek_api.base import Resource
    from odradek_api.pipeline.job import Job
    from odradek_api.pipeline.spec import Step

# Of Spark 4; a type that is not here is taken for a typing error.
TYPES = frozenset({
    "boolean", "byte", "tinyint", "short", "smallint", "int", "integer", "long", "bigint", "float",
    "real", "double", "decimal", "dec", "numeric", "string", "char", "character", "varchar",
    "binary", "date", "time", "timestamp", "timestamp_ntz", "timestamp_ltz", "interval", "void",
    "variant", "array", "map", "struct", "geometry", "geography",
})  # fmt: skip
QUERY_WORDS = ("SELECT", "WITH", "FROM", "VALUES", "TABLE", "MAP", "REDUCE")

Problem = tuple[str, str]  # field, error


def check(job: Job, *, offline: bool = False) -> None:
    """Raises with all that is wrong, one line for each field."""
    found = list(static_problems(job))
    if not offline:
        found += cluster_problems(job)
    if found:
        lines = (f"SparkPipeline {job.key}: {field}: {message}" for field, message in found)
        raise CliError("\n".join(lines))


def manifest_problems(
    resources: Iterable[Resource[Any]],
    directory: Path | None,
    clusters: Mapping[str, str] = MappingProxyType({}),
) -> list[str]:
    """The errors of the pipelines among these resources, one line for each field.

    `directory` has their Python files; None: it is not on this machine. `clusters` are those that
    run, with their addresses: only they can be asked for topics. Topics of the manifests need not
    exist yet.
    """
    from odradek_api.pipeline.job import Job, clusters_of

    known = list(resources)
    declared = {r.spec.name or r.name for r in known if r.kind == "Topic"}
    lines = []
    for one in known:
        if one.kind != "SparkPipeline":
            continue
        job = Job(name=one.name, namespace=one.namespace, spec=one.spec, clusters=dict(clusters),
                  directory=str(directory or "."))  # fmt: skip
        found = list(static_problems(job, files=directory is not None))
        needed = clusters_of(one.spec, one.namespace)
        if needed and needed <= clusters.keys() and not is_secured(job):
            found += cluster_problems(job, declared)
        lines += [f"SparkPipeline {job.key}: {field}: {message}" for field, message in found]
    return lines


def is_secured(job: Job) -> bool:
    """Whether its clusters want TLS or SASL, with which only Spark connects."""
    from odradek_api.pipeline.outputs import outputs

    parts = [job.spec.kafka, *(s.kafka for s in job.spec.sources)]
    parts += [lookup.kafka for lookup in job.spec.lookups]
    parts += [output.sink.kafka for output in outputs(job.spec)]
    names = [name for part in parts for name in part.config]
    return any(name.startswith(("security.", "ssl.", "sasl.")) for name in names)


def static_problems(job: Job, *, files: bool = True) -> Iterator[Problem]:
    """`files`: whether the Python files of its steps are on this machine."""
    if job.spec.sdp is not None and files:
        yield from _project_problems(Path(job.directory) / job.spec.sdp.path)
    for number, source in enumerate(job.spec.sources):
        if source.format.schema is not None:
            at = f"spec.sources[{number}].format.schema"
            yield from ((at, message) for message in type_problems(source.format.schema))
    for number, lookup in enumerate(job.spec.lookups):
        if lookup.topic is not None and lookup.topic.format.schema is not None:
            at = f"spec.lookups[{number}].topic.format.schema"
            yield from ((at, message) for message in type_problems(lookup.topic.format.schema))
    for number, step in enumerate(job.spec.steps):
        at = f"spec.steps[{number}]"
        if step.sql is not None and (problem := sql_problem(step.sql)):
            yield f"{at}.sql", problem
        if files or step.python is None:
            yield from _python_problems(at, step, Path(job.directory))


def _project_problems(directory: Path) -> Iterator[Problem]:
    if not any((directory / f"spark-pipeline.{end}").is_file() for end in ("yml", "yaml")):
        yield "spec.sdp.path", f"{directory} has no spark-pipeline.yml"


def sql_problem(sql: str) -> str:
    """Only the first word: Spark's parser checks the rest."""
    text = re.sub(r"--[^\n]*|/\*.*?\*/", " ", sql, flags=re.DOTALL).lstrip(" \t\r\n(")
    word = re.match(r"\w*", text)
    first = word[0].upper() if word else ""
    if first in QUERY_WORDS:
        return ""
    close = difflib.get_close_matches(first, QUERY_WORDS, 1)
    hint = f"; did you mean {close[0]}?" if close else ""
    return f"begins with {first or text[:10]!r} and is not a query{hint}"


def type_problems(schema: str) -> Iterator[str]:
    """Types in "id INT, tags ARRAY<STRING>, at STRUCT<x: INT>" that Spark does not have."""
    if schema.lstrip().startswith("{"):  # an Avro schema
        return
    text = re.sub(r"'[^']*'|\"[^\"]*\"", "''", schema)  # without comments
    # A type follows the name of a column (after a space or a colon), or opens a parameter.
    names = r"(?:^|[,<]|\bARRAY\s*<|\bMAP\s*<)"
    column = re.compile(rf"{names}\s*(?:`[^`]+`|\w+)\s*(?::|\s)\s*([A-Za-z_]+)", re.IGNORECASE)
    for match in column.finditer(text):
        word = match[1].lower()
        if word not in TYPES and word not in ("comment", "not", "generated", "default"):
            close = difflib.get_close_matches(word, TYPES, 1)
            hint = f"; did you mean {close[0].upper()}?" if close else ""
            yield f"{match[1]} is not a type of Spark{hint}"


def _python_problems(at: str, step: Step, directory: Path) -> Iterator[Problem]:
    field, source = "code", step.code
    if step.python is not None:
        field, path = "python", directory / step.python
        if not path.is_file():
            yield f"{at}.python", f"file {path} does not exist"
            return
        source = path.read_text()
    if source is None:
        return
    try:
        tree = ast.parse(source)
    except SyntaxError as error:
        yield f"{at}.{field}", f"line {error.lineno}: {error.msg}"
        return
    names = {name for node in ast.walk(tree) for name in _names(node)}
    if step.function not in names:
        yield f"{at}.function", f"the code defines no function {step.function}"


def _names(node: ast.AST) -> list[str]:
    """Names that a statement binds."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return [node.name]
    if isinstance(node, ast.Name):
        return [node.id]
    if isinstance(node, ast.alias):
        return [node.asname or node.name]
    return []


def cluster_problems(job: Job, declared: Container[str] = ()) -> list[Problem]:
    """Clusters that do not answer, and topics that neither exist nor are declared."""
    from odradek_api.pipeline.job import SpecError
    from odradek_api.pipeline.outputs import outputs

    spec = job.spec
    known: dict[str, dict[str, int]] = {}
    found: list[Problem] = []

    def require(at: str, address: str, topics: dict[str, str]) -> None:
        existing = _topics(address, known)
        for field, name in topics.items():
            if name not in existing and name not in declared:
                close = difflib.get_close_matches(name, existing, 1)
                hint = f"; did you mean {close[0]}?" if close else ""
                found.append(
                    (f"{at}.{field}", f"topic {name} does not exist on {address}{hint}; "
                     f"create it with `odradek topics create {name}`")
                )  # fmt: skip

    try:
        for number, source in enumerate(spec.sources):
            if source.kafka_source:
                at = f"sources[{number}]"
                address = job.bootstrap(at, source.cluster, source.kafka)
                named = {f"topics[{n}]": name for n, name in enumerate(source.topics)}
                require(f"spec.{at}", address, named)
        for number, lookup in enumerate(spec.lookups):
            if lookup.topic is not None:
                at = f"lookups[{number}]"
                address = job.bootstrap(at, lookup.cluster, lookup.kafka)
                require(f"spec.{at}", address, {"topic.name": lookup.topic.name})
        for output in outputs(spec):
            sink, at = output.sink, f"spec.{output.at}"
            if sink.topic is not None or sink.mirror is not None:
                address = job.bootstrap(output.at, sink.cluster, sink.kafka)
                require(at, address, {"topic.name": sink.topic.name} if sink.topic else {})
        if spec.dead_letter is not None:
            address = job.bootstrap("deadLetter", None, spec.kafka)
            require("spec.deadLetter", address, {"topic": spec.dead_letter.topic})
    except SpecError as error:
        found.append((error.field, error.message))
    return found


def _topics(address: str, known: dict[str, dict[str, int]]) -> dict[str, int]:
    """Topic → partitions, asked once per cluster; a cluster that does not answer is an error."""
    from odradek_cli.client import connect

    if address not in known:
        with connect(address) as client:
            found = client.metadata().topics
        known[address] = {name: len(topic.partitions) for name, topic in found.items()}
    return known[address]
