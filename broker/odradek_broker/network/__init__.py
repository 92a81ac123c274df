"""Sockets and frames: connections, limits, and handing requests to their handlers."""
