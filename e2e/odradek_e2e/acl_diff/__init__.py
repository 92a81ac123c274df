"""Parity of access control: the same ACLs and requests for our broker and for Apache Kafka.

Each round sets other ACLs on both engines, and then sends generated requests (those of
`odradek_e2e.diff`) from several clients. A client is an address of the loopback network
(127.0.0.2, …): on a plaintext listener everybody is User:ANONYMOUS, and ACLs tell hosts apart. The
administrator is 127.0.0.1, with ACLs that allow everything and that end the default for everybody
else: with `allow.everyone.if.no.acl.found`, both engines start without a super user.
"""
