"""The controllers of the authority: one rotates the roots, and one has each process sign with them."""

from __future__ import annotations

import datetime
import os
import secrets
from collections.abc import Callable
from typing import Any, Final

import headway
from catalog.computed import condition, write_computed
from catalog.statuses import content_or_status, write_status
from headway import predicates
from headway.engine import Extension, Host
from mesh.certificates import rotation
from mesh.certificates.leaves import LeafLimits, Leaves, utc_now
from mesh.certificates.messages import CertificateAuthority, Root, TrustBundle, TrustReport
from mesh.certificates.sealing import Sealing, WrongKeyFile
from mesh.certificates.signing import Signer
from mesh.certificates.types import CERTIFICATE_AUTHORITY, NAME, TRUST_BUNDLE, TRUST_REPORT, Settings
from mesh.proxies.names import MESH, Mesh

KEY: Final = "certificate-authority"
"""The key of the status of the authority."""
READABLE: Final = "RootKeyReadable"
"""The type of the condition that says whether the leader's key file opens the key of the root that signs."""
_ASK: Final = 1.0
"""The seconds between two questions whether all proxies have new roots."""
_RENEWALS: Final = 4
"""The times that a report is renewed before it would no longer count."""

AllHave = Callable[[tuple[str, ...]], bool]
State = headway.Resource[Any] | None


def certificates(
    key_file: str | os.PathLike[str],
    *,
    mesh: Mesh = MESH,
    limits: LeafLimits | None = None,
    all_have: AllHave | None = None,
) -> tuple[Leaves, Extension]:
    """Return the certificates of this process, and the extension of its engine that keeps them up to date.

    There are no roots until the resource ``CertificateAuthority`` named ``mesh`` exists.

    Args:
        key_file: the file with the key that encrypts the keys of roots in the store. All processes need an equal one.
        mesh: the mesh.
        limits: what this process may spend on leaves.
        all_have: returns True if all proxies of this process have accepted these roots. Without it a rotation waits
            for the time that the authority states.

    Raises:
        WrongKeyFile: the key file cannot be used.
    """
    leaves = Leaves(mesh, limits)
    app = authority_app(Sealing(key_file), leaves, mesh=mesh, all_have=all_have)

    async def renew(_: Host) -> None:
        await leaves.renew()

    return leaves, Extension(apps=[app], tasks=[renew])


def authority_app(
    sealing: Sealing,
    leaves: Leaves,
    *,
    mesh: Mesh = MESH,
    process: str = "",
    now: Callable[[], datetime.datetime] = utc_now,
    all_have: AllHave | None = None,
) -> headway.App:
    """Return the app with the controllers.

    Args:
        sealing: encrypts the keys of roots.
        leaves: the leaves of this process.
        mesh: the mesh.
        process: the name of this process; by default a random one.
        now: returns the time.
        all_have: as in `certificates`.
    """
    app = headway.App("mesh-certificates")
    for type in (CERTIFICATE_AUTHORITY, TRUST_BUNDLE, TRUST_REPORT):
        app.add_type(type)
    authority = _Authority(sealing, mesh, now)
    signing = _Signing(sealing, leaves, process or f"process-{secrets.token_hex(8)}", now=now, all_have=all_have)

    def to_authority(_: State, __: State, ___: headway.CacheReader) -> list[headway.ResourceId]:
        return [CERTIFICATE_AUTHORITY.id(NAME)]

    def to_bundle(old: State, new: State, _: headway.CacheReader) -> list[headway.ResourceId]:
        """Return the roots if the report of this process has changed."""
        return [TRUST_BUNDLE.id(NAME) for each in (new or old,) if each is not None and each.name == signing.process]

    @app.controller(
        name="certificate-authority",
        manages=CERTIFICATE_AUTHORITY,
        when=content_or_status(KEY),
        watches=[
            headway.watch(TRUST_BUNDLE, headway.mappers.change(to_authority)),
            headway.watch(TRUST_REPORT, headway.mappers.change(to_authority)),
        ],
        writes=[CERTIFICATE_AUTHORITY, TRUST_BUNDLE, TRUST_REPORT],
    )
    async def certificate_authority(
        rt: headway.Runtime, request: headway.Request[CertificateAuthority]
    ) -> headway.RequeueAfter | None:
        """Make the next step of a rotation, and say what it waits for."""
        return await authority.reconcile(rt, rt.resource(request))

    @app.controller(
        name="certificates",
        manages=TRUST_BUNDLE,
        watches=[headway.watch(TRUST_REPORT, headway.mappers.change(to_bundle), when=predicates.data_changed())],
        writes=[TRUST_REPORT],
        placement="every_process",
        # A wrong key file is not seen to change, so the waits between attempts stay short.
        backoff=headway.Backoff(maximum=30),
    )
    async def sign(rt: headway.Runtime, request: headway.Request[TrustBundle]) -> headway.RequeueAfter | None:
        """Have this process sign with the roots, and report which of them its proxies have."""
        return await signing.reconcile(rt, rt.resource(request))

    return app


class _Authority:
    """What the controller of roots does, on the leader."""

    def __init__(self, sealing: Sealing, mesh: Mesh, now: Callable[[], datetime.datetime]) -> None:
        self._sealing, self._mesh, self._now = sealing, mesh, now

    async def reconcile(
        self, rt: headway.Runtime, resource: headway.Resource[CertificateAuthority] | None
    ) -> headway.RequeueAfter | None:
        if resource is None:
            return None  # the roots stay: proxies have leaves of them
        settings, now = Settings.of(resource.data), self._now()
        stored = rt.cache.get(TRUST_BUNDLE, TRUST_BUNDLE.id(NAME))
        reports = rt.cache.list(TRUST_REPORT)

        def make_root() -> Root:
            signer = Signer.new(self._mesh.trust_domain, now=now, lifetime=settings.root_lifetime)
            return rotation.new_root(signer, self._sealing.seal(signer.private_key()), now)

        bundle = TrustBundle() if stored is None else stored.data
        step = rotation.step(bundle, settings, [each.data for each in reports], now, make_root)
        await write_computed(rt, TRUST_BUNDLE.new(NAME, step.bundle))
        for each in reports:
            # The process has ended, or it writes another one.
            if not rotation.is_fresh(each.data, settings.trusted_after, now):
                await rt.client.delete(each, version=each.version)
        await write_status(rt, resource, KEY, [step.condition, self._readable(step.bundle)])
        return None if step.next is None else headway.requeue_after(max(0.0, (step.next - now).total_seconds()))

    def _readable(self, bundle: TrustBundle) -> headway.Condition:
        signing = rotation.active(bundle)
        assert signing is not None
        try:
            load(signing, self._sealing)
        except WrongKeyFile as error:
            return condition(READABLE, False, str(error), "WrongKeyFile")
        return condition(READABLE, True, "", "KeyFileOpensIt")


class _Signing:
    """What the controller of leaves does, in each process."""

    def __init__(
        self,
        sealing: Sealing,
        leaves: Leaves,
        process: str,
        *,
        now: Callable[[], datetime.datetime],
        all_have: AllHave | None,
    ) -> None:
        self._sealing, self._leaves, self.process, self._now = sealing, leaves, process, now
        self._all_have = all_have or (lambda _: False)
        self._signer: Signer | None = None

    async def reconcile(
        self, rt: headway.Runtime, resource: headway.Resource[TrustBundle] | None
    ) -> headway.RequeueAfter | None:
        if resource is None:
            return None
        bundle = resource.data
        trusted_after = bundle.trusted_after or datetime.timedelta(seconds=_ASK)
        renew_after = trusted_after / _RENEWALS
        reported = rt.cache.get(TRUST_REPORT, TRUST_REPORT.id(self.process))
        if reported is None:
            # Before the first proxy has roots from here. So each rotation from then on waits for this process.
            reported = await rt.apply(TRUST_REPORT.new(self.process, TrustReport(renewed=self._now())))
        wrong = None
        try:
            self._load(rotation.active(bundle))
        except WrongKeyFile as error:
            wrong = error
        roots = tuple(each.certificate for each in bundle.roots)
        self._leaves.trust(roots, self._signer, bundle.leaf_lifetime or datetime.timedelta(seconds=_ASK))
        # A proxy that connects from now on has these roots. So those that are connected now decide.
        await self._report(rt, bundle, reported.data, renew_after)
        if wrong is not None:
            raise wrong
        seconds = renew_after.total_seconds()
        return headway.requeue_after(min(_ASK, seconds) if rotation.announced(bundle) else seconds)

    def _load(self, signing: Root | None) -> None:
        if signing is not None and (self._signer is None or self._signer.fingerprint != signing.fingerprint):
            self._signer = None
            self._signer = load(signing, self._sealing)

    async def _report(
        self, rt: headway.Runtime, bundle: TrustBundle, reported: TrustReport, renew_after: datetime.timedelta
    ) -> None:
        fingerprints = [each.fingerprint for each in bundle.roots]
        following = rotation.announced(bundle)
        having = [each for each in fingerprints if each in reported.fingerprints]
        if self._all_have(self._leaves.roots()) and (following is None or self._can_use(following)):
            having = fingerprints
        now, renewed = self._now(), reported.renewed
        if having != reported.fingerprints or renewed is None or now >= renewed + renew_after:
            await rt.apply(TRUST_REPORT.new(self.process, TrustReport(fingerprints=having, renewed=now)))

    def _can_use(self, root: Root) -> bool:
        """Return True if this process could sign with a root: if not, a rotation must not rely on it."""
        try:
            load(root, self._sealing)
        except WrongKeyFile:
            return False
        return True


def load(root: Root, sealing: Sealing) -> Signer:
    """Return a root that can sign.

    Raises:
        WrongKeyFile: its key was sealed with another key file, or is not its key.
    """
    key = sealing.unseal(bytes(root.sealed_key))
    try:
        return Signer.load(root.certificate, key)
    except ValueError as error:
        raise WrongKeyFile(f"what the key file {sealing.path} opens is not the key of the root: {error}") from error
