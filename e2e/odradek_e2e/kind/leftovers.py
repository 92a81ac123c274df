"""Machine-wide settings that the cluster changes: saved before, restored after.

Kubelets set sysctls that belong to no container (vm.overcommit_memory …), a container engine turns
forwarding on and puts its chains into the packet filter. Only rules
that were not there before and carry the engine's names are removed: rules of other programs stay,
also those added since.
"""

import contextlib
import json
import re
from pathlib import Path

from odradek_e2e.kind.places import BRIDGE, KindError, command, run_dir

SYSCTLS = (
    "vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops",
    "kernel/keys/root_maxkeys", "kernel/keys/root_maxbytes", "fs/inotify/max_user_instances",
    "fs/inotify/max_user_watches", "net/ipv4/ip_forward",
    "net/bridge/bridge-nf-call-iptables", "net/bridge/bridge-nf-call-ip6tables",
)  # fmt: skip
AT_LEAST = {"fs/inotify/max_user_instances": 512, "fs/inotify/max_user_watches": 524288}
CHAIN = re.compile(r"^:(DOCKER\S*) ", re.M)


def remember() -> None:
    """Saves the settings once, before anything is started; later calls do nothing."""
    path = _file()
    if path.exists():
        return
    before = {"sysctls": _sysctls(), "filter": {t: _saved(t) for t in ("nat", "filter")}}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(before, indent=1))


def make_room() -> None:
    """Four nodes watch more files than one machine's default allows."""
    for name, least in AT_LEAST.items():
        path = Path("/proc/sys") / name
        if path.exists() and int(path.read_text()) < least:
            path.write_text(str(least))


def put_back() -> list[str]:
    """Restores the settings, after the engine has ended; a line for each."""
    path = _file()
    if not path.exists():
        return []
    before = json.loads(path.read_text())
    done = []
    for name, value in before["sysctls"].items():
        if _sysctls().get(name) not in (value, None):
            (Path("/proc/sys") / name).write_text(value)
            done.append(f"sysctl {name.replace('/', '.')} is {value} again")
    for table, text in before["filter"].items():
        if text is not None:
            done += [f"iptables -t {table} {' '.join(one)}" for one in undo(text, _saved(table))]
            for words in undo(text, _saved(table)):
                with contextlib.suppress(KindError):  # a chain that another program uses by now
                    command(["iptables", "-w", "-t", table, *words])
    path.unlink()
    return done


def undo(before: str, now: str | None) -> list[list[str]]:
    """The iptables calls that remove the engine's chains from one table, in the format of
    iptables-save. If the chains were there before, another engine uses them, and they stay.
    """
    if now is None or CHAIN.search(before):
        return []
    chains = CHAIN.findall(now)
    rules = [line for line in now.splitlines() if line.startswith("-A ")]
    names = [rf"(-j|-A) {chain}( |$)" for chain in chains] + [rf" {BRIDGE}( |$)"]
    ours = [rule for rule in rules if any(re.search(name, rule) for name in names)]
    calls = [["-D", *rule.split()[1:]] for rule in ours]
    calls += [["-X", chain] for chain in chains]
    policy = re.search(r"^:FORWARD (\S+)", before, re.M)
    if policy and f":FORWARD {policy[1]}" not in now:
        calls.append(["-P", "FORWARD", policy[1]])
    return calls


def _file() -> Path:
    return run_dir() / "before.json"


def _sysctls() -> dict[str, str]:
    paths = {name: Path("/proc/sys") / name for name in SYSCTLS}
    return {name: path.read_text().strip() for name, path in paths.items() if path.exists()}


def _saved(table: str) -> str | None:
    try:
        return command(["iptables-save", "-t", table])
    except KindError:
        return None
