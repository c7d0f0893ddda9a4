"""Certificates of webhooks, made here and kept in a Secret, so that all processes of a program have the same."""

from __future__ import annotations

import base64
import datetime
import ipaddress
import ssl
from collections.abc import Collection
from typing import Any, NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from headway.base import utc_now
from headway.errors import AlreadyExists, Conflict, NotFound
from headway.kubernetes._credentials import load_certificate
from headway.kubernetes._http import ApiServer

_SKEW = datetime.timedelta(minutes=5)
"""The difference of clocks within which a new certificate is valid everywhere."""

_ATTEMPTS = 8
_FILES = (("tls.crt", "tls.key"), ("old.crt", "old.key"))
"""The certificate and the key in use, or about to be, and those before them."""


class Pair(NamedTuple):
    """A certificate that signs itself, and its key, both as PEM.

    Attributes:
        context: what a server needs to use them.
    """

    certificate: bytes
    key: bytes
    parsed: x509.Certificate
    context: ssl.SSLContext

    @property
    def names(self) -> set[str]:
        """The names of the hosts that it is for."""
        found = self.parsed.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        addresses = found.get_values_for_type(x509.IPAddress)
        return {*found.get_values_for_type(x509.DNSName), *map(str, addresses)}

    def ends_in(self, share: float) -> datetime.timedelta:
        """Return the time until a share of its life is over."""
        begin, end = self.parsed.not_valid_before_utc + _SKEW, self.parsed.not_valid_after_utc
        return begin + (end - begin) * share - utc_now()

    @property
    def is_valid(self) -> bool:
        """True until it expires."""
        return self.ends_in(1) > datetime.timedelta()


def new_pair(names: Collection[str], life: datetime.timedelta) -> Pair:
    """Make a certificate for some names of hosts."""
    key, now = ec.generate_private_key(ec.SECP256R1()), utc_now()
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "webhooks of headway")])
    made = x509.CertificateBuilder(
        issuer_name=name,
        subject_name=name,
        public_key=key.public_key(),
        serial_number=x509.random_serial_number(),
        not_valid_before=now - _SKEW,
        not_valid_after=now + life,
    )
    extensions: dict[x509.ExtensionType, bool] = {
        x509.SubjectAlternativeName([_general(each) for each in sorted(names)]): False,
        x509.BasicConstraints(ca=True, path_length=0): True,
        x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]): False,
        x509.SubjectKeyIdentifier.from_public_key(key.public_key()): False,
    }
    for extension, critical in extensions.items():
        made = made.add_extension(extension, critical)
    form = serialization.PrivateFormat.PKCS8
    return _pair(
        made.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM),
        key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption()),
    )


def _general(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _pair(certificate: bytes, key: bytes) -> Pair:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    load_certificate(context, certificate.decode(), key.decode())
    context.set_alpn_protocols(["http/1.1"])
    return Pair(certificate, key, x509.load_pem_x509_certificate(certificate), context)


class SharedPairs:
    """The pairs in the Secret of a program.

    Args:
        host: the name of the host that API servers call.
        life: how long a certificate is valid. It is replaced after two thirds of it.
    """

    def __init__(self, server: ApiServer, namespace: str, name: str, host: str, life: datetime.timedelta) -> None:
        self._call = server.call
        self._path = f"/api/v1/namespaces/{namespace}/secrets"
        self._name = name
        self._host = host
        self._life = life

    async def read(self, used: Pair | None = None) -> list[Pair]:
        """Return the valid pairs, newest first. Make a new one if there is none, or if it is time for it.

        Args:
            used: the pair in use. Somebody may have deleted or damaged it: it stays until another one has its place.
        """
        for _ in range(_ATTEMPTS):
            try:
                found = await self._call("GET", f"{self._path}/{self._name}")
            except NotFound:
                found = None
            stored = pairs = _pairs_of(found or {})
            kept = [used] if used is not None and used.is_valid else stored[:1]
            if not {each.certificate for each in kept} <= {each.certificate for each in stored}:
                pairs = [*stored[:1], *kept]
            # Another address of this program keeps its name.
            names = {self._host, *(pairs[0].names if pairs else ())}
            if not stored or names != pairs[0].names or pairs[0].ends_in(2 / 3) <= datetime.timedelta():
                pairs = [new_pair(names, self._life), *kept]
            elif pairs is stored:
                return pairs
            try:
                await self._store(found, pairs)
            except (AlreadyExists, Conflict):
                # Another process was first.
                continue
            return pairs
        raise Conflict(f"Secret {self._name} kept being changed by others")

    async def _store(self, found: dict[str, Any] | None, pairs: list[Pair]) -> None:
        data = {
            file: base64.b64encode(content).decode()
            for files, pair in zip(_FILES, pairs, strict=False)
            for file, content in zip(files, pair[:2], strict=True)
        }
        meta = {"name": self._name, "labels": {"app.kubernetes.io/managed-by": "headway"}}
        body = {"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls", "metadata": meta, "data": data}
        if found is None:
            await self._call("POST", self._path, body=body)
        else:
            await self._call("PUT", f"{self._path}/{self._name}", body=found | {"data": data})


def _pairs_of(secret: dict[str, Any]) -> list[Pair]:
    """Return the pairs of a Secret that are valid. What is damaged is left out."""
    data, found = secret.get("data") or {}, []
    for files in _FILES:
        try:
            pair = _pair(*(base64.b64decode(data[file]) for file in files))
            if pair.is_valid and pair.names:
                found.append(pair)
        except (KeyError, ValueError, ssl.SSLError, x509.ExtensionNotFound):
            continue
    return found
