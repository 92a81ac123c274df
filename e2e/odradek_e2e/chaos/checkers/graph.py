"""Cycles in a graph of transactions."""

from __future__ import annotations

from collections.abc import Mapping


def cycle(edges: Mapping[str, set[str]]) -> list[str]:
    """One cycle, its first node repeated at the end; empty if there is none."""
    done: set[str] = set()
    for start in edges:
        if start in done:
            continue
        path, on_path = [start], {start}
        below = [iter(sorted(edges.get(start, ())))]
        while path:
            following = next(below[-1], None)
            if following is None:
                done.add(path[-1])
                on_path.discard(path.pop())
                below.pop()
            elif following in on_path:
                return [*path[path.index(following) :], following]
            elif following not in done:
                path.append(following)
                on_path.add(following)
                below.append(iter(sorted(edges.get(following, ()))))
    return []
