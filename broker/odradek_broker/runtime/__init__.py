"""Ports to the outside world (clock, disk, network, threads) and the broker's settings.

The layers above use time and files only through these, so that the simulator can replace them.
"""
