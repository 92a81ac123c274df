"""One network namespace per broker, joined by a bridge; clients are in the campaign's own.

    10.77.0.1 … 10.77.0.5    brokers 1 … 5, each behind a veth pair
    10.77.0.254              the bridge, where the clients are ("broker" CLIENTS)

Each namespace also has a tun device. While a link is disturbed, the route of that direction leads
into the device, and links.py decides what becomes of each packet. Healthy links are the kernel's.
Must run in the sandbox (sandbox.py), which removes all of this.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from odradek_e2e.chaos.world.links import Rule

SUBNET = "10.77.0"
CLIENTS = 254
PORT, CONTROLLER_PORT = 9092, 9093
MTU = "8000"  # fewer packets to handle in Python; a veth takes any size
TUN = "chaos"


def host(member: int) -> str:
    return f"{SUBNET}.{member}"


class Network:
    """Namespaces b1 … bN, and the process that delays and drops packets between them."""

    def __init__(self, brokers: Iterable[int], log: Path) -> None:
        self.brokers = tuple(brokers)
        self._rules: dict[tuple[int, int], Rule] = {}
        _ip("link", "set", "lo", "up")
        _run("mount", "-t", "tmpfs", "tmpfs", _netns_directory())
        _ip("link", "add", "bridge0", "type", "bridge")
        _ip("link", "set", "bridge0", "up")
        _ip("addr", "add", f"{host(CLIENTS)}/24", "dev", "bridge0")
        _accept_any_route()
        for broker in self.brokers:
            self._add(broker)
        places = [f"{broker}=/run/netns/b{broker}" for broker in self.brokers]
        with open(log, "ab") as out:
            self._links = subprocess.Popen(
                [sys.executable, "-m", "odradek_e2e.chaos.world.links", TUN, MTU,
                 f"{CLIENTS}=", *places],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=out, text=True,
            )  # fmt: skip
        assert self._links.stdout is not None
        if self._links.stdout.readline() != "ready\n":
            raise RuntimeError(f"the process of the links did not start: see {log}")

    def _add(self, broker: int) -> None:
        name, inner = f"b{broker}", self.enter(broker)
        _ip("netns", "add", name)
        _ip("link", "add", f"v{broker}", "mtu", MTU, "type", "veth", "peer", "name", "eth0",
            "netns", name)  # fmt: skip
        _ip("link", "set", f"v{broker}", "master", "bridge0", "up")
        _run(*inner, "ip", "link", "set", "lo", "up")
        _run(*inner, "ip", "addr", "add", f"{host(broker)}/24", "dev", "eth0")
        _run(*inner, "ip", "link", "set", "eth0", "mtu", MTU, "up")
        _run(*inner, sys.executable, "-m", __name__)

    def enter(self, broker: int) -> tuple[str, ...]:
        """The command that runs another one in the broker's namespace, as the same process."""
        return () if broker == CLIENTS else ("nsenter", f"--net=/run/netns/b{broker}")

    # -- faults ------------------------------------------------------------------------------------

    def disturb(self, senders: Iterable[int], receivers: Iterable[int], rule: Rule) -> None:
        """Packets from each sender to each receiver are treated by the rule until `heal`."""
        receiving = tuple(receivers)
        pairs = [(a, b) for a in senders for b in receiving if a != b]
        self._rules.update(dict.fromkeys(pairs, rule))
        self._tell()
        for sender, receiver in pairs:
            self._route(sender, "replace", receiver, "dev", TUN, "src", host(sender))

    def heal(self) -> None:
        """All links are as at the beginning; packets that were delayed still arrive."""
        pairs = tuple(self._rules)
        self._rules.clear()
        self._tell()
        for sender, receiver in pairs:
            self._route(sender, "del", receiver)

    def _route(self, sender: int, verb: str, receiver: int, *rest: str) -> None:
        _run(*self.enter(sender), "ip", "route", verb, f"{host(receiver)}/32", *rest)

    def _tell(self) -> None:
        rules = [[a, b, *rule] for (a, b), rule in self._rules.items()]
        assert self._links.stdin is not None
        assert self._links.stdout is not None
        self._links.stdin.write(json.dumps(rules) + "\n")
        self._links.stdin.flush()
        if self._links.stdout.readline() != "ready\n":
            raise RuntimeError("the process of the links has ended")

    def close(self) -> None:
        self._links.kill()
        self._links.wait()
        for broker in self.brokers:
            _ip("netns", "del", f"b{broker}")
        _ip("link", "del", "bridge0")
        _run("umount", "-l", _netns_directory())


def _accept_any_route() -> None:
    """A packet may arrive at another device than the one that leads back to its sender."""
    for name in ("all", "default"):
        Path(f"/proc/sys/net/ipv4/conf/{name}/rp_filter").write_text("0")


def _netns_directory() -> str:
    directory = Path("/run/netns")
    directory.mkdir(exist_ok=True)
    return str(directory)


def _ip(*words: str) -> None:
    _run("ip", *words)


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{_shown(command)}: {done.stderr.strip()}")


def _shown(command: Sequence[str]) -> str:
    return " ".join(command)


if __name__ == "__main__":  # in the namespace of one broker
    _accept_any_route()
