"""`helm test`: asks every replica of the operator whether it is ready and whether it works.

python leader.py SERVICE PORT REPLICAS; tries for 100 s, then says what it saw last.
"""

import socket
import sys
import time
import urllib.request

SECONDS = 100.0


def ask(host: str, port: int) -> tuple[bool, bool]:
    """Whether it is ready, and whether it is the one that works."""
    url = f"http://{host}:{port}"
    with urllib.request.urlopen(f"{url}/readyz", timeout=5) as answer:
        ready = answer.status == 200
    with urllib.request.urlopen(f"{url}/metrics", timeout=5) as answer:
        lines = answer.read().decode().splitlines()
    return ready, "odradek_operator_leading 1.0" in lines


def look(service: str, port: int, replicas: int) -> str:
    """The problem that was found; empty if there is none."""
    found = socket.getaddrinfo(service, port, socket.AF_UNSPEC, socket.SOCK_STREAM)
    hosts = sorted({str(one[4][0]) for one in found})
    answers = [ask(f"[{host}]" if ":" in host else host, port) for host in hosts]
    ready = sum(is_ready for is_ready, _ in answers)
    leading = sum(leads for _, leads in answers)
    if ready == replicas and leading == 1:
        return ""
    return f"{ready} of {replicas} replicas are ready and {leading} of them work; it should be 1"


def main(service: str, port: int, replicas: int) -> None:
    end = time.monotonic() + SECONDS
    while True:
        try:
            wrong = look(service, port, replicas)
        except OSError as error:
            wrong = f"{service}:{port} does not answer: {error}"
        if not wrong:
            print(f"{replicas} replicas are ready, and one of them works")
            return
        if time.monotonic() > end:
            sys.exit(wrong)
        time.sleep(1)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
