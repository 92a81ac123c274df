"""`make chaos`: real brokers under faults, for minutes or hours.

python -m odradek_e2e.chaos run --minutes 10 --seed 1 --engine embedded
python -m odradek_e2e.chaos check DIRECTORY        the history of a round, again, offline
python -m odradek_e2e.chaos plan --seed 7          what would happen, without doing it
python -m odradek_e2e.chaos planted                each planted bug must be found
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from odradek_e2e.chaos import campaign
from odradek_e2e.chaos.schedule import BY_NAME, plan
from odradek_e2e.chaos.world.brokers import APACHE, EMBEDDED

FAULT_SECONDS = 75.0
PER_SECOND = 4_000


def main(words: Sequence[str]) -> int:
    asked = _parser().parse_args(words)
    if asked.command == "check":
        return campaign.check(asked.directory)
    if asked.command == "plan":
        made = plan(asked.seed, asked.fault_seconds, tuple(asked.kinds))
        print(f"{made.size} brokers, disks {', '.join(made.disks)}, group protocol "
              f"{made.group_protocol}")  # fmt: skip
        print("\n".join(map(str, made.episodes)))
        return 0
    options = campaign.Options(
        engine=asked.engine, seed=asked.seed, minutes=asked.minutes,
        fault_seconds=asked.fault_seconds, per_second=asked.per_second, java=asked.java,
        kinds=tuple(asked.kinds),
        workloads=tuple(asked.workloads), directory=asked.directory, planted=asked.planted,
    )  # fmt: skip
    if asked.command == "round":
        return campaign.one_round(options)
    if asked.command == "planted":
        return campaign.planted(options, asked.only)
    code = campaign.run(options)
    return 0 if asked.smoke and code == campaign.NOT_RUN else code


def _parser() -> argparse.ArgumentParser:
    as_it_is = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser("chaos", description=__doc__, formatter_class=as_it_is)
    commands = parser.add_subparsers(dest="command", required=True)
    check = commands.add_parser("check", help="check the history of a round again")
    check.add_argument("directory", type=Path)
    for name, text in (("run", "rounds until the time is over"), ("plan", "print a plan"),
                       ("round", "one round, inside of the sandbox"),
                       ("planted", "find every planted bug")):  # fmt: skip
        command = commands.add_parser(name, help=text)
        command.add_argument("--engine", choices=(EMBEDDED, APACHE), default=EMBEDDED)
        command.add_argument("--seed", type=int, default=1)
        command.add_argument("--minutes", type=float, default=10.0)
        command.add_argument("--fault-seconds", type=float, default=FAULT_SECONDS,
                             help="of a round, without its start and end")  # fmt: skip
        command.add_argument("--per-second", type=int, default=PER_SECOND,
                             help="records of the largest workload")  # fmt: skip
        command.add_argument("--java", action=argparse.BooleanOptionalAction, default=True)
        command.add_argument("--kinds", nargs="*", choices=sorted(BY_NAME), default=[])
        command.add_argument("--workloads", nargs="*", default=[], help="only these")
        command.add_argument("--directory", type=Path, default=Path("build/chaos"))
        command.add_argument("--smoke", action="store_true",
                             help="not running here (no root) is no failure")  # fmt: skip
        command.add_argument("--planted", default="", help=argparse.SUPPRESS)
        if name == "planted":
            command.add_argument("only", nargs="*", help="names of planted bugs")
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
