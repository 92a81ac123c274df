"""Partitions that this broker hosts: append, read, high watermark, and requests that wait."""
