"""`odradek cluster log-dirs`: the log directories of the brokers, and the sizes of replicas."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from odradek_cli.errors import CliError
from odradek_cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap, complete_topic
from odradek_cli.output import bytes_text, print_json, print_table

if TYPE_CHECKING:
    from odradek_protocol.client.admin.log_dirs import LogDirInfo


def log_dirs(
    broker: Annotated[
        list[int] | None, typer.Option("--broker", help="Default: all brokers. Repeatable.")
    ] = None,
    topic: Annotated[
        list[str] | None,
        typer.Option(
            "--topic",
            "-t",
            help="Show the replicas of this topic. Repeatable.",
            autocompletion=complete_topic,
        ),
    ] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Show directories, their room and sizes; with --topic the replicas in them."""
    from odradek_cli.client import connect
    from odradek_protocol.client.admin.log_dirs import describe_log_dirs
    from odradek_protocol.client.errors import ClientError

    with connect(bootstrap) as client:
        metadata = client.metadata()
        for broker_id in broker or ():
            if broker_id not in metadata.brokers:
                live = ", ".join(map(str, sorted(metadata.brokers)))
                raise CliError(
                    f"--broker {broker_id}: there is no such live broker; live are: {live}"
                )
        for name in topic or ():
            if name not in metadata.topics:
                raise CliError(f"--topic {name}: there is no such topic")
        asked = {
            node.broker_id: node.address
            for node in metadata.brokers.values()
            if not broker or node.broker_id in broker
        }
        answers = describe_log_dirs(client, asked)
    found, failed = [], []
    for broker_id, answer in sorted(answers.items()):
        if isinstance(answer, ClientError):
            failed.append(f"broker {broker_id}: {answer}")
        else:
            found += [_described(broker_id, one, topic) for one in answer]
    if as_json:
        print_json(found)
    elif topic:
        rows = [
            (f"{r['topic']}-{r['partition']}", d["broker"], bytes_text(r["bytes"]), d["path"])
            for d in found
            for r in d["replicas"]
        ]
        print_table(["partition", ">broker", ">size", "directory"], sorted(rows))
    else:
        directories = [
            (d["broker"], d["path"], "offline" if d["offline"] else "", _size(d["total_bytes"]),
             _size(d["usable_bytes"]), bytes_text(d["replica_bytes"]), d["replica_count"])
            for d in found
        ]  # fmt: skip
        columns = [
            ">broker",
            "directory",
            "",
            ">total",
            ">free",
            ">in use by replicas",
            ">replicas",
        ]
        print_table(columns, directories)
    if failed:
        raise CliError("; ".join(failed))


def _described(broker_id: int, one: LogDirInfo, topics: list[str] | None) -> dict[str, Any]:
    described: dict[str, Any] = {
        "broker": broker_id,
        "path": one.path,
        "offline": one.offline,
        "total_bytes": one.total_bytes,
        "usable_bytes": one.usable_bytes,
        "replica_bytes": sum(one.replica_bytes.values()),
        "replica_count": len(one.replica_bytes),
    }
    if topics:
        described["replicas"] = [
            {**place._asdict(), "bytes": size}
            for place, size in sorted(one.replica_bytes.items())
            if place.topic in topics
        ]
    return described


def _size(count: int) -> str:
    return bytes_text(count) if count >= 0 else "unknown"
