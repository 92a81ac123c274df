"""The broker's side of talking to the active controller.

channel.py finds the active controller and sends it requests, lifecycle.py registers this broker
and sends its heartbeats, producer_id_blocks.py fetches blocks of producer ids. The controller's
side of these requests is the package `controller`.
"""
