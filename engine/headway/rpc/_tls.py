"""TLS contexts that speak HTTP/2: for a server, for a client, and where both must show a certificate."""

from __future__ import annotations

import os
import ssl
import time
from os import PathLike
from typing import Any

from headway._private_files import check_secret

File = str | PathLike[str]

# Seconds from one look at the files to the next.
_LOOK = 1.0


class ServerTls(ssl.SSLContext):
    """A server's TLS context that follows its files: the certificate, the key and the authorities of clients.

    Headway's server looks at the files when a connection comes, at most once a second. When one has changed, the
    next handshake uses the new content. Files that cannot be used, such as a certificate without its key, change
    nothing. Settings of the context itself, such as ciphers, stay.

    Made by `server_tls`.
    """

    def __new__(cls, *_: Any) -> ServerTls:
        return super().__new__(cls, ssl.PROTOCOL_TLS_SERVER)

    def __init__(self, certificate: File, key: File | None = None, client_ca: File | None = None) -> None:
        self._certificate, self._key, self._client_ca = certificate, key, client_ca
        check_secret(key or certificate)
        self._seen = self._signature()
        self._looked = time.monotonic()
        # The context itself has them too: a server of another kind may use it.
        self.verify_flags = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).verify_flags
        self.load_cert_chain(certificate, key)
        if client_ca is not None:
            self.load_verify_locations(client_ca)
            self.verify_mode = ssl.CERT_REQUIRED
        speaking_http2(self)
        self._current: ssl.SSLContext = self

    @property
    def certificate(self) -> str:
        """The file of the certificate."""
        return os.fspath(self._certificate)

    @property
    def current(self) -> ssl.SSLContext:
        """A context with the certificate, the key and the authorities that were read last."""
        return self._current

    def renew(self) -> None:
        """Read the files now. Raises OSError if they cannot be used; the content that was read before stays in use."""
        self._seen = self._signature()
        check_secret(self._key or self._certificate)
        # A whole new context: loading half a pair into the one in use would break it.
        renewed = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=self._client_ca)
        # A server cannot ask a person for the password of a key.
        renewed.load_cert_chain(self._certificate, self._key, password="")
        if self._client_ca is not None:
            renewed.verify_mode = ssl.CERT_REQUIRED
        self._current = speaking_http2(renewed)

    def follow(self) -> bool:
        """Read the files if they have changed, and return True if they have. Raises OSError as `renew` does.

        A failure is not tried again until a file changes. It looks at the files at most once a second.
        """
        now = time.monotonic()
        if now - self._looked < _LOOK:
            return False
        self._looked = now
        if self._signature() == self._seen:
            return False
        self.renew()
        return True

    def _signature(self) -> list[tuple[int, int, int] | None]:
        """Return the stamps of the files, which differ when a file has changed."""
        return [_stamp(file) for file in (self._certificate, self._key, self._client_ca) if file is not None]


def _stamp(file: File) -> tuple[int, int, int] | None:
    try:
        found = os.stat(file)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ino, found.st_size


def server_tls(certificate: File, key: File | None = None, *, client_ca: File | None = None) -> ServerTls:
    """Return the context of a server that shows this certificate, also when the file is renewed while it runs.

    With ``client_ca`` a client must show a certificate that one of its authorities has signed. Raises OSError if a
    file cannot be used, such as PermissionError when other users can read the key, which may stand in the
    certificate's file.
    """
    return ServerTls(certificate, key, client_ca)


def client_tls(ca: File | None = None, *, certificate: File | None = None, key: File | None = None) -> ssl.SSLContext:
    """For a client: whose signature under the server's certificate it believes, and the certificate it shows.

    Raises PermissionError when other users can read the key, as `server_tls` does.
    """
    context = ssl.create_default_context(ssl.Purpose.SERVER_AUTH, cafile=ca)
    if certificate is not None:
        check_secret(key or certificate)
        context.load_cert_chain(certificate, key)
    return speaking_http2(context)


def speaking_http2(context: ssl.SSLContext) -> ssl.SSLContext:
    """The context as HTTP/2 wants it: the protocol's name agreed on in the handshake, no version before 1.2."""
    context.minimum_version = max(context.minimum_version, ssl.TLSVersion.TLSv1_2)
    context.set_alpn_protocols(["h2"])
    return context
