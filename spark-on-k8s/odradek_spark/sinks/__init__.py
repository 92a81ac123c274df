"""Sinks. write.py lists the delivery guarantee of each one."""
