"""Errors before the first request: settings, certificates, credentials."""


class SecurityError(Exception):
    """Settings, key material or credentials that cannot be used; the text names the setting."""
