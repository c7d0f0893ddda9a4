"""The rotation of roots under every fault of a simulation."""

from __future__ import annotations

import datetime
import tempfile
from pathlib import Path

import pytest

import headway
from headway.testing import simulation
from headway.testing.simulation import Stored
from mesh.certificates import Leaves
from mesh.certificates.controllers import authority_app
from mesh.certificates.messages import CertificateAuthority
from mesh.certificates.rotation import active
from mesh.certificates.sealing import Sealing
from mesh.certificates.types import CERTIFICATE_AUTHORITY
from tests.mesh.certificates.planes import key_file

SECOND = datetime.timedelta(seconds=1)


with tempfile.TemporaryDirectory() as folder:
    SEALING = Sealing(key_file(Path(folder)))


def app(_: simulation.Process) -> headway.App:
    """Return the app of a process, which has no proxies."""
    return authority_app(SEALING, Leaves(), process="one", all_have=lambda _: True)


def authority(rotation: str) -> headway.Resource[CertificateAuthority]:
    times = CertificateAuthority(
        rotation=rotation, leaf_lifetime=60 * SECOND, trusted_after=60 * SECOND, removed_after=60 * SECOND
    )
    return CERTIFICATE_AUTHORITY.new("mesh", times)


async def root_is_rotated(world: simulation.World) -> None:
    """A rotation is asked for, and its end is waited for."""
    await world.client.apply(authority("a"))
    await world.sleep(20)
    await world.client.apply(authority("b"))
    await world.sleep(200)


def one_root_signs(stored: Stored) -> None:
    """Proxies trust a root before it signs, and for a time after it: it never comes or goes while it signs."""
    for before, after in stored.changed("TrustBundle"):
        if after is None:
            continue
        was, signs = active(before.data), active(after.data)
        assert was is not None
        assert signs is not None
        assert signs.fingerprint in [each.fingerprint for each in before.data.roots]
        assert was.fingerprint in [each.fingerprint for each in after.data.roots]
        assert len(after.data.roots) <= 2


# Each run has other keys and times. Processes renew their reports without end.
MAY_DIFFER = [
    "CertificateAuthority.status.certificate-authority.RotationComplete",
    "TrustBundle.roots",
    "TrustReport.fingerprints",
    "TrustReport.renewed",
]


@pytest.mark.deep
@pytest.mark.timeout(500)
def test_rotation_under_every_fault() -> None:
    simulation.explored(app, seconds=300.0, quiet=None, may_differ=MAY_DIFFER, always=[one_root_signs])(
        root_is_rotated
    )()
