"""What is wrong with files of certificates, in words: OpenSSL only says that a file is not as it expects. Pure."""

from __future__ import annotations

import datetime
import ssl
from collections.abc import Iterator

_CERTIFICATE = "-----BEGIN CERTIFICATE-----"
_END = "-----END CERTIFICATE-----"
_KEY = "PRIVATE KEY-----"
_SEQUENCE, _UTC_TIME = 0x30, 0x17


def certificate_problem(text: str) -> str:
    """Return what is wrong with a PEM file that OpenSSL does not accept for certificates."""
    if _CERTIFICATE not in text:
        return f"no certificate in PEM form: the file must have {_CERTIFICATE}"
    if text.count(_END) < text.count(_CERTIFICATE):
        return f"the file is cut off: {_END} is missing"
    return "its certificate is damaged: it cannot be decoded"


def key_problem(text: str) -> str:
    """Return what is wrong with a PEM file that OpenSSL does not accept for a private key."""
    begun = text.partition("-----BEGIN ")[2] if _KEY in text else ""
    if not begun:
        return "no private key in PEM form: the file must have -----BEGIN PRIVATE KEY-----"
    if "-----BEGIN ENCRYPTED" in text or "ENCRYPTED" in text.partition(_KEY)[2][:200]:
        return "its private key is encrypted: decrypt it, as with `openssl pkey -in key.pem -out plain.pem`"
    return "its private key is damaged: it cannot be decoded"


def validity_problem(text: str, now: datetime.datetime) -> str | None:
    """Return why clients refuse the first certificate of a PEM text at a time; None if it is valid then, or unknown."""
    begins, ends = text.find(_CERTIFICATE), text.find(_END)
    try:
        since, until = _validity(ssl.PEM_cert_to_DER_cert(text[begins : ends + len(_END)]))
    except (ValueError, IndexError, StopIteration):
        return None
    if now > until:
        return f"its certificate expired on {until:%Y-%m-%d %H:%M} UTC, so clients refuse it: renew it"
    if now < since:
        return f"its certificate is valid only from {since:%Y-%m-%d %H:%M} UTC on, so clients refuse it until then"
    return None


def _validity(der: bytes) -> tuple[datetime.datetime, datetime.datetime]:
    """Return the beginning and the end of the validity of a certificate. Raises ValueError or IndexError."""
    # Certificate, and in it the part that is signed. A version, tagged 0, may come first: then serial number,
    # algorithm, issuer, and validity.
    [(_, whole), *_] = _parts(der)
    [(_, signed), *_] = _parts(whole)
    parts = [each for each in _parts(signed) if each[0] != 0xA0]
    tag, validity = parts[3]
    if tag != _SEQUENCE:
        raise ValueError("no validity")
    since, until = (_time(*each) for each in _parts(validity))
    return since, until


def _parts(der: bytes) -> Iterator[tuple[int, bytes]]:
    """Return the tags and the contents of the elements in a DER encoding."""
    at = 0
    while at < len(der):
        tag, size = der[at], der[at + 1]
        at += 2
        if size & 0x80:
            count = size & 0x7F
            size = int.from_bytes(der[at : at + count], "big")
            at += count
        yield tag, der[at : at + size]
        at += size


def _time(tag: int, text: bytes) -> datetime.datetime:
    digits = text.decode("ascii")
    if tag == _UTC_TIME:
        # RFC 5280: years from 50 on are of the last century.
        digits = ("19" if digits >= "50" else "20") + digits
    return datetime.datetime.strptime(digits, "%Y%m%d%H%M%SZ").replace(tzinfo=datetime.UTC)
