"""Where downloads and built programs are kept between runs: `$XDG_CACHE_HOME/odradek`."""

import os
from pathlib import Path


def cache_home() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "odradek"
