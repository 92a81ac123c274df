"""Ports to the world (clock, disk, network, threads) and the broker's settings.

Everything above reaches time and files only through these, so that the simulator can put
its own in their place.
"""
