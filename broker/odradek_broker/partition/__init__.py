"""Partitions that this broker hosts: roles, appends, reads, the high watermark, who waits.

leader_state     the leader: who follows how far, the ISR, what is committed; pure
leader_events    what happens to a leader, and what it wants done; values
follower_state   the follower: where to fetch next, what to make of an answer; pure
commands         the metadata log as orders to this broker; pure
waiting          the purgatory
partition        one partition with its log and its role
service          all of them: the deferred write, the timers
read_replica, throttle   who reads from whom, and how fast; pure
"""
