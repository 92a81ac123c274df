"""Templates: Jinja with escaping always on, and the frame of every page."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterable, Mapping
from functools import cache
from importlib.resources import files
from typing import Any
from urllib.parse import quote, urlencode

import jinja2
from aiohttp import web

from odradek_console import text
from odradek_console.web import charts
from odradek_console.web.options import ConsoleOptions
from odradek_console.web.sessions import Session

OPTIONS = web.AppKey("options", ConsoleOptions)
SESSION = web.RequestKey("session", Session)
PACKAGE = "odradek_console"

# In the order of the navigation: path, title, key after `g`.
NAVIGATION = (
    ("/", "Overview", "o"),
    ("/brokers", "Brokers", "b"),
    ("/topics", "Topics", "t"),
    ("/groups", "Groups", "g"),
    ("/rebalance", "Rebalance", "r"),
    ("/security", "Security", "s"),
)
OF_THE_RUNTIME = (("/plan", "Plan", "p"), ("/pipelines", "Pipelines", "i"))
THEMES = ("light", "dark")


@cache
def static_files() -> dict[str, bytes]:
    """Name → content; a few small files."""
    folder = files(PACKAGE) / "static"
    return {one.name: one.read_bytes() for one in folder.iterdir() if one.is_file()}


@cache
def static_path(name: str) -> str:
    """/static/console.css?v=1a2b: cached for ever, and new after an update."""
    digest = hashlib.sha256(static_files()[name]).hexdigest()[:12]
    return f"/static/{name}?v={digest}"


@cache
def environment() -> jinja2.Environment:
    made = jinja2.Environment(
        loader=jinja2.PackageLoader(PACKAGE),
        autoescape=True,
        auto_reload=False,  # the templates of this version, also while the package is updated
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {
        "bytes": text.bytes_text,
        "count": text.count_text,
        "rate": text.rate_text,
        "moment": text.moment_text,
        "duration": text.duration_text,
        "since": text.since_text,
        "short": charts.short,
        "path": lambda one: quote(str(one), safe=""),
    }
    made.globals |= {
        "static": static_path,
        "share_bar": charts.share_bar,
        "spark": charts.spark,
    }
    return made


def render(request: web.Request, template: str, status: int = 200, **values: Any) -> web.Response:
    session = request.get(SESSION)
    options = request.app[OPTIONS]
    theme = request.cookies.get("theme", "")
    is_live = "X-Live" in request.headers  # parts of it are shown: notices need a whole page
    page = (
        environment()
        .get_template(template)
        .render(
            session=session,
            notices=session.take_notices() if session is not None and not is_live else [],
            csrf=session.csrf if session is not None else "",
            options=options,
            navigation=NAVIGATION + (OF_THE_RUNTIME if options.runtime is not None else ()),
            theme=theme if theme in THEMES else "",
            path=request.path,
            url=request.path_qs,
            now_ms=time.time_ns() // 1_000_000,
            link=lambda **changes: link(request, changes),
            **values,
        )
    )
    return web.Response(text=page, content_type="text/html", status=status)


def link(request: web.Request, changes: Mapping[str, Any]) -> str:
    """This address with other parameters; None removes one."""
    query = {name: value for name, value in request.query.items() if name not in changes}
    query |= {name: str(value) for name, value in changes.items() if value not in (None, "")}
    return f"{request.path}?{urlencode(query)}" if query else request.path


def address(*parts: str, **query: str) -> str:
    """address("topics", "a/b", tab="x") -> "/topics/a%2Fb?tab=x"."""
    path = "/" + "/".join(quote(part, safe="") for part in parts)
    return f"{path}?{urlencode(query)}" if query else path


def own_path(text: str) -> str:
    """A path of this console, or "/": never another site's address."""
    is_ours = text.startswith("/") and not text.startswith("//") and "\\" not in text
    return text if is_ours and text.isprintable() else "/"


class Page:
    """One page of a long list."""

    def __init__(self, items: Iterable[Any], number: int, size: int) -> None:
        everything = list(items)
        self.total = len(everything)
        self.pages = max(-(-self.total // size), 1)
        self.number = min(max(number, 1), self.pages)
        first = (self.number - 1) * size
        self.items = everything[first : first + size]
        self.first, self.last = first + 1 if self.items else 0, first + len(self.items)


def number_of(request: web.Request, name: str, default: int, most: int = 10**9) -> int:
    """A parameter of the address; text that is no number counts as not given."""
    given = request.query.get(name, "")
    return min(int(given), most) if given.isdecimal() and len(given) < 19 else default
