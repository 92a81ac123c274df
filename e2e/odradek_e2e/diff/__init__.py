"""Protocol diff: the same generated requests to our broker and to Apache Kafka, answers compared.

    make protocol-diff                       python -m odradek_e2e.diff --seed 1 --requests 3000

`generate` makes requests of every API and version that both engines advertise, from kio's
description of the messages (`values` says which values make sense), and `malform` damages some of
their frames. `engines` sends each frame to both brokers; `compare` compares the decoded answers
field by field; `expected` is the table of intended differences, each with its reason.

A run is a list of rounds. Each round has topics, groups and transactional ids of its own, so that
one difference does not cause others in the rest of the run.
"""
