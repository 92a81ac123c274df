"""Runs the broker's image as `docker run --read-only odradek/broker` would, without an engine.

    unshare --net --mount --pid --fork python -m e2e_tests.broker_image ARCHIVE

The layers are unpacked and the configuration of the image is carried out: its user, environment and
arguments, a root that cannot be written, and an empty volume where the image declares one. The
network is a new one with nothing but localhost, so that port 9092 is free. Then a topic is created,
a record is produced and consumed, and the broker is stopped. Prints what was seen, as JSON.
"""

import json
import os
import signal
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any


def unpack(archive: Path, root: Path) -> dict[str, Any]:
    """The file system of the only image of an archive; returns its configuration."""
    with tarfile.open(archive) as tar:
        read = {name: tar.extractfile(name) for name in tar.getnames()}
        manifest = json.load(read["manifest.json"])[0]  # type: ignore[arg-type]
        for name in manifest["Layers"]:
            with tarfile.open(fileobj=read[name]) as layer:
                layer.extractall(root, filter="fully_trusted")
        config: dict[str, Any] = json.load(read[manifest["Config"]])  # type: ignore[arg-type]
        return config


def command(*parts: str, stdin: str = "") -> str:
    done = subprocess.run(parts, input=stdin, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{parts}: {done.stdout}{done.stderr}")
    return done.stdout


def main(archive: Path) -> None:
    with tempfile.TemporaryDirectory() as directory:
        root, data = Path(directory) / "root", Path(directory) / "volume"
        root.mkdir()
        config = unpack(archive, root)["config"]
        (volume,) = config["Volumes"]
        owner = (root / volume.strip("/")).stat()
        data.mkdir()
        os.chown(data, owner.st_uid, owner.st_gid)  # as an engine fills a new volume
        command("ip", "link", "set", "lo", "up")
        command("mount", "--bind", str(root), str(root))
        command("mount", "--bind", str(data), str(root / volume.strip("/")))
        command("mount", "-o", "remount,bind,ro", str(root))
        broker = subprocess.Popen(
            ["chroot", f"--userspec={config['User']}", str(root), "/usr/bin/env", "-i",
             *config["Env"], *config["Entrypoint"], *config["Cmd"]],
            stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert broker.stdout is not None
        ready = broker.stdout.readline()
        odradek = (sys.executable, "-m", "odradek_cli")
        command(*odradek, "topics", "create", "hello", "--bootstrap", "localhost:9092")
        command(*odradek, "produce", "hello", "--bootstrap", "localhost:9092", stdin="world\n")
        read = command(*odradek, "consume", "hello", "--from-beginning", "--until-end",
                       "--bootstrap", "localhost:9092")  # fmt: skip
        compiled = "hot__mypyc" in Path(f"/proc/{broker.pid}/maps").read_text()
        user = Path(f"/proc/{broker.pid}").stat().st_uid
        broker.send_signal(signal.SIGTERM)
        code = broker.wait()
        print(json.dumps({
            "ready": ready, "read": read, "compiled": compiled, "user": user, "code": code,
            "sbom": len(json.loads((root / "opt/odradek/sbom.json").read_text())["components"]),
            "labels": config["Labels"],
            "writable": [str(p) for p in root.rglob("*") if p.is_file() and p.stat().st_mode & 0o022
                         and not p.is_symlink()],
        }))  # fmt: skip
        command("umount", str(root / volume.strip("/")))
        command("umount", str(root))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
