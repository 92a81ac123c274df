"""`odradek rebalance`: propose moves that balance a cluster, carry them out, watch, cancel.

    odradek rebalance propose -o proposal.json           what would move, and why; changes nothing
    odradek rebalance propose --mode remove-brokers --brokers 4
    odradek rebalance apply proposal.json                in batches, throttled; Ctrl-C and repeat
    odradek rebalance status proposal.json
    odradek rebalance cancel proposal.json --back        stop, and move back what has moved

Works with any Kafka cluster, through its admin protocol. `apply` compares the proposal with the
cluster before each batch, so it can be stopped at any time and started again.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from odradek_cli.broker_loads import Metrics, Sample, Window, loads_of
from odradek_cli.errors import CliError, UsageError
from odradek_cli.extras import needs_extra
from odradek_cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap, Yes, confirm
from odradek_cli.output import bytes_text, print_json, print_table, remarks

if TYPE_CHECKING:
    from odradek_operator.admin.balance import Rebalance
    from odradek_operator.kafka.balance.document import Proposal
    from odradek_operator.kafka.balance.execution import ExecutionProgress, Stage
    from odradek_operator.kafka.rebalancing import Execution
    from odradek_protocol.client.kafka_client import KafkaClient

app = typer.Typer(help="Balance replicas and leaders over the brokers.", no_args_is_help=True)

POLL_S = 0.5
MOVES_SHOWN = 20  # in a terminal; the file has all
MODES = "full, add-brokers, remove-brokers, remove-disks, hot-disk, leaders-only"
MB = 1e6

File = Annotated[Path, typer.Argument(help="A proposal of `odradek rebalance propose -o`.")]
Throttle = Annotated[
    float | None,
    typer.Option("--throttle", metavar="MB/s", help="Replication per broker. Default: proposal's."),
]


@app.command()
def propose(
    mode: Annotated[str, typer.Option("--mode", help=f"One of: {MODES}.")] = "full",
    brokers: Annotated[
        str,
        typer.Option(
            "--brokers", metavar="ID,…", help="Brokers that were added, or that are to be removed."
        ),
    ] = "",
    disk: Annotated[
        list[str] | None,
        typer.Option("--disk", metavar="BROKER:PATH", help="With remove-disks. Repeatable."),
    ] = None,
    goals: Annotated[
        str, typer.Option("--goals", metavar="NAME,…", help="Only these soft goals. Default: all.")
    ] = "",
    exclude_topics: Annotated[
        str, typer.Option("--exclude-topics", metavar="NAME,…", help="Topics that are not moved.")
    ] = "",
    exclude_brokers: Annotated[
        str,
        typer.Option(
            "--exclude-brokers",
            metavar="ID,…",
            help="Brokers that receive no replicas and no leaders.",
        ),
    ] = "",
    replicas_max: Annotated[
        int | None,
        typer.Option("--replicas-max", metavar="N", help="Of each broker. Default: no limit."),
    ] = None,
    price: Annotated[
        float,
        typer.Option(
            "--price", help="Imbalance that moving all bytes has to remove; higher moves less."
        ),
    ] = 0.1,
    throttle: Annotated[
        float, typer.Option("--throttle", metavar="MB/s", help="Replication per broker.")
    ] = 50.0,
    sample: Sample = 2.0,
    metrics: Metrics = "",
    window: Window = "hour",
    seed: Annotated[
        int, typer.Option("--seed", help="Random seed: decides between equally good brokers.")
    ] = 0,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write the proposal to this file.")
    ] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Show what would move, why, how long it takes, and what improves. Changes nothing."""
    from odradek_cli.client import connect

    with needs_extra("balance", "odradek rebalance"):
        from odradek_operator.admin.balance import observe
        from odradek_operator.kafka.balance import make
        from odradek_operator.kafka.balance.document import to_json
        from odradek_operator.kafka.balance.loads import Restrictions
        from odradek_operator.kafka.balance.model import UNLIMITED

    if throttle <= 0 or sample < 0 or (replicas_max is not None and replicas_max < 1):
        message = "--throttle and --replicas-max have to be positive, and --sample at least 0"
        raise UsageError(message)
    try:
        wish = make.Wish(
            mode=mode,
            brokers=_ids("--brokers", brokers),
            disks=frozenset(_disk(text) for text in disk or ()),
            goals=tuple(_names(goals)),
            price=price,
            throttle=throttle * MB,
            seed=seed,
        )
        with connect(bootstrap) as client:
            measured = loads_of(client, metrics, window)
            seen = observe(
                client,
                sample_s=sample,
                loads=measured,
                restrictions=Restrictions(
                    frozenset(_names(exclude_topics)),
                    frozenset(_ids("--exclude-brokers", exclude_brokers)),
                    replicas_max or UNLIMITED,
                ),
            )
        proposal = make.propose(wish, seen.brokers, seen.partitions, seen.directories, seen.placed)
    except ValueError as error:
        raise UsageError(str(error)) from None
    if output is not None:
        output.write_text(to_json(proposal))
    if as_json:
        print(to_json(proposal), end="")
    else:
        _show(proposal, output)


@app.command()
def apply(
    file: File,
    throttle: Throttle = None,
    yes: Yes = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Carry out a proposal: batch after batch, throttled, never below min.insync.replicas."""
    from odradek_cli.client import connect

    proposal = _read(file)
    if not proposal.moves and not proposal.directory_moves:
        print("Nothing to move.")
        return
    confirm(f"Move {len(proposal.moves)} partitions, {bytes_text(proposal.bytes)}?", yes)
    with connect(bootstrap) as client:
        _move_directories(client, proposal)
        _follow_directories(client, proposal)
        _carry_out(_rebalance(client, proposal, (throttle or 0) * MB))


@app.command()
def status(file: File, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, as_json: AsJson = False) -> None:
    """How far a proposal is carried out; removes a throttle that was left behind."""
    from odradek_cli.client import connect
    from odradek_operator.kafka.balance.execution import Stage

    with connect(bootstrap) as client:
        rebalance = _rebalance(client, _read(file))
        now = rebalance.look()
        if not now.count(Stage.MOVING):
            rebalance.remove_throttle()
        directories, _ = _directory_sentence(client, _read(file))
    if as_json:
        counts = {stage.value: now.count(stage) for stage in Stage}
        print_json({**counts, "bytes_left": now.bytes_left, "seconds_left": now.seconds_left,
                    "directories": directories, "hold": now.hold,
                    "finished": now.finished})  # fmt: skip
    else:
        print(_sentence(now))
        if directories:
            print(directories)


@app.command()
def cancel(
    file: File,
    back: Annotated[
        bool, typer.Option("--back", help="Also move back what has moved. Default: keep it.")
    ] = False,
    throttle: Throttle = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Stop the moves that are under way, and remove the throttle."""
    from msgspec.structs import replace

    from odradek_cli.client import connect
    from odradek_operator.admin.balance import way_back
    from odradek_operator.kafka.balance.execution import reversed_directories

    proposal = _read(file)
    with connect(bootstrap) as client:
        now = _rebalance(client, proposal).stop()
        _stop_directories(client, proposal)
        if back and (moves := way_back(proposal, now)):
            _carry_out(_rebalance(client, replace(proposal, moves=moves), (throttle or 0) * MB))
            now = _rebalance(client, proposal).look()
        if back and proposal.directory_moves:
            undo = replace(proposal, directory_moves=reversed_directories(proposal.directory_moves))
            _move_directories(client, undo)
            _follow_directories(client, undo)
    print(_sentence(now))


# -- parts -----------------------------------------------------------------------------------------


def _rebalance(client: KafkaClient, proposal: Proposal, throttle: float = 0.0) -> Rebalance:
    from odradek_operator.admin.balance import Rebalance

    return Rebalance(client, proposal, throttle)


def _carry_out(rebalance: Rebalance) -> None:
    from odradek_operator.admin.balance import RefusedError

    said = ""
    try:
        while True:
            now = rebalance.step()
            if (sentence := _sentence(now)) != said:
                remarks().print(sentence)
                said = sentence
            if now.finished:
                break
            time.sleep(POLL_S)
    except RefusedError as error:
        rebalance.remove_throttle()
        raise CliError(f"the cluster refused: {error}") from None
    except KeyboardInterrupt:
        remarks().print("Stopped. What is moving goes on; `apply` continues, `cancel` ends it.")
        raise
    print(_sentence(now))


def _directories(client: KafkaClient, proposal: Proposal) -> Execution:
    from odradek_operator.admin.throttles import log_sizes
    from odradek_operator.kafka.rebalancing import Execution

    sizes = log_sizes(client) if proposal.directory_moves else None
    return Execution("", (), proposal.throttle, proposal.directory_moves, sizes=sizes)


def _move_directories(client: KafkaClient, proposal: Proposal) -> None:
    """Submits those that have not begun; a broker copies them one after the other by itself."""
    from odradek_operator.kafka.balance.execution import Stage

    _submit_directories(client, proposal, Stage.PENDING, "after")


def _stop_directories(client: KafkaClient, proposal: Proposal) -> None:
    """A copy ends when its replica is asked to be where it is."""
    from odradek_operator.kafka.balance.execution import Stage

    _submit_directories(client, proposal, Stage.MOVING, "before")


def _submit_directories(client: KafkaClient, proposal: Proposal, stage: Stage, to: str) -> None:
    """`to`: before or after, for the replicas in this stage."""
    from odradek_operator.admin.throttles import move_directories
    from odradek_operator.kafka.rebalancing import directory_stages
    from odradek_protocol.ids import TopicPartition

    stages = directory_stages(_directories(client, proposal))
    wanted: dict[int, dict[TopicPartition, str]] = {}
    for change in proposal.directory_moves:
        place = TopicPartition(change.topic, change.partition)
        if stages[change.broker, place] is stage:
            wanted.setdefault(change.broker, {})[place] = getattr(change, to)
    for name, why in move_directories(client, wanted).items():
        raise CliError(f"{name}: {why}")


def _follow_directories(client: KafkaClient, proposal: Proposal) -> None:
    said = ""
    while True:
        sentence, finished = _directory_sentence(client, proposal)
        if sentence != said:
            remarks().print(sentence)
            said = sentence
        if finished:
            return
        time.sleep(POLL_S)


def _directory_sentence(client: KafkaClient, proposal: Proposal) -> tuple[str, bool]:
    """How far the moves between directories are, and whether they are done."""
    from odradek_operator.kafka.balance.execution import Stage
    from odradek_operator.kafka.rebalancing import directory_stages

    stages = list(directory_stages(_directories(client, proposal)).values())
    if not stages:
        return "", True
    parts = [f"{stages.count(s)} {s.value}" for s in Stage if stages.count(s)]
    finished = not any(s in (Stage.PENDING, Stage.MOVING) for s in stages)
    return f"Replicas that change their directory: {', '.join(parts)}.", finished


def _read(file: Path) -> Proposal:
    with needs_extra("balance", "odradek rebalance"):
        from odradek_operator.kafka.balance.document import from_json

    try:
        return from_json(file.read_text())
    except OSError as error:
        raise CliError(f"{file}: {error.strerror}") from None
    except ValueError as error:
        raise CliError(f"{file}: {error}") from None


def _sentence(now: ExecutionProgress) -> str:
    from odradek_operator.kafka.balance.execution import Stage

    if now.finished:
        changed = now.count(Stage.CHANGED)
        left = f"; {changed} were changed by others and left alone" if changed else ""
        return f"{now.count(Stage.DONE)} partitions are where the proposal puts them{left}."
    parts = [f"{now.count(s)} {s.value}" for s in Stage if now.count(s)]
    sentence = f"{', '.join(parts)}; {bytes_text(now.bytes_left)} left, "
    sentence += f"about {now.seconds_left:.0f} s at the throttle"
    return f"{sentence}; no new moves: {now.hold}" if now.hold else sentence


def _show(proposal: Proposal, output: Path | None) -> None:
    print_table(
        ["goal", ">before", ">after", ">deviation before", ">after", ""],
        [
            (
                goal.title,
                f"{goal.before:.0f}" if goal.hard else f"{goal.before:.1%}",
                f"{goal.after:.0f}" if goal.hard else f"{goal.after:.1%}",
                "" if goal.hard else f"{goal.deviation_before:.1%}",
                "" if goal.hard else f"{goal.deviation_after:.1%}",
                "reached" if goal.reached else "improved" if goal.after < goal.before else "open",
            )
            for goal in proposal.goals
        ],
    )
    moves = [
        (f"{m.topic}-{m.partition}", _list(m.before), _list(m.after), bytes_text(m.bytes), m.why)
        for m in proposal.moves[:MOVES_SHOWN]
    ]
    directories = [
        (f"{d.topic}-{d.partition}", f"{d.broker}:{d.before}", f"{d.broker}:{d.after}",
         bytes_text(d.bytes), d.why)
        for d in proposal.directory_moves[:MOVES_SHOWN]
    ]  # fmt: skip
    if moves or directories:
        print_table(["partition", "from", "to", ">copied", "why"], [*moves, *directories])
    more = max(0, len(proposal.moves) - MOVES_SHOWN)
    if more:
        print(f"… and {more} more; all with -o FILE or --json.")
    for problem in proposal.problems:
        print(f"Problem: {problem}")
    if not proposal.moves and not proposal.directory_moves:
        print("The cluster is balanced: nothing to move.")
        return
    waiting = len(proposal.without_preferred_leader)
    print(
        f"{len(proposal.moves)} partitions change; {bytes_text(proposal.bytes)} are copied in "
        f"about {proposal.seconds:.0f} s at {bytes_text(proposal.throttle)}/s per broker; "
        f"{proposal.leader_changes} leaders change, {waiting} of them when their copy is in sync."
    )
    if output is not None:
        print(f"Carry it out with: odradek rebalance apply {output}")


def _list(brokers: tuple[int, ...]) -> str:
    return ",".join(map(str, brokers))


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _ids(option: str, text: str) -> tuple[int, ...]:
    try:
        return tuple(int(name) for name in _names(text))
    except ValueError:
        raise UsageError(f"{option} {text}: expected ids of brokers, such as 3,4") from None


def _disk(text: str) -> tuple[int, str]:
    broker, _, path = text.partition(":")
    if not broker.isdecimal() or not path:
        raise UsageError(f"--disk {text}: expected BROKER:PATH, such as 0:/data/disk-2")
    return int(broker), path
