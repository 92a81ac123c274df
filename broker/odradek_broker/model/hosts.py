"""Addresses of clients as text, in one form for each.

An address reaches the broker in several: a listener on `[::]` shows clients of IPv4 as
`::ffff:10.0.0.7`, Java writes `0:0:0:0:0:0:0:1` for `::1`. ACLs, quotas and limits compare texts,
so that an entry about an address would not apply to another form of it.
"""

import ipaddress


def canonical_host(host: str) -> str:
    """`10.0.0.7`, or the short form of IPv6; anything that is no address of IPv6 stays as it is."""
    if ":" not in host:
        return host
    try:
        address = ipaddress.IPv6Address(host)
    except ValueError:
        return host
    return str(address.ipv4_mapped or address)
