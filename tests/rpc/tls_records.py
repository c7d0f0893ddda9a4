"""A TLS 1.3 client that sends records which Python's ssl does not: empty ones, and endless changes of keys. Pure."""

from __future__ import annotations

import os
import ssl
import tempfile
from collections.abc import Iterator

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand

_HANDSHAKE, _DATA = 0x16, 0x17
# This value also asks the server for new keys.
_KEY_UPDATE = b"\x18\0\0\1\1"


class TlsPeer:
    """The client's side of one connection: a handshake by ssl, then records of its own making."""

    def __init__(self) -> None:
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        # Python's ssl reveals its keys only in a log file.
        descriptor, self._log = tempfile.mkstemp()
        os.close(descriptor)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.set_alpn_protocols(["h2"])
        context.keylog_filename = self._log
        self._tls = context.wrap_bio(self._incoming, self._outgoing)
        self._number = 0

    def handshake(self) -> Iterator[bytes]:
        """Yield bytes to send, and expect received bytes through `feed`, until the handshake is done."""
        while True:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                yield self._outgoing.read()
            else:
                break
        yield self._outgoing.read()
        cipher = self._tls.cipher()
        assert cipher is not None
        small = "AES_128" in cipher[0]
        assert small or "AES_256_GCM" in cipher[0], cipher
        self._hash: hashes.HashAlgorithm = hashes.SHA256() if small else hashes.SHA384()
        self._key_size = 16 if small else 32
        self._use(self._logged("CLIENT_TRAFFIC_SECRET_0"))
        os.unlink(self._log)

    def feed(self, data: bytes) -> None:
        """Accept the bytes that the server sent during the handshake."""
        self._incoming.write(data)

    def sent(self, data: bytes) -> bytes:
        """Return records with the data."""
        return b"".join(self._record(data[at : at + 16_000], _DATA) for at in range(0, len(data), 16_000))

    def empty(self) -> bytes:
        """Return a record without data."""
        return self._record(b"", _DATA)

    def key_update(self) -> bytes:
        """Return a record that announces new keys, which the next one uses."""
        record = self._record(_KEY_UPDATE, _HANDSHAKE)
        self._use(self._expanded("traffic upd", self._hash.digest_size))
        return record

    def _logged(self, name: str) -> bytes:
        with open(self._log) as lines:
            return next(bytes.fromhex(line.split()[2]) for line in lines if line.startswith(name))

    def _use(self, secret: bytes) -> None:
        self._secret = secret
        self._aead = AESGCM(self._expanded("key", self._key_size))
        self._iv = int.from_bytes(self._expanded("iv", 12), "big")
        self._number = 0

    def _expanded(self, label: str, size: int) -> bytes:
        name = f"tls13 {label}".encode()
        info = size.to_bytes(2, "big") + bytes([len(name)]) + name + b"\0"
        return HKDFExpand(self._hash, size, info).derive(self._secret)

    def _record(self, content: bytes, kind: int) -> bytes:
        inner = content + bytes([kind])
        header = bytes([_DATA, 3, 3]) + (len(inner) + 16).to_bytes(2, "big")
        nonce = (self._iv ^ self._number).to_bytes(12, "big")
        self._number += 1
        return header + self._aead.encrypt(nonce, inner, header)
