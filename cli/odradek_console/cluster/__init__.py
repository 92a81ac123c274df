"""Reads a cluster as one user: snapshots, history, plans of changes.

Calls block (they run in threads of the app); nothing here knows HTTP.
"""
