"""Replication over the network: fetching for partitions that follow, and bringing the ISR
changes of partitions that lead to the controller. Their decisions are in `partition/`, without I/O.
"""
