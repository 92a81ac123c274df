"""`odradek pipeline`: a SparkPipeline on this machine, with Spark as local[*].

    odradek pipeline run -f examples/pipelines/web-activity      until Ctrl-C, with a live table
    odradek pipeline plan -f …      what would be read, done and written; nothing is started
    odradek pipeline preview -f …   sample rows of its sources and steps; nothing is written
    odradek pipeline test -f …      its steps on the rows of its tests; no cluster is needed
    odradek pipeline status -f …    what a running one says

Clusters are found where `odradek local up` of the same manifests runs them, or by --bootstrap.
"""

from __future__ import annotations

import signal
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from odradek_cli import session
from odradek_cli.errors import CliError, UsageError
from odradek_cli.local import Manifests, State, manifest_directory, state_directory
from odradek_cli.options import AsJson, parse_pairs
from odradek_cli.output import print_json, print_table, remarks
from odradek_cli.pipeline_checks import check, is_secured
from odradek_cli.pipeline_look import columns_of, flows_of, look, show_rows, show_tests
from odradek_cli.pipeline_screen import COLUMNS, PipelineScreen, failures, pipeline_rows

if TYPE_CHECKING:
    from odradek_api.base import Resource
    from odradek_api.pipeline.job import Job
    from odradek_api.pipeline.lookups import Lookup
    from odradek_api.pipeline.sinks import Sink
    from odradek_api.pipeline.spec import SparkPipelineSpec
    from odradek_operator.local.pipeline_processes import LocalPipeline
    from odradek_operator.local.pipelines import PipelineReport

app = typer.Typer(help="Run data pipelines on Spark.", no_args_is_help=True)

LOOK_S = 0.5

Name = Annotated[
    str | None, typer.Option("--name", help="The pipeline, if the manifests have several.")
]
Bootstrap = Annotated[
    str | None,
    typer.Option("--bootstrap", "-b", metavar="HOST:PORT[,…]",
                 help="Brokers of the pipeline's cluster; default: the local runtime's.",
                 callback=lambda given: given or session.current().explicit_bootstrap()),
]  # fmt: skip
Clusters = Annotated[
    list[str] | None,
    typer.Option("--cluster", metavar="NAME=HOST:PORT",
                 help="Brokers of another cluster that it names. May be repeated."),
]  # fmt: skip


@app.command()
def run(
    files: Manifests,
    name: Name = None,
    bootstrap: Bootstrap = None,
    cluster: Clusters = None,
    state: State = None,
) -> None:
    """Run a pipeline until it ends or Ctrl-C; it goes on from its checkpoint the next time."""
    from odradek_operator.local.pipeline_processes import LocalPipeline, spark_missing

    resource, job = _job(files, name, bootstrap, cluster, state)
    if missing := spark_missing():
        raise CliError(missing)
    check(job, offline=is_secured(job))
    process = LocalPipeline(_directory(files, state, resource), job.spec.restart_policy)
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: stop.set())
    remarks().print(f"Starting Spark for {resource.key}; its output is in {process.output}")
    process.start(job)
    screen = PipelineScreen()
    try:
        while process.ended is None and not stop.wait(LOOK_S):
            process.supervise(time.monotonic())
            screen.show(resource.key, process, process.status())
    finally:
        screen.show(resource.key, process, process.status())
        screen.close()
        if process.pid is not None:
            remarks().print("Stopping …")
        process.stop()
    _conclude(resource.key, process, interrupted=stop.is_set())


@app.command()
def plan(
    files: Manifests,
    name: Name = None,
    bootstrap: Bootstrap = None,
    cluster: Clusters = None,
    state: State = None,
    offline: Annotated[
        bool, typer.Option("--offline", help="Ask no cluster; it need not run.")
    ] = False,
    spark: Annotated[
        bool,
        typer.Option(
            "--spark",
            help="Let Spark check all SQL, names and types, too (seconds). "
            "With spec.sdp it always does, except --offline.",
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Check a pipeline, and show what it reads, does and writes; start nothing."""
    import msgspec

    if offline and spark:
        raise UsageError("--spark and --offline: Spark asks the clusters for the topics")
    resource, job = _job(files, name, bootstrap, cluster, state, offline=offline)
    check(job, offline=offline or is_secured(job))
    checkpoint = _directory(files, state, resource) / "checkpoint"
    wanted = spark or (job.spec.sdp is not None and not offline)
    seen = look(job, checkpoint, "--analyse") if wanted else {}
    if as_json:
        print_json(msgspec.to_builtins(job))
        return
    print(f"SparkPipeline {resource.key}, mode {job.spec.mode}")
    for line in describe(job, str(checkpoint)):
        print(f"  {line}")
    for line in columns_of(seen):
        print(f"  columns of {line}")
    for line in flows_of(seen):
        print(f"  flow {line}")


@app.command()
def preview(
    files: Manifests,
    name: Name = None,
    bootstrap: Bootstrap = None,
    cluster: Clusters = None,
    state: State = None,
    rows: Annotated[
        int, typer.Option(min=1, max=1000, help="Records read of each partition, rows shown.")
    ] = 10,
    as_json: AsJson = False,
) -> None:
    """Show rows of each source and step, from a few records of each partition; write nothing."""
    resource, job = _job(files, name, bootstrap, cluster, state)
    check(job, offline=is_secured(job))
    checkpoint = _directory(files, state, resource) / "checkpoint"
    seen = look(job, checkpoint, "--preview", str(rows))
    if as_json:
        print_json(seen)
        return
    show_rows(seen)


@app.command("test")
def run_tests(
    files: Manifests, name: Name = None, state: State = None, as_json: AsJson = False
) -> None:
    """Run the steps on the rows of spec.tests, and compare the results; no cluster is needed."""
    from odradek_api.pipeline.job import Job

    seen: dict[str, Any] = {}
    for resource in _pipelines(files, name):
        job = Job(name=resource.name, namespace=resource.namespace, spec=resource.spec,
                  directory=str(manifest_directory(files)))  # fmt: skip
        check(job, offline=True)
        if resource.spec.tests:
            looked = look(job, _directory(files, state, resource) / "checkpoint", "--test")
            seen[resource.key] = looked["tests"]
    if not seen:
        raise CliError("no pipeline of these manifests has spec.tests")
    if as_json:
        print_json(seen)
    else:
        show_tests(seen)
    if any(one["missing"] or one["unexpected"] for tests in seen.values() for one in tests):
        raise typer.Exit(1)


@app.command()
def status(
    files: Manifests, name: Name = None, state: State = None, as_json: AsJson = False
) -> None:
    """Show the state and progress of pipelines on this machine."""
    import msgspec

    from odradek_operator.local.pipeline_processes import LocalPipeline
    from odradek_operator.local.pipelines import PipelineReport

    found: dict[str, PipelineReport] = {}
    for resource in _pipelines(files, name):
        where = _directory(files, state, resource)
        said = LocalPipeline(where, resource.spec.restart_policy).status()
        if said is not None:
            found[resource.key] = PipelineReport(pid=said.pid, status=said)
    if not found:
        raise CliError("no pipeline of these manifests has run here")
    if as_json:
        print_json({key: msgspec.to_builtins(one.status) for key, one in found.items()})
        return
    print_table(COLUMNS, [row for key, one in found.items() for row in pipeline_rows(key, one)])
    for line in failures(found):
        print(line)


@app.command()
def demo(
    bootstrap: Annotated[
        str, typer.Option("--bootstrap", "-b", envvar="ODRADEK_BOOTSTRAP", metavar="HOST:PORT[,…]")
    ],
    seconds: Annotated[float, typer.Option(help="How long visits are produced.")] = 20.0,
    rate: Annotated[float, typer.Option(help="Visits per second.")] = 200.0,
) -> None:
    """Count visits in windows while they are produced, and compare the counts with the visits."""
    import tempfile

    from odradek_cli.pipeline_demo import WindowedCounts

    with tempfile.TemporaryDirectory(prefix="odradek-pipeline-") as directory:
        remarks().print("Starting Spark …")
        with WindowedCounts(bootstrap, Path(directory), rate) as counts:
            until = time.monotonic() + seconds
            while time.monotonic() < until:
                counts.look()
                time.sleep(LOOK_S)
            verdict = counts.finish()
    print(verdict)
    if not verdict.equal:
        raise typer.Exit(1)


# -- parts -----------------------------------------------------------------------------------------


def _pipelines(files: list[Path], name: str | None) -> list[Resource[SparkPipelineSpec]]:
    from odradek_api.base import InvalidManifestError
    from odradek_api.parse import load

    try:
        resources = load(files)
    except InvalidManifestError as refused:
        raise CliError(str(refused)) from None
    found = [r for r in resources if r.kind == "SparkPipeline" and name in (None, r.name)]
    if not found:
        raise CliError(
            f"there is no SparkPipeline {name or ''} in the manifests".replace("  ", " ")
        )
    return found


def _job(
    files: list[Path],
    name: str | None,
    bootstrap: str | None,
    others: list[str] | None,
    state: Path | None,
    *,
    offline: bool = False,
) -> tuple[Resource[SparkPipelineSpec], Job]:
    """The chosen pipeline, with the addresses of its clusters; `offline`: of those that run."""
    from odradek_api.pipeline.job import Job, clusters_of
    from odradek_operator.local.runtime import read_report

    found = _pipelines(files, name)
    if len(found) > 1:
        raise CliError(
            f"there are several pipelines: give --name {' or '.join(r.name for r in found)}"
        )
    resource = found[0]
    spec, namespace = resource.spec, resource.namespace
    report = read_report(state_directory(files, state))
    addresses = {
        key: one.status.bootstrap_servers
        for key, one in (report.clusters if report else {}).items()
    }
    for given, where in parse_pairs("--cluster", others or ()).items():
        addresses[given if "/" in given else f"{namespace}/{given}"] = where
    if bootstrap is not None and spec.cluster is not None:
        addresses[spec.cluster.key(namespace)] = bootstrap
    missing = sorted(key for key in clusters_of(spec, namespace) if not addresses.get(key))
    if missing and not offline:
        raise CliError(
            f"KafkaCluster {missing[0]} does not run here: start it with `odradek local up`, "
            f"or give its address with --bootstrap or --cluster {missing[0]}=HOST:PORT"
        )
    return resource, Job(name=resource.name, namespace=namespace, spec=spec,
                         clusters=addresses, directory=str(manifest_directory(files)))  # fmt: skip


def _directory(
    files: list[Path], state: Path | None, resource: Resource[SparkPipelineSpec]
) -> Path:
    """The same as the local runtime's: both go on from one checkpoint."""
    base = state_directory(files, state)
    return base / f"pipeline.{resource.namespace}.{resource.name}"


def describe(job: Job, checkpoint: str) -> list[str]:
    from odradek_api.pipeline.outputs import outputs

    spec = job.spec
    if spec.sdp is not None:
        how = (
            "one update"
            if spec.mode == "availableNow"
            else f"an update every {spec.trigger or '1 minute'}"
        )
        return [f"run the project in {Path(job.directory) / spec.sdp.path}: {how}",
                f"checkpoints and tables {job.path(spec.checkpoint or checkpoint)}"]  # fmt: skip
    lines = []
    for source in spec.sources:
        if source.files is not None:
            what = f"files of {job.path(source.files.path)}"
        elif source.table is not None:
            what = f"table {job.path(source.table.path)}"
        elif source.rate is not None:
            what = f"{source.rate.rows_per_second} rows a second"
        else:
            what = f"topics {source.topic_pattern or ', '.join(source.topics)} from {source.from_}"
        lines.append(f"read {source.name}: {what} as {source.format.type}")
    for lookup in spec.lookups:
        what = _lookup(job, lookup)
        lines.append(f"look up {lookup.name}: {what}, read again after {lookup.refresh}")
    for number, step in enumerate(spec.steps):
        what = step.sql or f"{step.function}() of {step.python or 'code'}"
        lines.append(f"then {step.name or f'step_{number + 1}'}: {' '.join(what.split())}")
    bad = f"go to topic {spec.dead_letter.topic}" if spec.dead_letter else "stop the pipeline"
    if any(source.format.type in ("json", "csv", "avro") for source in spec.sources):
        lines.append(f"records that do not parse {bad}")
    for output in outputs(spec):
        what = f"{output.query}, from {output.view or 'the last step'}: " if spec.sinks else ""
        lines.append(f"write {what}{_sink(job, output.sink)}")
    if spec.mode != "batch":
        lines.append(f"checkpoint {job.path(spec.checkpoint or checkpoint)}")
    return lines


def _lookup(job: Job, lookup: Lookup) -> str:
    if lookup.topic is not None:
        return f"the newest record of each key in topic {lookup.topic.name}"
    if lookup.table is not None:
        return f"table {job.path(lookup.table.path)}"
    assert lookup.jdbc is not None
    return f"{lookup.jdbc.table or 'a query'} of {lookup.jdbc.url}"


def _sink(job: Job, sink: Sink) -> str:
    if sink.topic is not None:
        if sink.topic.delivery == "exactlyOnce":
            return f"topic {sink.topic.name}: exactly once for readers of committed records"
        return (
            f"topic {sink.topic.name}: at least once, no gap; a repeated batch may be there twice"
        )
    if sink.table is not None:
        rows = f"one row for each {', '.join(sink.table.key)}, " if sink.table.key else ""
        return f"table {job.path(sink.table.path)}: {rows}exactly once"
    if sink.mirror is not None:
        return f"the same topics, with prefix {sink.mirror.prefix!r}: at least once, in order"
    return "to the console"


def _conclude(key: str, process: LocalPipeline, *, interrupted: bool) -> None:
    said = process.status()
    if said is not None and said.state == "Failed":
        where = f"{said.field}: " if said.field else ""
        raise CliError(f"SparkPipeline {key}: {where}{said.message}; see {process.output}")
    if process.ended not in (0, None) and not interrupted:
        raise CliError(f"SparkPipeline {key} ended with exit code {process.ended}:\n"
                       f"{process.last_words()}")  # fmt: skip
    remarks().print(f"{key}: {'stopped' if interrupted else 'done'}.")
