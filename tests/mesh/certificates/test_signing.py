"""Names, roots and leaves: facts LC-1 and LC-2."""

from __future__ import annotations

import datetime
import ssl

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509 import verification
from cryptography.x509.oid import ExtendedKeyUsageOID

from headway.errors import InvalidArgument
from mesh.certificates import IdentityKey, in_memory
from mesh.certificates.names import check_trust_domain, spiffe_id
from mesh.certificates.signing import Leaf, Signer, fingerprint_of
from mesh.proxies.names import MESH, Mesh
from tests.mesh.certificates.handshakes import shake

NOW = datetime.datetime.now(datetime.UTC).replace(microsecond=0)
HOUR = datetime.timedelta(hours=1)
WEB = "spiffe://cluster.local/ap/default/ns/shop/identity/web"
API = "spiffe://cluster.local/ap/default/ns/shop/identity/api"


def root(lifetime: datetime.timedelta = 100 * HOUR) -> Signer:
    return Signer.new("cluster.local", now=NOW, lifetime=lifetime)


def leaf(signer: Signer, identity: str = WEB) -> Leaf:
    return signer.leaf(identity, now=NOW, lifetime=HOUR)


def test_lc1_name_has_the_tenancy_and_the_identity() -> None:
    assert spiffe_id(MESH, IdentityKey("default", "shop", "web")) == WEB


@pytest.mark.parametrize("bad", [".", "..", "a/b", "a?b", "a b", "ü", "a\n", "a%2f", "w" * 64])
@pytest.mark.parametrize("part", IdentityKey._fields)
def test_lc1_part_that_could_mean_another_identity_is_refused(part: str, bad: str) -> None:
    key = IdentityKey("default", "shop", "web")._replace(**{part: bad})
    with pytest.raises(InvalidArgument, match=part):
        spiffe_id(MESH, key)


@pytest.mark.parametrize("bad", ["", "Cluster.local", "a/b", "x" * 256])
def test_lc1_trust_domain_is_checked(bad: str) -> None:
    with pytest.raises(ValueError, match="trust_domain"):
        check_trust_domain(Mesh(trust_domain=bad))
    with pytest.raises(ValueError, match="trust_domain"):
        in_memory(Mesh(trust_domain=bad))


def test_lc2_leaf_has_one_uri_and_a_key_of_its_own_and_only_the_usages_of_tls() -> None:
    signer = root()
    made = leaf(signer)
    parsed = x509.load_pem_x509_certificate(made.chain.encode())
    names = parsed.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    assert list(names.value) == [x509.UniformResourceIdentifier(WEB)]
    assert names.critical
    assert parsed.subject.rfc4514_string() == ""
    key = serialization.load_pem_private_key(made.key.encode(), None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    assert isinstance(key.curve, ec.SECP256R1)
    assert key.public_key() == parsed.public_key()
    assert leaf(signer).key != made.key
    usage = parsed.extensions.get_extension_for_class(x509.KeyUsage).value
    assert usage.digital_signature
    assert not usage.key_cert_sign
    assert not parsed.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    extended = parsed.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert set(extended) == {ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH}
    assert parsed.not_valid_after_utc == made.expires == NOW + HOUR


def test_root_may_sign_leaves_and_no_other_authority() -> None:
    parsed = x509.load_pem_x509_certificate(root().certificate.encode())
    constraints = parsed.extensions.get_extension_for_class(x509.BasicConstraints)
    assert (constraints.value.ca, constraints.value.path_length, constraints.critical) == (True, 0, True)
    assert parsed.extensions.get_extension_for_class(x509.KeyUsage).value.key_cert_sign


def test_leaf_ends_no_later_than_its_root() -> None:
    assert leaf(root(HOUR / 2)).expires == NOW + HOUR / 2


def test_chain_verifies_with_another_verifier_and_only_under_its_root() -> None:
    signer, other = root(), root()
    made = x509.load_pem_x509_certificate(leaf(signer).chain.encode())

    def verified(trusted: Signer) -> list[x509.GeneralName] | None:
        store = verification.Store([x509.load_pem_x509_certificate(trusted.certificate.encode())])
        found = verification.PolicyBuilder().store(store).time(NOW).build_client_verifier().verify(made, [])
        return found.subjects

    assert verified(signer) == [x509.UniformResourceIdentifier(WEB)]
    with pytest.raises(verification.VerificationError):
        verified(other)


def test_handshake_of_two_leaves_and_not_with_one_of_another_root() -> None:
    signer, other = root(), root()
    trusted = [signer.certificate]
    assert shake(leaf(signer, API), trusted, leaf(signer, WEB), trusted) == (API, WEB)
    with pytest.raises(ssl.SSLError):
        shake(leaf(signer, API), trusted, leaf(other, WEB), trusted)
    both = [other.certificate, signer.certificate]
    assert shake(leaf(signer, API), both, leaf(other, WEB), both) == (API, WEB)


def test_root_is_loaded_with_its_own_key_only() -> None:
    signer, other = root(), root()
    loaded = Signer.load(signer.certificate, signer.private_key())
    assert loaded.fingerprint == signer.fingerprint == fingerprint_of(signer.certificate)
    assert signer.has_signed(leaf(loaded))
    assert not signer.has_signed(leaf(other))
    for certificate, key, match in [
        (signer.certificate, other.private_key(), "key is not that of the root"),
        (signer.certificate, b"-----BEGIN hunter22", "not a private key in PEM"),
        ("nothing", signer.private_key(), "not a certificate in PEM"),
    ]:
        with pytest.raises(ValueError, match=match) as caught:
            Signer.load(certificate, key)
        assert "hunter22" not in repr((caught.value, caught.value.__cause__))


def test_no_repr_has_a_key() -> None:
    signer = root()
    made = leaf(signer)
    assert made.key not in repr(made)
    assert "PRIVATE" not in repr(made) + repr(signer) + repr(vars(signer)["_key"])
