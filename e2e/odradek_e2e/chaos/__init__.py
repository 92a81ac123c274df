"""Clients on real brokers under faults, and checkers of what the clients saw (`make chaos`).

A campaign (`campaign`) runs rounds. A round (`round`) starts brokers and clients in a sandbox
(`world`), carries out the faults that its seed draws (`schedule`, `faults`), and writes a history
that the checkers read afterwards.
"""
