"""The messages of the certificate authority. Consul has none: its authority is not a resource."""

from __future__ import annotations

import datetime
from enum import IntEnum

from headway import field, message

_PACKAGE = "headway.mesh.certificates.v1"


class RootState(IntEnum):
    """The part that a root has in a rotation."""

    ROOT_STATE_UNSPECIFIED = 0
    # Proxies trust it, and it does not sign yet.
    ROOT_STATE_ANNOUNCED = 1
    # It signs.
    ROOT_STATE_ACTIVE = 2
    # It signs no more, and proxies trust it still.
    ROOT_STATE_RETIRED = 3


@message(name=f"{_PACKAGE}.CertificateAuthority")
class CertificateAuthority:
    """The settings of the authority, and the request for a rotation.

    Times that are left out have defaults: leaves of 72 hours, roots of 10 years, trusted after 1 hour, and removed
    after twice the time of a leaf.
    """

    # Another value than that of the last rotation asks for a rotation.
    rotation: str = field(1)
    leaf_lifetime: datetime.timedelta | None = field(2)
    root_lifetime: datetime.timedelta | None = field(3)
    # A new root signs at the latest this time after it was announced.
    trusted_after: datetime.timedelta | None = field(4)
    # An old root is removed this time after another one began to sign.
    removed_after: datetime.timedelta | None = field(5)


@message(name=f"{_PACKAGE}.Root")
class Root:
    """A root."""

    # The SHA-256 of the certificate.
    fingerprint: str = field(1)
    certificate: str = field(2)
    state: RootState = field(3)
    created: datetime.datetime | None = field(4)
    expires: datetime.datetime | None = field(5)
    # The beginning of its state.
    since: datetime.datetime | None = field(6)
    # The private key, encrypted. Empty in a retired root.
    sealed_key: bytes = field(7, secret=True)


@message(name=f"{_PACKAGE}.TrustBundle")
class TrustBundle:
    """The roots that proxies trust, the oldest first."""

    roots: list[Root] = field(1)
    # The rotation that was begun last.
    rotation: str = field(2)
    # Settings for the processes that sign.
    leaf_lifetime: datetime.timedelta | None = field(3)
    trusted_after: datetime.timedelta | None = field(4)


@message(name=f"{_PACKAGE}.TrustReport")
class TrustReport:
    """The roots that all proxies of one process have accepted."""

    fingerprints: list[str] = field(1)
    renewed: datetime.datetime | None = field(2)
