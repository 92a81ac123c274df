"""Records as files: NDJSON as `odradek consume --json` prints it, and CSV for spreadsheets."""

from __future__ import annotations

import csv
import io
import json
from datetime import UTC, datetime

from odradek_cli.output import plain
from odradek_console.records.scan import Found

NDJSON, CSV = "ndjson", "csv"
CONTENT_TYPES = {NDJSON: "application/x-ndjson", CSV: "text/csv"}
COLUMNS = ("topic", "partition", "offset", "timestamp", "key", "value", "headers")
# A spreadsheet runs what begins with these as a formula.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def ndjson_line(topic: str, found: Found) -> str:
    record = found.record
    document = {
        "topic": topic,
        "partition": found.partition,
        "offset": record.offset,
        "timestamp_ms": record.timestamp,
        "key": plain(record.key),
        "headers": [[plain(name), plain(value)] for name, value in record.headers],
        "value": plain(record.value),
    }
    return json.dumps(document, ensure_ascii=False) + "\n"


def csv_line(topic: str, found: Found) -> str:
    record = found.record
    headers = [[plain(name), plain(value)] for name, value in record.headers]
    row = (
        topic,
        found.partition,
        record.offset,
        _time(record.timestamp),
        _cell(record.key),
        _cell(record.value),
        json.dumps(headers, ensure_ascii=False) if headers else "",
    )
    return csv_row(row)


def csv_row(row: tuple[object, ...]) -> str:
    out = io.StringIO()
    csv.writer(out).writerow(row)
    return out.getvalue()


def _cell(data: bytes | None) -> str:
    if data is None:
        return ""
    found = plain(data)
    text = found if isinstance(found, str) else f"base64:{found['base64']}"
    return f"'{text}" if text.startswith(_FORMULA) else text


def _time(at_ms: int) -> str:
    try:
        return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds")
    except (OverflowError, ValueError, OSError):
        return str(at_ms)
