"""kcat: produces and consumes with keys, headers and codecs, and reads in a group."""

from __future__ import annotations

import json
import subprocess

from odradek_e2e.ecosystem.case import Place
from odradek_e2e.ecosystem.contract import (
    CODECS,
    PER_CODEC,
    RECORDS,
    Check,
    Look,
    Unexpected,
    prepare,
    same,
    value,
)

CHECKS = ("records none", "records gzip", "records snappy", "records lz4", "records zstd", "others",
          "group", "idempotent")  # fmt: skip
KCAT_S = 120.0


def run(place: Place) -> list[Check]:
    prepare(place.server.bootstrap, place.prefix)
    look = Look(place.server.bootstrap, place.server.data_dir, place.prefix)
    found = []
    for codec in CODECS:
        _write(place, codec, codec, "-z", codec)
        found.append(_checked(f"records {codec}", place, codec, [(codec, RECORDS)]))
    found.append(_checked("others", place, "others", [(codec, PER_CODEC) for codec in CODECS]))
    _write(place, "idempotent", "idempotent", "-X", "enable.idempotence=true")
    found.append(_checked("idempotent", place, "idempotent", [("idempotent", RECORDS)]))
    found.append(_group(place))
    found.append(Check("transactions", "absent", "kcat has no transactions"))
    found.append(Check("admin", "absent", "kcat changes no topics"))
    return [look.confirm(check) for check in found]


def _kcat(place: Place, *args: str, stdin: bytes = b"") -> bytes:
    command = ["kcat", "-b", place.server.bootstrap, *args]
    done = subprocess.run(command, input=stdin, capture_output=True, timeout=KCAT_S, check=False)
    if done.returncode != 0:
        raise Unexpected(f"kcat {' '.join(args)}: {done.stderr.decode()[-500:]}")
    return done.stdout


def _write(place: Place, topic: str, what: str, *options: str) -> None:
    """One call per record, because kcat sets the same headers on all records of a call."""
    for number in range(RECORDS):
        line = f"k{number}:".encode() + value(what, number)
        _kcat(place, "-P", "-t", f"{place.prefix}-{topic}", "-K:", "-H", f"n={number}",
              *options, stdin=line)  # fmt: skip


def _checked(name: str, place: Place, topic: str, parts: list[tuple[str, int]]) -> Check:
    """kcat -J prints one JSON document per record, with its headers as a list."""
    try:
        out = _kcat(place, "-C", "-t", f"{place.prefix}-{topic}", "-e", "-q", "-J", "-p", "0")
        found = [json.loads(line) for line in out.decode().splitlines()]
        same(
            [(one["key"], one["payload"], one["headers"]) for one in found],
            [
                (f"k{number}", value(what, number).decode(), ["n", str(number)])
                for what, count in parts
                for number in range(count)
            ],
        )
    except Unexpected as wrong:
        return Check(name, "failed", str(wrong))
    return Check(name, "ok")


def _group(place: Place) -> Check:
    """A member of a group reads one record, commits on leaving; the next one reads the others."""
    topic = f"{place.prefix}-others"
    args = ("-X", "auto.offset.reset=earliest", "-q", "-f", "%o\n", "-G", f"{place.prefix}-kcat")
    try:
        first = _kcat(place, "-c", "7", *args, topic).split()
        rest = _kcat(place, "-c", str(PER_CODEC * len(CODECS) - 7), *args, topic).split()
        same([int(n) for n in first + rest], list(range(PER_CODEC * len(CODECS))))
    except Unexpected as wrong:
        return Check("group", "failed", str(wrong))
    return Check("group", "ok")
