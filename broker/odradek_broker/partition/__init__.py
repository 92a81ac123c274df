"""Partitions that this broker hosts: roles, appends, reads, the high watermark, waiting requests.

leader_state     the leader: progress of its followers, the ISR, the high watermark; no I/O
leader_events    events and instructions of leader_state; values
follower_state   the follower: the next fetch offset, what a response changes; no I/O
commands         the metadata log as commands for this broker; no I/O
waiting          the purgatory
partition        one partition with its log and its role
service          all partitions: the deferred write, the timers
read_replica, throttle   which replica a consumer reads from, and how fast; no I/O
"""
