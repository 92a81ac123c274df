"""Faust: upper-cases PREFIX-in into PREFIX-out. app.py BOOTSTRAP PREFIX STATE_DIRECTORY"""

import sys

import faust

bootstrap, prefix, state = sys.argv[1:4]
app = faust.App(
    f"{prefix}-app",
    broker=f"kafka://{bootstrap}",
    store="memory://",
    datadir=state,
    topic_partitions=4,
    topic_replication_factor=1,
    broker_commit_interval=0.5,
    stream_wait_empty=False,
)
source = app.topic(f"{prefix}-in", key_type=bytes, value_type=bytes, key_serializer="raw",
                   value_serializer="raw")  # fmt: skip
target = app.topic(f"{prefix}-out", key_type=bytes, value_type=bytes, key_serializer="raw",
                   value_serializer="raw")  # fmt: skip


@app.agent(source)
async def handle(stream):  # type: ignore[no-untyped-def]
    async for key, text in stream.items():
        await target.send(key=key, value=text.upper())


sys.argv[1:] = ["worker", "-l", "info", "--without-web"]
app.main()
