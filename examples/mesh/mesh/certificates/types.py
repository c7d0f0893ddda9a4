"""The types of the certificate authority."""

from __future__ import annotations

import datetime
from typing import Final, NamedTuple

from catalog.checks.faults import Faults, refusing
from headway import Hooks, Resource, ResourceType, Scope
from headway.resource import quoted
from mesh.certificates.messages import CertificateAuthority, TrustBundle, TrustReport

NAME: Final = "mesh"
"""The name of the authority, and of its roots."""

_LONGEST: Final = datetime.timedelta(days=36_500)
_SHORTEST: Final = datetime.timedelta(seconds=1)
_YEAR: Final = datetime.timedelta(days=365)
_ROTATION: Final = 200
_SHARE: Final = 10
"""A root lives at least this many times as long as a leaf, and as the time until it is trusted."""


class Settings(NamedTuple):
    """The settings of an authority, with the defaults."""

    rotation: str
    leaf_lifetime: datetime.timedelta
    root_lifetime: datetime.timedelta
    trusted_after: datetime.timedelta
    removed_after: datetime.timedelta

    @classmethod
    def of(cls, data: CertificateAuthority) -> Settings:
        """Return the settings, with a default for each time that is left out."""
        leaf = data.leaf_lifetime or datetime.timedelta(hours=72)
        return cls(
            rotation=data.rotation,
            leaf_lifetime=leaf,
            root_lifetime=data.root_lifetime or 10 * _YEAR,
            trusted_after=data.trusted_after or datetime.timedelta(hours=1),
            removed_after=data.removed_after or 2 * leaf,
        )


def authority(resource: Resource[CertificateAuthority]) -> Faults:
    """Yield the faults of an authority."""
    if resource.name != NAME:
        yield f"name is {quoted(resource.name)}: there is one authority, and its name is {NAME!r}"
    data = resource.data
    if len(data.rotation) > _ROTATION:
        yield f"data.rotation has {len(data.rotation)} characters: it may have {_ROTATION}, such as '2026-03-04'"
    given = Settings.of(data)
    ends = {
        "leaf_lifetime": (_SHORTEST, _YEAR),
        "root_lifetime": (_SHARE * max(given.leaf_lifetime, given.trusted_after), _LONGEST),
        "trusted_after": (_SHORTEST, _LONGEST),
        # A proxy without a connection may have a leaf of the old root until it ends.
        "removed_after": (given.leaf_lifetime, _LONGEST),
    }
    for field, (least, most) in ends.items():
        value = getattr(given, field)
        if not least <= value <= most:
            seconds = [f"{each.total_seconds():.15g} s" for each in (value, least, most)]
            yield "data.{} is {}: it must be from {} to {}".format(field, *seconds)


CERTIFICATE_AUTHORITY: Final = ResourceType(
    "certificates",
    "v1",
    "CertificateAuthority",
    CertificateAuthority,
    scope=Scope.CLUSTER,
    hooks=Hooks(validate=refusing(authority)),
)
TRUST_BUNDLE: Final = ResourceType("certificates", "v1", "TrustBundle", TrustBundle, scope=Scope.CLUSTER)
TRUST_REPORT: Final = ResourceType("certificates", "v1", "TrustReport", TrustReport, scope=Scope.CLUSTER)
