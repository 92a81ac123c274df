"""What a driver says of itself, in its status file or on its pod: how its queries go.

{"pipeline": "default/page-views", "state": "Running", "pid": 4711,
 "queries": {"main": {"batch": 17, "inputRate": 512.0, "batchMs": 220, "lag": {"visits": 12}, …}}}
"""

from __future__ import annotations

import msgspec


class QueryProgress(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    batch: int = -1
    input_rate: float = 0.0  # records per second that came
    process_rate: float = 0.0  # records per second while a batch was at work
    batch_ms: int = 0
    rows: int = 0  # of all batches of this run
    lag: dict[str, int] = {}  # topic → records that are there and not read
    checkpoint: str = ""  # when the last batch was committed
    state_rows: int = 0  # keys and windows that are remembered
    late_rows: int = 0  # came after the watermark: left out


class JobStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    pipeline: str
    state: str  # Starting, Running, Completed, Stopped, Failed
    pid: int = 0
    since: str = ""
    queries: dict[str, QueryProgress] = {}
    field: str = ""  # of the spec, if it failed
    message: str = ""
