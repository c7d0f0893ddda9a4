"""The transport sockets of connections within the mesh, and the secrets that they name.

A certificate is never a part of a listener or a cluster. A socket names a secret, which the proxy gets apart: then a
renewed certificate serves new connections, and none is closed for it.
"""

from __future__ import annotations

from collections.abc import Sequence

from mesh.messages.proxy_state import TransportSocket
from mesh.xds import messages as m
from mesh.xds.resources import packed
from mesh.xds.translation.faults import ADS, Unfit

_NAME = "envoy.transport_sockets.tls"
# No certificate has this name: those of identities begin with spiffe://.
_NOBODY = "nobody"


def inbound(path: str, given: TransportSocket) -> m.TransportSocket:
    """Return the socket of a filter chain. It takes clients with a certificate of the mesh, and no others."""
    mesh = given.inbound_mesh
    if mesh is None:
        raise Unfit(f"{path}.inbound_mesh is missing: a listener takes connections of the mesh only")
    bundles = mesh.validation_context.trust_bundle_peer_name_keys if mesh.validation_context is not None else []
    if len(bundles) != 1:
        raise Unfit(f"{path}.inbound_mesh.validation_context has {len(bundles)} trust bundles: name one, such as local")
    common = _common(mesh.identity_key, bundles[0], m.CertificateValidationContext(), given.alpn_protocols)
    context = m.DownstreamTlsContext(common_tls_context=common, require_client_certificate=True)
    return m.TransportSocket(name=_NAME, typed_config=packed(context))


def outbound(path: str, given: TransportSocket) -> m.TransportSocket:
    """Return the socket of a cluster. It takes servers with one of the given identities: without any, no server."""
    mesh = given.outbound_mesh
    if mesh is None or mesh.validation_context is None:
        raise Unfit(f"{path}.outbound_mesh.validation_context is missing: name the identities of the servers")
    expected = mesh.validation_context
    names = [m.StringMatcher(exact=each) for each in sorted(set(expected.spiffe_ids)) or [_NOBODY]]
    uri = m.SubjectAltNameMatcherSanType.URI
    identities = m.CertificateValidationContext(
        match_typed_subject_alt_names=[m.SubjectAltNameMatcher(san_type=uri, matcher=each) for each in names]
    )
    common = _common(mesh.identity_key, expected.trust_bundle_peer_name_key, identities, given.alpn_protocols)
    return m.TransportSocket(
        name=_NAME, typed_config=packed(m.UpstreamTlsContext(common_tls_context=common, sni=mesh.sni))
    )


def _common(
    identity: str, bundle: str, expected: m.CertificateValidationContext, alpn: Sequence[str]
) -> m.CommonTlsContext:
    roots = m.SdsSecretConfig(name=roots_name(bundle), sds_config=ADS)
    return m.CommonTlsContext(
        tls_certificate_sds_secret_configs=[m.SdsSecretConfig(name=leaf_name(identity), sds_config=ADS)],
        combined_validation_context=m.CommonTlsContextCombinedCertificateValidationContext(
            default_validation_context=expected, validation_context_sds_secret_config=roots
        ),
        alpn_protocols=list(alpn),
    )


def leaf_name(identity_key: str) -> str:
    """Return the name of the secret with the certificate of an identity."""
    return f"leaf:{identity_key}"


def roots_name(peer: str) -> str:
    """Return the name of the secret with the roots of a peer."""
    return f"roots:{peer}"


def leaf_secret(identity_key: str, chain: str, key: str) -> m.Secret:
    """Return the secret with a certificate and its key, both in PEM."""
    certificate = m.TlsCertificate(
        certificate_chain=m.DataSource(inline_string=chain), private_key=m.DataSource(inline_string=key)
    )
    return m.Secret(name=leaf_name(identity_key), tls_certificate=certificate)


def roots_secret(peer: str, roots: Sequence[str]) -> m.Secret:
    """Return the secret with roots in PEM."""
    trusted = m.DataSource(inline_string="".join(each if each.endswith("\n") else f"{each}\n" for each in roots))
    return m.Secret(name=roots_name(peer), validation_context=m.CertificateValidationContext(trusted_ca=trusted))
