"""What is wrong with the files of TLS options, where the TLS library doesn't say it."""

from __future__ import annotations

from pathlib import Path

from headway.cli._exits import Usage


def check_key(certificate: str | None, key: str | None, option: str) -> None:
    """Refuse a certificate without its key: the file has none, and ``option``, which would name one, isn't given."""
    # A pipe can be read only once, and not by this.
    if certificate is None or key is not None or not Path(certificate).is_file():
        return
    try:
        content = Path(certificate).read_bytes()
    except OSError:
        # Who uses the file says so.
        return
    if b"-----BEGIN CERTIFICATE" in content and b"PRIVATE KEY-----" not in content:
        raise Usage(f"no key in {certificate}: give {option}")
