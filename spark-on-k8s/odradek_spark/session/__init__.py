"""Spark itself: its jars, fetched once, and a session that is made for small machines."""
