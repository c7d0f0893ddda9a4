"""TLS contexts for HTTP/2 servers and clients, optionally with client certificates.

If a file of certificates is not as expected, OpenSSL says only that. So the reason is looked for here.
"""

from __future__ import annotations

import datetime
import os
import ssl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike
from typing import Any

from headway.base import check_regular, check_secret, utc_now
from headway.rpc._followed_file import FollowedFile

File = str | PathLike[str]

# The minimum interval in seconds between two checks of the files.
_LOOK = 1.0


class ServerTls(ssl.SSLContext):
    """A server's TLS context that reloads its files: the certificate, the key and the CA certificates for clients.

    Headway's server checks the files when a connection arrives, at most once a second. If one has changed, the next
    handshake uses the new content. If the new files are invalid, such as a certificate that doesn't match its key, the
    old content stays in use. Settings of the context itself, such as ciphers, are kept.

    Create it with `server_tls`.
    """

    def __new__(cls, *_: Any) -> ServerTls:
        return super().__new__(cls, ssl.PROTOCOL_TLS_SERVER)

    def __init__(
        self, certificate: File, key: File | None = None, client_ca: File | None = None, protocol: str = "h2"
    ) -> None:
        self._shown = os.fspath(certificate)
        # The program may change its directory later. Links are not resolved: the renewal may replace one.
        self._certificate = os.path.abspath(certificate)
        self._key = None if key is None else os.path.abspath(key)
        self._client_ca = None if client_ca is None else os.path.abspath(client_ca)
        self._protocol = protocol
        check_secret(key or certificate)
        files = (self._certificate, self._key, self._client_ca)
        self._followed = [FollowedFile(file) for file in files if file is not None]
        self._seen = self._digests()
        self._looked = time.monotonic()
        # Load them into the context itself too, because a server other than Headway's may use it.
        self.verify_flags = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).verify_flags
        _load_chain(self, certificate, key)
        if client_ca is not None:
            with _authorities(client_ca):
                self.load_verify_locations(client_ca)
            self.verify_mode = ssl.CERT_REQUIRED
        speaking(self, protocol)
        self._current: ssl.SSLContext = self

    @property
    def certificate(self) -> str:
        """The path of the certificate's file."""
        return self._shown

    @property
    def problem(self) -> str | None:
        """The reason why clients refuse the certificate that is on disk now: it has expired, or is not valid yet."""
        problem = validity_problem(_text(self._certificate), utc_now())
        return None if problem is None else f"{self.certificate}: {problem}"

    @property
    def current(self) -> ssl.SSLContext:
        """A context with the certificate, the key and the CA certificates that were read last."""
        return self._current

    def renew(self) -> None:
        """Read the files now.

        Raises:
            OSError: a file cannot be used. The content that was read before stays in use.
        """
        self._seen = self._digests()
        for file in (self._certificate, self._key, self._client_ca):
            if file is not None:
                check_regular(file)
        check_secret(self._key or self._certificate)
        # Make a new context. Loading a certificate without its key into the one in use would break it.
        renewed = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        # Never prompt for the password of a key.
        _load_chain(renewed, self._certificate, self._key, password="")
        if self._client_ca is not None:
            with _authorities(self._client_ca):
                renewed.load_verify_locations(self._client_ca)
            renewed.verify_mode = ssl.CERT_REQUIRED
        self._current = speaking(renewed, self._protocol)

    def speaking(self, protocol: str) -> ServerTls:
        """Return a context with the same files that negotiates another protocol by ALPN, such as ``http/1.1``.

        Raises:
            OSError: a file cannot be used.
        """
        other = ServerTls(self._certificate, self._key, self._client_ca, protocol)
        other._shown = self._shown
        return other

    def follow(self) -> bool:
        """Read the files if they have changed, and return True if they have.

        The files are checked at most once a second. After a failure, they are not read again until one changes.

        Raises:
            OSError: a file cannot be used, as for `renew`.
        """
        now = time.monotonic()
        if now - self._looked < _LOOK:
            return False
        self._looked = now
        if self._digests() == self._seen:
            return False
        self.renew()
        return True

    def _digests(self) -> list[bytes | None]:
        """Return digests of the files' contents, for comparison."""
        return [each.digest() for each in self._followed]


def _load_chain(context: ssl.SSLContext, certificate: File, key: File | None, *, password: str | None = None) -> None:
    """Load a certificate chain and its key into a context. Raises OSError, which names the file."""
    shown, with_key = os.fspath(certificate), os.fspath(key or certificate)
    try:
        context.load_cert_chain(certificate, key, password=password)
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise OSError(
                f"the key in {with_key} is not the key of the certificate in {shown}: "
                "give the key with which the certificate was requested"
            ) from error
        text = _text(certificate)
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=text)
        except (ssl.SSLError, ValueError):
            raise OSError(f"{shown}: {certificate_problem(text)}") from error
        raise OSError(f"{with_key}: {key_problem(_text(with_key))}") from error
    except OSError as error:
        # It does not name the file. It is the key's if the certificate's can be read.
        raise OSError(error.errno, error.strerror, with_key if os.access(certificate, os.R_OK) else shown) from error


@contextmanager
def _authorities(file: File | None) -> Iterator[None]:
    """Explain the error of the block, which loads the certificates of authorities in a file."""
    try:
        yield
    except ssl.SSLError as error:
        raise OSError(f"{os.fspath(file or '')}: {certificate_problem(_text(file))}") from error
    except OSError as error:
        raise OSError(error.errno, error.strerror, os.fspath(file or "")) from error


def _text(file: File | None) -> str:
    """Return the text of a file for an explanation, or an empty one if it cannot be read again."""
    if file is None or not os.path.isfile(file):
        return ""
    try:
        with open(file, encoding="utf-8", errors="replace") as opened:
            return opened.read()
    except OSError:
        return ""


def server_tls(certificate: File, key: File | None = None, *, client_ca: File | None = None) -> ServerTls:
    """Return a server's TLS context with this certificate. If the file is renewed, the new one is used.

    Args:
        certificate: the file with the certificate chain.
        key: the file with the private key. By default the key is in the certificate's file.
        client_ca: the file with CA certificates. If given, a client must have a certificate signed by one of them.

    Raises:
        OSError: a file cannot be used. It is PermissionError if other users can read the key.
    """
    return ServerTls(certificate, key, client_ca)


def client_tls(ca: File | None = None, *, certificate: File | None = None, key: File | None = None) -> ssl.SSLContext:
    """Return a client's TLS context.

    Args:
        ca: the file with the CA certificates to trust. By default the system's are used.
        certificate: the file with the client's own certificate chain.
        key: the file with the private key. By default the key is in the certificate's file.

    Raises:
        OSError: a file cannot be used. It is PermissionError if other users can read the key.
    """
    with _authorities(ca):
        context = ssl.create_default_context(ssl.Purpose.SERVER_AUTH, cafile=ca)
    if certificate is not None:
        check_secret(key or certificate)
        _load_chain(context, certificate, key)
    return speaking_http2(context)


def client_tls_of_text(ca: str) -> ssl.SSLContext:
    """Return a client's TLS context that trusts the CA certificates in a text (PEM), or the system's if it is empty.

    Raises:
        OSError: the text contains no valid certificate.
    """
    if not ca.isascii():
        raise OSError("a character is not ASCII")
    try:
        return speaking_http2(ssl.create_default_context(ssl.Purpose.SERVER_AUTH, cadata=ca or None))
    except ssl.SSLError as error:
        raise OSError(certificate_problem(ca)) from error


def speaking_http2(context: ssl.SSLContext) -> ssl.SSLContext:
    """Configure a context for HTTP/2 and return it."""
    return speaking(context, "h2")


def speaking(context: ssl.SSLContext, protocol: str) -> ssl.SSLContext:
    """Configure a context and return it: negotiate this protocol by ALPN, and require TLS 1.2 or later."""
    context.minimum_version = max(context.minimum_version, ssl.TLSVersion.TLSv1_2)
    context.set_alpn_protocols([protocol])
    return context


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
