"""Quix Streams: upper-cases PREFIX-in into PREFIX-out. app.py BOOTSTRAP PREFIX STATE_DIRECTORY"""

import sys

from quixstreams import Application

bootstrap, prefix, state = sys.argv[1:4]
app = Application(
    broker_address=bootstrap,
    consumer_group=f"{prefix}-app",
    auto_offset_reset="earliest",
    auto_create_topics=False,
    processing_guarantee="exactly-once",
    commit_interval=0.5,
    state_dir=state,
)
source = app.topic(f"{prefix}-in", key_deserializer="bytes", value_deserializer="str")
target = app.topic(f"{prefix}-out", key_serializer="bytes", value_serializer="str")
app.dataframe(source).apply(str.upper).to_topic(target)
app.run()
