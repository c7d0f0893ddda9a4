"""The certificates of identities: roots that all proxies trust, and a leaf for each identity.

names      SPIFFE ids
signing    roots and leaves in X.509
leaves     the leaves of one process, and their renewal
sealing    the encryption of the roots' keys in the store
messages, types  the authority and its roots as resources
rotation   from one root to the next, as plain functions
controllers  the rotation on the leader, and the signing in each process
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from mesh.certificates.controllers import certificates as certificates
from mesh.certificates.leaves import LeafLimits as LeafLimits
from mesh.certificates.leaves import Leaves as Leaves
from mesh.certificates.leaves import in_memory as in_memory
from mesh.certificates.names import IdentityKey as IdentityKey
from mesh.certificates.sealing import WrongKeyFile as WrongKeyFile
from mesh.certificates.signing import Leaf as Leaf


class Certificates(Protocol):
    """The certificates of a mesh, for the process that serves its proxies."""

    def roots(self) -> tuple[str, ...]:
        """Return all roots that proxies must trust now, in PEM and in a fixed order; none while they are not known."""
        ...

    async def leaf(self, identity: IdentityKey) -> Leaf:
        """Return a certificate that is valid now. It waits its turn, and never fails because of the rate."""
        ...

    def release(self, identity: IdentityKey) -> None:
        """Forget the certificate of an identity: no proxy here needs it any more."""
        ...

    def subscribe(self, changed: Callable[[IdentityKey | None], None]) -> None:
        """Call ``changed`` with an identity that has a new certificate, or with None when the roots are others."""
        ...
