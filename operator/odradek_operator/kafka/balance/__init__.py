"""Balances a cluster: which replicas and leaders should be elsewhere, and why.

    cluster = model.build(brokers, partitions)        # arrays
    plan = search.optimize(cluster, Options())        # the assignment afterwards, and each step
    proposal = proposal.describe(cluster, plan, …)    # a document for people and programs

Does no I/O, and gives the same answer for the same input and seed. `goals/` has a file per goal.
The package imports numpy (30 MB), so callers import it when the first proposal is asked for.
"""
