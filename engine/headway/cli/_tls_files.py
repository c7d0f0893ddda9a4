"""Check the files of TLS options for problems that the TLS library doesn't report clearly."""

from __future__ import annotations

from pathlib import Path

from headway.cli._exits import Usage


def check_key(certificate: str | None, key: str | None, option: str) -> None:
    """Raise Usage if a certificate file contains no private key and ``option``, which gives one, is missing."""
    # Don't read pipes: they can be read only once.
    if certificate is None or key is not None or not Path(certificate).is_file():
        return
    try:
        content = Path(certificate).read_bytes()
    except OSError:
        # The code that uses the file reports this.
        return
    if b"-----BEGIN CERTIFICATE" in content and b"PRIVATE KEY-----" not in content:
        raise Usage(f"no key in {certificate}: give {option}")
