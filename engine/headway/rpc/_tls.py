"""TLS contexts that speak HTTP/2: for a server, for a client, and where both must show a certificate."""

from __future__ import annotations

import ssl
from os import PathLike

from headway._private_files import check_secret

File = str | PathLike[str]


def server_tls(certificate: File, key: File | None = None, *, client_ca: File | None = None) -> ssl.SSLContext:
    """For a server. With ``client_ca`` a client must show a certificate that one of its authorities has signed.

    Raises PermissionError when other users can read the key, which may stand in the certificate's file.
    """
    check_secret(key or certificate)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=client_ca)
    context.load_cert_chain(certificate, key)
    if client_ca is not None:
        context.verify_mode = ssl.CERT_REQUIRED
    return speaking_http2(context)


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
