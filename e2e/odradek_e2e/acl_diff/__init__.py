"""Parity of access control: the same ACLs and requests for our broker and for Apache Kafka.

Each round sets other ACLs on both engines, and then sends generated requests (those of
`odradek_e2e.diff`) as several clients. A client (`users`) is a user of PLAIN or SCRAM and an
address of the loopback network (127.0.0.2, …), because ACLs tell users and hosts apart. A super
user administers, and sends a tenth of the requests.
"""
