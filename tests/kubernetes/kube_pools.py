"""The app of the run machines with its types in a cluster, its witness there, and its users."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager
from typing import Any

import httpx
from typing_extensions import override

import headway
from headway import kubernetes
from headway.cache import CacheReader
from headway.client import client_error
from headway.errors import HeadwayError, OutcomeUnknown
from headway.events import RunStarted
from headway.kubernetes._crd import crd_of
from headway.kubernetes._objects import resource_of
from headway.kubernetes._types import KubernetesType
from headway.resource import ResourceType
from headway.rpc import Metadata
from headway.testing import Call, ScriptedChannel
from headway.testing.history import Fact, WriteAnswered
from headway.testing.history._facts import delivered_resource
from tests.helpers.contract import Witness
from tests.helpers.kube_server import KubeServer
from tests.helpers.pools import PoolsApp
from tests.kubernetes.etcd_record import GROUP, PATIENCE, EtcdRecord

FINALIZER = "tests.headway.dev/held"
_CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_WRITES = frozenset(("Write", "WriteStatus", "Delete"))


class KubePools(PoolsApp):
    """A `PoolsApp` whose pools, members and summaries are custom resources, in the namespace ``default``."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        # Users change the summaries, too, and own what they have changed.
        self.applying = {"force": True}

    @override
    def declare(self, kind: str, payload: type[Any]) -> ResourceType[Any]:
        return kubernetes.resource(self.app, GROUP, "v1", kind, payload)

    @property
    def plurals(self) -> dict[str, KubernetesType[Any]]:
        """The types, by their names in paths."""
        return {each.plural: each for each in self.types if isinstance(each, KubernetesType)}


TYPES = KubePools().plurals


def _type_of(_: str, kind: str) -> KubernetesType[Any] | None:
    return next((each for each in TYPES.values() if each.name.kind == kind), None)


class ObservedChannel(ScriptedChannel):
    """A channel to a cluster that notes the calls for a `Witness`. `FaultyApi` has the faults.

    Attributes:
        raised: the number of fences that were raised through it.
    """

    raised = 0

    @override
    async def unary(self, path: str, request: Any, reply_type: type[Any], *, metadata: Metadata | None = None) -> Any:
        method = path.rpartition("/")[2]
        try:
            reply = await self.inner.unary(path, request, reply_type, metadata=metadata)
        except BaseException as error:
            if method in _WRITES and self._is_unknown(error):
                self.unknown.append(getattr(request, "fence", None))
            raise
        if method in _WRITES or method == "Raise":
            self.raised += method == "Raise"
            self.done.append(Call(method, request, reply, None, True))
        return reply

    def _is_unknown(self, error: BaseException) -> bool:
        if not isinstance(error, HeadwayError):
            return True
        return isinstance(client_error(error, write=True, knows_outcomes=False), OutcomeUnknown)

    @override
    def stream(self, path: str, request: Any, *, metadata: Metadata | None = None) -> AbstractAsyncContextManager[Any]:
        if path.endswith("/WatchList") and request.type is not None:
            self.opened.append(((request.type.group, request.type.kind), request.resume_after is not None))
        return self.inner.stream(path, request, metadata=metadata)

    def forget(self) -> None:
        """Forget all calls so far, because the cluster was put back to a backup."""
        self.done.clear()
        self.unknown.clear()
        self.opened.clear()


class KubeWitness(Witness):
    """A `Witness` that compares with the content of etcd, and with the other processes of the program.

    A commit of a cluster has no fence, so it does not check that no write of an earlier run is stored (C3, C8).
    """

    def __init__(
        self,
        pools: KubePools,
        channel: ObservedChannel,
        record: EtcdRecord,
        all: Sequence[Witness],
        saw: Callable[[CacheReader], object],
    ) -> None:
        super().__init__(pools, channel, record)  # type: ignore[arg-type]  # it has what the witness asks for
        self._etcd = record
        self._all = all
        self._saw = saw

    @override
    def report(self, event: object) -> None:
        if isinstance(event, RunStarted):
            self._etcd.catch_up()
        super().report(event)

    @override
    def look(self, cache: CacheReader) -> None:
        self._etcd.catch_up()
        super().look(cache)

    @contextmanager
    @override
    def reconciling(self, rt: headway.Runtime, request: headway.Request) -> Iterator[None]:
        self._etcd.catch_up()
        with self.naming():
            for each in self._all:
                assert each is self or not each.running, f"C7: another process reconciles {each._running}"
        with super().reconciling(rt, request):
            yield

    @override
    def mapping(self, resource: headway.Resource[Any], cache: CacheReader) -> None:
        self._etcd.catch_up()
        super().mapping(resource, cache)

    @override
    def _sees_the_truth(self, cache: CacheReader) -> None:
        self._saw(cache)
        super()._sees_the_truth(cache)

    @override
    def last_changes_were_seen(self) -> None:
        self._etcd.catch_up()
        super().last_changes_were_seen()


def install(kube: KubeServer) -> None:
    """Install the custom resources, and wait until they are served."""
    with kube.client() as client:
        for type in TYPES.values():
            assert type.crd is not None
            names, version = type.crd
            made = client.post(
                _CRDS, content=json.dumps(crd_of(names, [version])), headers={"Content-Type": "application/json"}
            )
            assert made.status_code in (201, 409), made.text
        for plural in TYPES:
            while not client.get(_path(plural)).is_success:
                time.sleep(0.1)


def _path(plural: str, name: str = "") -> str:
    return f"/apis/{GROUP}/v1/namespaces/default/{plural}" + (f"/{name}" if name else "")


class Users:
    """The users of a `KubePools`, who write its objects by plain HTTP.

    Args:
        scoped: members get the labels of a scoped app.
        record: called with each write of an object, as a fact of a history.
    """

    def __init__(self, client: httpx.Client, *, scoped: bool, record: Callable[[Fact], object]) -> None:
        self._client, self._scoped, self._record = client, scoped, record

    def clear(self) -> None:
        """Delete everything."""
        for plural in TYPES:
            for each in self._call("GET", _path(plural)).raise_for_status().json()["items"]:
                self._remove(plural, each["metadata"]["name"])
                self._free(plural, each["metadata"]["name"])

    def free(self) -> None:
        """Remove all finalizers."""
        for plural in TYPES:
            for each in self._call("GET", _path(plural)).raise_for_status().json()["items"]:
                self._free(plural, each["metadata"]["name"])

    def write_others(self, count: int) -> None:
        """Make a number of commits to an object of no type of the program."""
        self._call("POST", "/api/v1/namespaces/default/configmaps", json={"metadata": {"name": "other"}})
        path = "/api/v1/namespaces/default/configmaps/other"
        for number in range(count):
            self._call("PUT", path, json={"metadata": {"name": "other"}, "data": {"number": f"{number}"}})

    def make(self, number: int, operation: str, name: str, member: str) -> None:
        """Make a change, as `pool_changes.make_change` does, or one that only a cluster knows."""
        match operation:
            case "pool":
                self._put("pools", name, {"note": f"{number}"})
            case "no pool":
                self._remove("pools", name)
            case "new pool":
                self._remove("pools", name)
                self._put("pools", name, {"note": f"{number}"})
            case "held pool":
                self._put("pools", name, {"note": f"{number}"}, finalizers=[FINALIZER])
            case "freed pool":
                self._free("pools", name)
            case "member":
                labels = {"counts": "no" if number % 3 == 0 else "yes"} if self._scoped else {"number": f"{number}"}
                self._put("members", member, {"pool": name}, labels=labels)
            case "no member":
                self._remove("members", member)
            case "new member":
                self._remove("members", member)
                self._put("members", member, {"pool": name}, labels={"counts": "yes"})
            case "no summary":
                self._remove("summaries", name)
            case "spoilt summary":
                self._put("summaries", name, {"members": [f"spoilt {number}"]}, only_if_there=True)
            case "labeled summary":
                self._put("summaries", name, {}, only_if_there=True, labels={"other": f"{number}"})
            case "summary without owner":
                self._put("summaries", name, {}, only_if_there=True, ownerReferences=None)
            case _:
                raise AssertionError(operation)

    def _put(self, plural: str, name: str, fields: dict[str, Any], *, only_if_there: bool = False, **meta: Any) -> None:
        for _ in range(20):
            found, sent = self._call("GET", _path(plural, name)), time.monotonic()
            if found.status_code == httpx.codes.NOT_FOUND:
                if only_if_there:
                    return
                body = {
                    "apiVersion": f"{GROUP}/v1",
                    "kind": TYPES[plural].name.kind,
                    "metadata": {"name": name, **meta},
                    **fields,
                }
                made = self._call("POST", _path(plural), json=body)
            else:
                body = found.json()
                if "deletionTimestamp" in body["metadata"]:
                    meta.pop("finalizers", None)
                if "labels" in meta:
                    meta["labels"] = {**body["metadata"].get("labels", {}), **meta["labels"]}
                body["metadata"] |= meta
                made = self._call("PUT", _path(plural, name), json=body | fields)
            if made.is_success:
                self._wrote(plural, body, made, sent)
                return
            # Another writer was first.
            assert made.status_code in (404, 409), made.text

    def _wrote(self, plural: str, body: dict[str, Any], made: httpx.Response, sent: float) -> None:
        type, object, times = TYPES[plural], made.json(), (sent, time.monotonic())
        expected, version = body["metadata"].get("resourceVersion", "0"), object["metadata"]["resourceVersion"]
        if version == expected:
            # Nothing has changed.
            return
        stored = delivered_resource(resource_of(type, object, _type_of))
        at = ("users", type.kind, stored.key, times)
        self._record(WriteAnswered(*at, None, "acknowledged", stored.digest, int(version), stored, int(expected)))

    def _call(self, method: str, path: str, **options: Any) -> httpx.Response:
        """Make a call, again while a server begins or is busy."""
        deadline = time.monotonic() + PATIENCE
        while True:
            answer = self._client.request(method, path, **options)
            busy = answer.status_code >= 500 or answer.status_code == httpx.codes.TOO_MANY_REQUESTS
            if not busy or time.monotonic() > deadline:
                return answer
            time.sleep(0.1)

    def _free(self, plural: str, name: str) -> None:
        patch = {"metadata": {"finalizers": None}}
        headers = {"Content-Type": "application/merge-patch+json"}
        made = self._call("PATCH", _path(plural, name), json=patch, headers=headers)
        assert made.is_success or made.status_code == 404, made.text

    def _remove(self, plural: str, name: str) -> None:
        made = self._call("DELETE", _path(plural, name))
        assert made.is_success or made.status_code == 404, made.text
