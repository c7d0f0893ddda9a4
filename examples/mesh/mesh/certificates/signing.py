"""Root certificates, and the leaves that they sign: X.509 with keys on the curve P-256."""

from __future__ import annotations

import datetime
from dataclasses import dataclass, field

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

SKEW = datetime.timedelta(minutes=5)
"""The difference of clocks within which a new certificate is valid everywhere."""

_PEM = serialization.Encoding.PEM


@dataclass(frozen=True)
class Leaf:
    """A certificate of an identity, and its key.

    Attributes:
        identity: the SPIFFE id, which is the only name in the certificate.
        chain: the certificate, in PEM.
        key: the private key, in PEM.
        expires: the end of the certificate.
    """

    identity: str
    chain: str
    key: str = field(repr=False)
    expires: datetime.datetime


class Signer:
    """A root certificate with its key.

    Attributes:
        certificate: the root certificate, in PEM.
        fingerprint: the SHA-256 of the certificate, in hex.
        expires: the end of the certificate.
    """

    def __init__(self, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> None:
        self._parsed = certificate
        self._key = key
        self.certificate = certificate.public_bytes(_PEM).decode()
        self.fingerprint = fingerprint(certificate)
        self.expires = certificate.not_valid_after_utc

    @classmethod
    def new(cls, trust_domain: str, *, now: datetime.datetime, lifetime: datetime.timedelta) -> Signer:
        """Make a root certificate of a trust domain, with a new key."""
        key = ec.generate_private_key(ec.SECP256R1())
        serial = x509.random_serial_number()
        # A verifier finds the issuer of a leaf by this name, so each root has another.
        common_name = x509.NameAttribute(NameOID.COMMON_NAME, f"Mesh root {serial:x}"[:64])
        name = x509.Name([common_name])
        subject_key = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
        made = _builder(name, name, key.public_key(), serial, now - SKEW, now + lifetime)
        extensions: list[tuple[x509.ExtensionType, bool]] = [
            (x509.BasicConstraints(ca=True, path_length=0), True),
            (_usage(signs_certificates=True), True),
            (subject_key, False),
            (x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(subject_key), False),
            (x509.SubjectAlternativeName([x509.UniformResourceIdentifier(f"spiffe://{trust_domain}")]), False),
        ]
        for extension, is_critical in extensions:
            made = made.add_extension(extension, is_critical)
        return cls(made.sign(key, hashes.SHA256()), key)

    @classmethod
    def load(cls, certificate: str, key: bytes) -> Signer:
        """Return a root from its certificate and its key, both as PEM.

        Raises:
            ValueError: one of them is invalid, or the key is that of another certificate. The text has no key in it.
        """
        try:
            parsed = x509.load_pem_x509_certificate(certificate.encode())
        except ValueError as error:
            raise ValueError("the certificate of the root is not a certificate in PEM") from error
        try:
            loaded = serialization.load_pem_private_key(key, password=None)
        except (TypeError, ValueError):
            # Its cause may quote the key.
            raise ValueError("the key of the root is not a private key in PEM") from None
        if not isinstance(loaded, ec.EllipticCurvePrivateKey) or loaded.public_key() != parsed.public_key():
            raise ValueError(f"the key is not that of the root {fingerprint(parsed)[:12]}")
        return cls(parsed, loaded)

    def private_key(self) -> bytes:
        """Return the key in PEM, to be sealed."""
        return _private(self._key)

    def leaf(self, identity: str, *, now: datetime.datetime, lifetime: datetime.timedelta) -> Leaf:
        """Make a certificate of a SPIFFE id, with a new key. It ends no later than the root."""
        key = ec.generate_private_key(ec.SECP256R1())
        expires = min(now + lifetime, self.expires)
        begins = max(now - SKEW, self._parsed.not_valid_before_utc)
        serial = x509.random_serial_number()
        made = _builder(x509.Name([]), self._parsed.subject, key.public_key(), serial, begins, expires)
        issuer = self._parsed.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
        extensions: list[tuple[x509.ExtensionType, bool]] = [
            # Critical, because the subject is empty.
            (x509.SubjectAlternativeName([x509.UniformResourceIdentifier(identity)]), True),
            (x509.BasicConstraints(ca=False, path_length=None), True),
            (_usage(signs_certificates=False), True),
            (x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH]), False),
            (x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(issuer), False),
        ]
        for extension, is_critical in extensions:
            made = made.add_extension(extension, is_critical)
        signed = made.sign(self._key, hashes.SHA256())
        chain = signed.public_bytes(_PEM).decode()
        return Leaf(identity, chain, _private(key).decode(), signed.not_valid_after_utc)

    def has_signed(self, leaf: Leaf) -> bool:
        """Return True if a leaf is of this root."""
        try:
            x509.load_pem_x509_certificate(leaf.chain.encode()).verify_directly_issued_by(self._parsed)
        except (ValueError, InvalidSignature):
            return False
        return True


def fingerprint(certificate: x509.Certificate) -> str:
    """Return the SHA-256 of a certificate, in hex."""
    return certificate.fingerprint(hashes.SHA256()).hex()


def fingerprint_of(pem: str) -> str:
    """Return the SHA-256 of a certificate in PEM, in hex."""
    return fingerprint(x509.load_pem_x509_certificate(pem.encode()))


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey,
    serial: int,
    begins: datetime.datetime,
    expires: datetime.datetime,
) -> x509.CertificateBuilder:
    return x509.CertificateBuilder(
        issuer_name=issuer,
        subject_name=subject,
        public_key=key,
        serial_number=serial,
        not_valid_before=begins,
        not_valid_after=expires,
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _private(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(_PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
