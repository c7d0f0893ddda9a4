"""The controller that gives each connected proxy its snapshots, and the extension that serves proxies."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import trio

import headway
from catalog.statuses import write_status
from catalog.types import SERVICE_ENDPOINTS
from headway import predicates
from headway.access import Caller
from headway.engine import Extension, Host
from mesh.certificates import Certificates, IdentityKey
from mesh.control.conditions import EMPTY_LEAF, KEY, NO_LEAF, NO_ROOTS, Problem, answered, completed
from mesh.control.connected import Connected, Proxies
from mesh.control.publishing import Failed, Publishing, endpoints_id, identity_key
from mesh.control.rights import ForCaller
from mesh.messages import ProxyStateTemplate
from mesh.proxies.names import MESH, Mesh
from mesh.types import PROXY_STATE_TEMPLATE
from mesh.xds import Admission, AdsService, Limits

ANSWER_WITHIN = 2.0
"""The seconds after which the status says that a proxy has not answered."""


def _endpoints(template: headway.Resource[ProxyStateTemplate]) -> list[tuple[str, str, str]]:
    ids = map(endpoints_id, template.data.required_endpoints.values())
    return list({id.key for id in ids if id is not None})


BY_ENDPOINTS = headway.indexes.by_many(PROXY_STATE_TEMPLATE, "endpoints", _endpoints)
State = headway.Resource[Any] | None


def proxies(
    certificates: Certificates, mesh: Mesh = MESH, limits: Limits | None = None, connected: Proxies | None = None
) -> Extension:
    """Return the extension of an engine that configures the proxies of its mesh.

    Proxies connect to the address of the API. An engine needs an extension of its own.

    Args:
        certificates: signs for the identities of the proxies.
        mesh: the mesh.
        limits: the limits on connected proxies.
        connected: keeps the connected proxies.
    """
    found = connected or Proxies()
    admission = Admission(limits or Limits())

    def service(_: Host, caller: Caller | None) -> AdsService:
        one = ForCaller(found, caller)
        return AdsService(one, one.authenticate, admission)

    return Extension(apps=[_app(certificates, mesh, found)], services=[service])


def _app(certificates: Certificates, mesh: Mesh, connected: Proxies) -> headway.App:
    app = headway.App("mesh-xds")
    for type in (PROXY_STATE_TEMPLATE, SERVICE_ENDPOINTS):
        app.add_type(type)
    control = Control(certificates, mesh, connected)

    def of_users(old: State, new: State, cache: headway.CacheReader) -> list[headway.ResourceId]:
        """Return the templates of the connected proxies that have clusters with these endpoints."""
        changed = new or old
        users = [] if changed is None else cache.index(BY_ENDPOINTS, changed.id.key)
        return [each.id._replace(uid="") for each in users if each.id in connected]

    @app.controller(
        name="xds",
        manages=PROXY_STATE_TEMPLATE,
        when=predicates.content_changed(),
        watches=[headway.watch(SERVICE_ENDPOINTS, headway.mappers.change(of_users), when=predicates.data_changed())],
        indexes=[BY_ENDPOINTS],
        sources={"proxies": connected.follow, "certificates": control.follow_certificates},
        writes=[PROXY_STATE_TEMPLATE],
        placement="every_process",
        # Each may wait for its certificate.
        concurrency=256,
    )
    async def xds(rt: headway.Runtime, request: headway.Request[ProxyStateTemplate]) -> headway.RequeueAfter | None:
        """Give the proxy of a template its snapshot, if it is connected to this process."""
        return await control.reconcile(rt, request)

    return app


class Control:
    """What the controller does.

    Args:
        certificates: signs for the identities of the proxies.
        mesh: the mesh.
        connected: the proxies of this process.
    """

    def __init__(self, certificates: Certificates, mesh: Mesh, connected: Proxies) -> None:
        self._certificates = certificates
        self._connected = connected
        self._publishing = Publishing(mesh)
        # The identity whose certificate each connected proxy has.
        self._identities: dict[tuple[str, str, str], IdentityKey] = {}
        self._changed: Callable[[IdentityKey | None], None] = lambda _: None
        certificates.subscribe(lambda identity: self._changed(identity))

    async def follow_certificates(self, _: headway.Runtime, enqueue: headway.sources.Enqueue) -> None:
        """Reconcile the templates whose certificate or roots have changed: a source of the controller."""

        def changed(identity: IdentityKey | None) -> None:
            for id in self._connected:
                if identity is None or self._identities.get(id.key) == identity:
                    enqueue(id)

        # Proxies may have gone between two runs of the controller.
        for partition, namespace, name in self._identities:
            enqueue(PROXY_STATE_TEMPLATE.id(name, partition=partition, namespace=namespace))
        self._changed = changed
        try:
            await trio.sleep_forever()
        finally:
            self._changed = lambda _: None

    async def reconcile(
        self, rt: headway.Runtime, request: headway.Request[ProxyStateTemplate]
    ) -> headway.RequeueAfter | None:
        """Give the proxy of a template its snapshot, and write what is known of it into the status."""
        problems: list[Problem] = []
        failed: Failed | None = None
        if rt.resource(request) is not None and request.id in self._connected:
            try:
                problems = await self._publish(rt, request)
            except Failed as error:
                failed, problems = error, [error.problem]
        template, streams = rt.resource(request), self._connected.streams(request.id)
        if template is None or not streams:
            self._forget(request.id)
            return None
        wait = await _report(
            rt, template, streams, problems, waited=any(each.what == "requeue" for each in request.reasons)
        )
        if failed is not None and failed.problem.reason == NO_LEAF:
            raise failed
        return wait

    async def _publish(self, rt: headway.Runtime, request: headway.Request[ProxyStateTemplate]) -> list[Problem]:
        """Publish to the proxy of a template. Return what is missing."""
        template = rt.resource(request)
        assert template is not None
        fixed = self._publishing.fixed(template)
        key = identity_key(fixed.identity)
        self._note_identity(template.id, key)
        if not self._certificates.roots():
            raise Failed(Problem(NO_ROOTS, "the roots of the mesh are not known yet"))
        try:
            leaf = await self._certificates.leaf(key)
        except Exception as error:
            # Its text is for the log: nothing of a certificate authority belongs into a status.
            raise Failed(Problem(NO_LEAF, f"no certificate of {key.name}: {type(error).__name__}")) from error
        if not leaf.chain or not leaf.key:
            raise Failed(Problem(EMPTY_LEAF, f"the certificate of {key.name} is empty"))
        # Everything is read at one time, after the only wait.
        template = rt.resource(request)
        if template is None or self._publishing.fixed(template).identity != fixed.identity:
            return []  # this change reconciles it again
        find, roots = partial(rt.cache.get, SERVICE_ENDPOINTS), self._certificates.roots()
        snapshot, problems = self._publishing.snapshot(self._publishing.fixed(template), find, leaf=leaf, roots=roots)
        for each in self._connected.streams(template.id):
            each.publish(fixed.identity, snapshot)
        return problems

    def _note_identity(self, id: headway.ResourceId, identity: IdentityKey) -> None:
        before = self._identities.get(id.key)
        self._identities[id.key] = identity
        if before is not None and before != identity:
            self._release(before)

    def _forget(self, id: headway.ResourceId) -> None:
        self._publishing.forget(id)
        identity = self._identities.pop(id.key, None)
        if identity is not None:
            self._release(identity)

    def _release(self, identity: IdentityKey) -> None:
        """Forget the certificate of an identity that no connected proxy has."""
        if identity not in self._identities.values():
            self._publishing.forget_secret(identity)
            self._certificates.release(identity)


async def _report(
    rt: headway.Runtime,
    template: headway.Resource[ProxyStateTemplate],
    streams: list[Connected],
    problems: list[Problem],
    *,
    waited: bool,
) -> headway.RequeueAfter | None:
    """Write the status of a template once its proxy has answered, or has not done so for a while.

    Only this process's own proxies cause a write, and never the status: two servers do not undo each other's.
    """
    rejections = sorted({text for each in streams for text in each.rejections()})
    done = completed(problems)
    hoped = [done, answered(rejections, has_answered=True)]
    stored = template.status.get(KEY)
    is_current = stored is not None and stored.observed_generation == template.generation
    if stored is not None and is_current and stored.conditions == hoped:
        return None
    if all(each.has_answered for each in streams):
        await write_status(rt, template, KEY, hoped)
        return None
    for each in streams:
        each.is_awaited = True
    if problems or (waited and not is_current):
        await write_status(rt, template, KEY, [done, answered(rejections, has_answered=False)])
        return None
    return None if waited else headway.requeue_after(ANSWER_WITHIN)
