"""Deterministic simulation: the production state machines on a simulated clock, network and disk.

    python -m broker_tests.sim --seeds 1000 --start 0        (from the folder broker/)

One seed is one run: a cluster, a load and a schedule of faults, all drawn from the seed, checked
after every step. The same seed gives the same trace, bit by bit, on every machine: nothing here
reads a clock, uses a thread or iterates over a set.

    world.py       clock, event queue, hosts that crash, pause and restart; the trace and its hash
    network.py     latency, loss, duplication, reordering, one-way and two-way cuts
    faults.py      the schedule: drawn from the seed, applied to a world, shrunk when it fails
    raft_*.py      the metadata quorum in this world: node (driver), disk, invariants, run
    mutants.py     planted bugs, to prove that the invariants would see them
    cluster_*.py   whole brokers in this world
    coord_*.py     the same with production logs and an event loop in simulated time, in which
                   the production coordinators run; and the smallest coordinator, a ledger
    group_*.py     a consumer group: members that join, commit, sleep and leave
    disk_*.py      brokers whose log directories fail and fill up, and peers that are starved
    txn_*.py       transactions: producers, markers between brokers, readers of committed records

`make sim SEEDS=n` runs many seeds of the cluster, `KIND=txn` (coord, disk, group) of another.
"""
