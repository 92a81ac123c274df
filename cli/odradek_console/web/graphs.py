"""Graphs of pipelines as SVG that the server draws; its nodes are links to their topics."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from markupsafe import Markup, escape

from odradek_console.cluster.pipeline_graph import DEAD, Edge, Graph, GraphNode

WIDTH, HEIGHT = 180, 90  # of a node
ACROSS, DOWN = 64, 24  # between nodes
MARGIN, TOP = 8, 24  # above the first row is room for edges that pass over nodes
TITLE_CHARS, LINE_CHARS = 19, 24
LINE_HEIGHT = 17


def pipeline_graph(graph: Graph, label: str, address_of: Callable[[GraphNode], str]) -> Markup:
    """`address_of`: the page of a node, or ""."""
    width = 2 * MARGIN + graph.columns * (WIDTH + ACROSS) - ACROSS
    height = TOP + MARGIN + graph.rows * (HEIGHT + DOWN) - DOWN
    at = {node.id: _corner(node) for node in graph.nodes}
    parts = [
        f'<svg class="graph" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'role="group" aria-label="{escape(label)}">',
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" '
        'markerHeight="7" orient="auto-start-reverse"><path class="tip" d="M0 0L8 4L0 8z"/>'
        "</marker></defs>",
        *(_edge(edge, at, _is_dead(edge, graph)) for edge in graph.edges),
        *(_node(node, *at[node.id], address_of(node)) for node in graph.nodes),
        "</svg>",
    ]
    return Markup("".join(parts))


def _corner(node: GraphNode) -> tuple[int, int]:
    return MARGIN + node.column * (WIDTH + ACROSS), TOP + node.row * (HEIGHT + DOWN)


def _is_dead(edge: Edge, graph: Graph) -> bool:
    return any(node.id == edge.end and node.kind == DEAD for node in graph.nodes)


def _edge(edge: Edge, at: Mapping[str, tuple[int, int]], dead: bool) -> str:
    """Around the nodes in between: above those of its row, or along the row that is free."""
    left, top = at[edge.start]
    end_x, end_top = at[edge.end]
    x, y, end_y = left + WIDTH, top + HEIGHT // 2, end_top + HEIGHT // 2
    bend, near = ACROSS // 2, end_x - ACROSS
    lane = end_y if dead else y
    if y == end_y and near > x:
        lane = top - TOP // 2
    path = (
        f"M{x} {y}C{x + bend} {y} {x + bend} {lane} {x + ACROSS} {lane}"
        f"L{max(near, x + ACROSS)} {lane}"
    )
    if near <= x:  # the next column
        path = f"M{x} {y}C{x + bend} {y} {end_x - bend} {end_y} {end_x} {end_y}"
    elif lane == end_y:
        path += f"L{end_x} {end_y}"
    else:
        path += f"C{end_x - bend} {lane} {end_x - bend} {end_y} {end_x} {end_y}"
    drawn = f'<path class="edge{" lost" if dead else ""}" d="{path}" marker-end="url(#tip)"/>'
    if edge.text:
        drawn += (
            f'<text class="axis" x="{x + bend}" y="{y - 8}" text-anchor="middle">'
            f"{escape(edge.text)}</text>"
        )
    return drawn


def _node(node: GraphNode, x: int, y: int, address: str) -> str:
    lines = "".join(
        f'<text class="axis" x="{x + 12}" y="{y + 22 + LINE_HEIGHT * number}">'
        f"{escape(_cut(line, LINE_CHARS))}<title>{escape(line)}</title></text>"
        for number, line in enumerate(node.lines, start=1)
    )
    drawn = (
        f'<rect class="node {node.kind}{" alarm" if node.alarm else ""}" x="{x}" y="{y}" '
        f'width="{WIDTH}" height="{HEIGHT}" rx="8"/>'
        f'<text class="node-title" x="{x + 12}" y="{y + 22}">'
        f"{escape(_cut(node.title, TITLE_CHARS))}</text>{lines}"
    )
    if not address:
        return f"<g>{drawn}</g>"
    said = f"{node.title}: {', '.join(node.lines)}"
    return f'<a href="{escape(address)}" aria-label="{escape(said)}">{drawn}</a>'


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"
