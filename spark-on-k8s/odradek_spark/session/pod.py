"""On Kubernetes, the driver reports its progress in an annotation of its own pod.

The operator reads it there: this needs no port and no Service, and the last report stays when the
driver has ended. A driver may patch pods anyway, because it creates executors. Outside Kubernetes
this does nothing, and a failed request is only logged: it must not stop the pipeline.
"""

from __future__ import annotations

import json
import logging
import os
import ssl
import time
import urllib.request
from pathlib import Path

import msgspec

from odradek_api.pipeline.status import PROGRESS_ANNOTATION, JobStatus

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
EVERY_S = 10.0
TIMEOUT_S = 5.0

log = logging.getLogger(__name__)


class OwnPod:
    def __init__(self, account: Path = ACCOUNT) -> None:
        self._account = account
        self._name = os.environ.get("ODRADEK_POD_NAME", "")
        self._namespace = os.environ.get("ODRADEK_POD_NAMESPACE", "")
        self._host = os.environ.get("KUBERNETES_SERVICE_HOST", "")
        self._port = os.environ.get("KUBERNETES_SERVICE_PORT_HTTPS", "443")
        self._reported_at = -EVERY_S
        self._state = ""

    def report(self, status: JobStatus) -> None:
        """Writes at most every ten seconds, and whenever the state changes."""
        if not (self._name and self._namespace and self._host):
            return
        now = time.monotonic()
        if status.state == self._state and now - self._reported_at < EVERY_S:
            return
        self._reported_at, self._state = now, status.state
        try:
            self._patch(msgspec.json.encode(status).decode())
        except (OSError, ValueError) as error:
            log.warning("could not write the progress annotation: %s", error)

    def _patch(self, text: str) -> None:
        path = f"/api/v1/namespaces/{self._namespace}/pods/{self._name}"
        token = (self._account / "token").read_text()
        request = urllib.request.Request(
            f"https://{self._host}:{self._port}{path}",
            data=json.dumps({"metadata": {"annotations": {PROGRESS_ANNOTATION: text}}}).encode(),
            headers={
                "Authorization": f"Bearer {token}",
                "Content-Type": "application/merge-patch+json",
            },
            method="PATCH",
        )
        trusted = ssl.create_default_context(cafile=str(self._account / "ca.crt"))
        urllib.request.urlopen(request, timeout=TIMEOUT_S, context=trusted).close()
