"""The optimizer of `odradek rebalance`: how long it takes, and how good its answers are."""
