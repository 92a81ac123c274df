"""Code blocks of a Markdown page that are marked as runnable. Does no I/O.

The mark is an HTML comment in the line before the fence:

    <!-- run -->                       shell: runs to its end, exit code 0. YAML: our manifests
    <!-- run until "text" -->          shell: stays in the background once it has printed the text
    <!-- run as KafkaCluster -->       YAML: the `spec:` of that kind, without the lines around it
    <!-- output -->                    every line of this block is in the output of the last one;
                                       `…` stands for anything
    <!-- file server.properties -->    the block is written to that file before the next one runs
"""

from __future__ import annotations

import re
from dataclasses import dataclass

SHELL = ("sh", "bash", "")
YAML = ("yaml",)

_MARKED = re.compile(
    r"^<!-- (?P<verb>run|output|file)(?: (?P<argument>[^\n]*?))? -->\n"
    r"```(?P<language>\w*)\n(?P<text>.*?)^```$",
    re.DOTALL | re.MULTILINE,
)
_MARK = re.compile(r"^ *<!-- (run|output|file)\b", re.MULTILINE)
_UNTIL = re.compile(r'until "(.*)"')
_AS = re.compile(r"as (\w+)")


class MarkError(Exception):
    """A mark that is not understood, or that no code block follows."""


@dataclass(frozen=True, slots=True)
class Block:
    """A marked code block: where it is, and what is to be done with it."""

    page: str
    line: int  # of its first line of code, for messages
    verb: str  # run, output or file
    language: str
    text: str
    until: str | None = None  # shell: goes on in the background after this text
    kind: str | None = None  # YAML: the text is the spec of this kind
    file: str | None = None

    @property
    def where(self) -> str:
        return f"{self.page}:{self.line}"


def blocks_of(page: str, text: str) -> list[Block]:
    """The marked blocks of a page in their order."""
    found = [_block(page, text, match) for match in _MARKED.finditer(text)]
    if len(found) != len(_MARK.findall(text)):
        raise MarkError(f"{page}: a mark without a code block right after it")
    return found


def _block(page: str, text: str, match: re.Match[str]) -> Block:
    verb, argument, language = match["verb"], match["argument"] or "", match["language"]
    line = text.count("\n", 0, match.start("text")) + 1
    until, kind = _UNTIL.fullmatch(argument), _AS.fullmatch(argument)
    understood = {
        "run": not argument or (until if language in SHELL else kind),
        "output": not argument,
        "file": argument,
    }
    if verb == "run" and language not in SHELL + YAML:
        raise MarkError(f"{page}:{line}: a block of {language!r} cannot be run")
    if not understood[verb]:
        raise MarkError(f"{page}:{line}: `{verb} {argument}` does not fit a block of {language!r}")
    return Block(
        page=page,
        line=line,
        verb=verb,
        language=language,
        text=match["text"],
        until=until[1] if until else None,
        kind=kind[1] if kind else None,
        file=argument if verb == "file" else None,
    )
