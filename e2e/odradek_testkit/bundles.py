"""Reads trust bundles, to compare the CAs in one with those that a test expects."""

from __future__ import annotations

from odradek_operator.security.pki import Certificate, read


def read_bundle(bundle_pem: bytes) -> list[tuple[bytes, Certificate]]:
    """The certificates of a trust bundle, each with its own PEM text."""
    end = b"-----END CERTIFICATE-----"
    parts = [part.strip() + b"\n" + end + b"\n" for part in bundle_pem.split(end)[:-1]]
    return [(part, read(part)) for part in parts]
