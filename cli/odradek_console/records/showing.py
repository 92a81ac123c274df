"""Bytes of a key or value as text, JSON or hex, cut to a page's size."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

AUTO, TEXT, JSON, HEX = "auto", "text", "json", "hex"
FORMATS = (AUTO, TEXT, JSON, HEX)
PREVIEW_CHARS = 160  # in a row of the table
SHOWN_BYTES = 64 * 1024  # of one value in a page; export has all of it
NODES_MAX = 2_000  # of a JSON document that is folded
DEPTH_MAX = 40


@dataclass(frozen=True)
class Shown:
    """`format` is what AUTO chose; `document` is there for JSON that can be folded."""

    format: str
    text: str
    preview: str
    size: int
    cut: bool = False
    document: Any = None

    @property
    def foldable(self) -> bool:
        return isinstance(self.document, (dict, list)) and bool(self.document)


def show(data: bytes | None, wanted: str = AUTO) -> Shown | None:
    """None: null, a tombstone or a missing key."""
    if data is None:
        return None
    size = len(data)
    part = data[:SHOWN_BYTES]
    if wanted == HEX:
        return _shown(HEX, _hex(part[: SHOWN_BYTES // 8]), size, size > SHOWN_BYTES // 8)
    document = _parsed(data) if wanted in (AUTO, JSON) and size <= SHOWN_BYTES else None
    if document is not None and (wanted == JSON or isinstance(document, (dict, list))):
        if not _countable(document):
            document = None
        else:
            text = json.dumps(document, ensure_ascii=False, indent=2)
            preview = json.dumps(document, ensure_ascii=False)
            return _shown(JSON, text, size, cut=False, preview=preview, document=document)
    plain = _text(part, size)
    if plain is None and wanted == AUTO:
        return _shown(HEX, _hex(part[: SHOWN_BYTES // 8]), size, size > SHOWN_BYTES // 8)
    return _shown(TEXT, plain or part.decode(errors="replace"), size, size > SHOWN_BYTES)


def _shown(
    format_: str, text: str, size: int, cut: bool, preview: str = "", document: Any = None
) -> Shown:
    line = " ".join((preview or text)[: PREVIEW_CHARS * 2].split())
    if len(line) > PREVIEW_CHARS:
        line = line[:PREVIEW_CHARS] + "…"
    return Shown(format_, text, line, size, cut, document)


def _parsed(data: bytes) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None


def _countable(document: Any) -> bool:
    """Whether it is small and flat enough to be folded in a page."""
    count = 0
    level = [document] if isinstance(document, (dict, list)) else []
    for _ in range(DEPTH_MAX):
        below: list[Any] = []
        for node in level:
            children = list(node.values() if isinstance(node, dict) else node)
            count += len(children)
            below += [child for child in children if isinstance(child, (dict, list))]
        if count > NODES_MAX:
            return False
        if not below:
            return True
        level = below
    return False


def _text(part: bytes, size: int) -> str | None:
    """None if it is not UTF-8, or has control characters that are not white space."""
    try:
        text = part.decode()
    except UnicodeDecodeError as error:
        if not (size > len(part) and error.start >= len(part) - 3):
            return None
        text = part[: error.start].decode()  # the cut went through a character
    if any(ord(one) < 32 and one not in "\t\r\n" for one in text):
        return None
    return text


def _hex(data: bytes) -> str:
    """Offset, 16 bytes, and their printable ASCII characters, as hexdump prints them."""
    lines = []
    for at in range(0, len(data), 16):
        row = data[at : at + 16]
        numbers = " ".join(f"{byte:02x}" for byte in row)
        ascii_ = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in row)
        lines.append(f"{at:08x}  {numbers:<47}  {ascii_}")
    return "\n".join(lines)
