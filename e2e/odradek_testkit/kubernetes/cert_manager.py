"""cert-manager's own controllers next to a control plane of plain processes.

    with CertManager(kubernetes, directory):
        kubernetes.apply(...)               # an Issuer; its Certificates get Secrets from now on

Its definitions are those of its module. There is no webhook: nothing checks an Issuer or a
Certificate when it is written, but for the schema of the definitions.
"""

from __future__ import annotations

import subprocess
from pathlib import Path
from types import TracebackType
from typing import Self

from odradek_testkit.kubernetes.control_plane import ControlPlane
from odradek_testkit.kubernetes.programs import (
    CERT_MANAGER,
    CERT_MANAGER_MODULE,
    module_dir,
    program,
)

STOP_SECONDS = 20.0
NAMESPACE = "cert-manager"


class CertManager:
    """A context manager; the definitions stay when it ends."""

    def __init__(self, kubernetes: ControlPlane, directory: Path) -> None:
        self._kubernetes, self._log = kubernetes, directory / "cert-manager.log"
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        command = [str(program("cert-manager")), str(self._kubernetes.kubeconfig), NAMESPACE]
        definitions = module_dir(CERT_MANAGER_MODULE, CERT_MANAGER) / "deploy" / "crds"
        for path in sorted(definitions.glob("*.yaml")):
            self._kubernetes.kubectl("apply", "--server-side", "--force-conflicts", "-f", str(path))
        self._kubernetes.kubectl("wait", "--for=condition=Established", "crd", "--all")
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                command, stdout=log, stderr=log, stdin=subprocess.DEVNULL
            )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._process is not None
        self._process.terminate()
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def said(self) -> str:
        """Its log; an error if it has ended."""
        assert self._process is not None
        text = self._log.read_text(errors="replace")
        assert self._process.poll() is None, f"cert-manager ended:\n{text[-3000:]}"
        return text
