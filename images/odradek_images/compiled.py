"""The broker's compiled modules as wheels and images carry them: next to their sources.

    python -m odradek_images.compiled /opt/odradek     # writes compiled.sha256, in the Dockerfile

`broker/compile.py` compiles them. `compiled.sha256` names the sources that they were made of, so
that a broker uses them only while they are current (`odradek_protocol/_compiled.py`).
"""

import hashlib
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

MADE_OF = "odradek_protocol/compiled.sha256"


class CompileError(Exception):
    """The compiler failed; the text is its output."""


def compiled_modules(compiler: Path) -> dict[str, Path]:
    """{"odradek_broker/log/log.cpython-311-x86_64-linux-gnu.so": …}; empty without a C compiler."""
    done = subprocess.run(
        ["nice", sys.executable, str(compiler)], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise CompileError(f"{compiler.name} failed:\n{(done.stdout + done.stderr)[-3000:]}")
    directory = done.stdout.strip()
    if not directory:
        sys.stderr.write(done.stderr)
        return {}
    found = sorted(Path(directory).rglob("*.so"))
    return {path.relative_to(directory).as_posix(): path for path in found}


def made_of(extensions: Mapping[str, Path], sources: Mapping[str, Path]) -> str:
    """The text of `compiled.sha256`. The extension that the others share has no source."""
    names = sorted(f"{name.partition('.')[0]}.py" for name in extensions)
    return "".join(
        f"{hashlib.sha256(sources[name].read_bytes()).hexdigest()}  {name}\n"
        for name in names
        if name in sources
    )


def main(home: Path) -> None:
    files = {path.relative_to(home).as_posix(): path for path in home.glob("odradek_*/**/*")}
    extensions = {name: path for name, path in files.items() if path.suffix == ".so"}
    (home / MADE_OF).write_text(made_of(extensions, files))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
