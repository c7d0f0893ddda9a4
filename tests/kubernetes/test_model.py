"""The model of the API server answers as a real one: random requests on both, and their answers and events compared.

They are others each time. The profile of Hypothesis says how many: HYPOTHESIS_PROFILE=round has 200 times 50 of them.
"""

from __future__ import annotations

import json
import os
import threading
import uuid
from bisect import insort
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import pytest
import trio
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

from headway.errors import HeadwayError, NotFound
from headway.kubernetes._errors import ApiStatus
from headway.kubernetes._http import ApiServer
from headway.testing.kubernetes import ModelCluster, ModelServer
from tests.helpers.kube_server import KubeServer
from tests.kubernetes.conftest import RealServer

APPLY = "application/apply-patch+yaml"
MERGE = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
METADATA = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
NAMES = ("one", "two")
FINALIZERS = ("example.org/first", "example.org/second")
END = "end"


class Kind(NamedTuple):
    """A type whose objects the machine writes."""

    api_version: str
    kind: str
    plural: str
    bodies: st.SearchStrategy[dict[str, Any]]
    status: st.SearchStrategy[dict[str, Any]] | None = None
    scale: bool = False

    def path(self, namespace: str, name: str = "", subresource: str = "") -> str:
        root = "apis" if "/" in self.api_version else "api"
        parts = ["", root, self.api_version, "namespaces", namespace, self.plural, name, subresource]
        return "/".join(parts).rstrip("/")


def some(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Objects that have some of the fields."""
    return st.fixed_dictionaries({}, optional=fields)


def listed(key: str, values: tuple[Any, ...], **fields: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Any]]:
    """Lists of objects with different keys, which have some of the fields."""
    item = st.builds(lambda one, more: {key: one, **more}, st.sampled_from(values), some(**fields))
    return st.lists(item, max_size=3, unique_by=lambda each: each[key])


words = st.sampled_from(["a", "b"])
numbers = st.integers(-1, 3)
secrets = some(stringData=some(x=words, y=words), data=some(y=st.just("YQ=="), z=st.just("YQ==")))
config_maps = some(data=some(x=words, y=words, z=words))
leases = some(spec=some(holderIdentity=words, leaseDurationSeconds=numbers, leaseTransitions=numbers))
containers = listed(
    "name",
    ("web", "log", "job"),
    image=st.sampled_from(["web:1", "web"]),
    env=listed("name", ("A", "B"), value=words),
    ports=listed("containerPort", (80, 81), protocol=st.sampled_from(["TCP", "UDP"])),
    args=st.lists(words, max_size=2),
)


def deployment(replicas: dict[str, Any], pod: dict[str, Any], containers: list[dict[str, Any]]) -> dict[str, Any]:
    made = [{"image": "web:2", **each} for each in containers]
    template = {"metadata": {"labels": {"app": "web"}}, "spec": {**pod, "containers": made}}
    return {"spec": {**replicas, "selector": {"matchLabels": {"app": "web"}}, "template": template}}


deployments = st.builds(
    deployment,
    some(replicas=numbers, paused=st.booleans(), minReadySeconds=st.integers(0, 1)),
    some(nodeSelector=some(a=words, b=words), terminationGracePeriodSeconds=st.integers(1, 2)),
    containers,
)
things = some(
    spec=some(
        image=st.one_of(words, st.just(5)),
        count=st.one_of(numbers, st.just("1")),
        tags=some(p=words, q=words),
        parts=listed("name", ("l", "r"), size=numbers, tags=some(p=words)),
        colors=st.lists(words, max_size=2, unique=True),
        steps=st.lists(st.sampled_from(["a", "b", "", "abc"]), max_size=2),
        fixed=some(p=words, q=words),
        free=some(p=words, q=some(r=words)),
        unknown=words,
    ),
    unknown=words,
)
conditions = listed("type", ("Ready", "Done"), status=st.sampled_from(["True", "False"]), message=words)
thing_status = some(ready=numbers, conditions=conditions)
deployment_status = some(readyReplicas=st.integers(0, 3), observedGeneration=st.integers(1, 3)).map(
    lambda each: {"replicas": 3, **each}
)

TEXT = {"type": "string"}
TEXTS = {"type": "object", "additionalProperties": TEXT}
PARTS = {
    "type": "object",
    "required": ["name"],
    "properties": {"name": TEXT, "size": {"type": "integer"}, "tags": TEXTS},
}
SCHEMA = {
    "type": "object",
    "properties": {
        "spec": {
            "type": "object",
            "properties": {
                "image": {"type": "string", "default": "none"},
                "count": {"type": "integer", "format": "int64", "minimum": 0},
                "tags": {**TEXTS, "maxProperties": 1},
                "parts": {
                    "type": "array",
                    "x-kubernetes-list-type": "map",
                    "x-kubernetes-list-map-keys": ["name"],
                    "items": PARTS,
                },
                "colors": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
                "steps": {"type": "array", "maxItems": 1, "items": {"type": "string", "minLength": 1, "maxLength": 2}},
                "fixed": {**TEXTS, "x-kubernetes-map-type": "atomic"},
                "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
            },
        },
        "status": {
            "type": "object",
            "properties": {
                "ready": {"type": "integer"},
                "conditions": {
                    "type": "array",
                    "x-kubernetes-list-type": "map",
                    "x-kubernetes-list-map-keys": ["type"],
                    "items": {
                        "type": "object",
                        "required": ["type", "status"],
                        "properties": {each: {"type": "string"} for each in ("type", "status", "message")},
                    },
                },
            },
        },
    },
}
GROUP = "model.example.org"
DEFINITION = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": f"things.{GROUP}"},
    "spec": {
        "group": GROUP,
        "names": {"kind": "Thing", "plural": "things", "singular": "thing", "listKind": "ThingList"},
        "scope": "Namespaced",
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": SCHEMA},
            }
        ],
    },
}
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
TESTED = (
    Kind("v1", "ConfigMap", "configmaps", config_maps),
    Kind("v1", "Secret", "secrets", secrets),
    Kind("apps/v1", "Deployment", "deployments", deployments, deployment_status, scale=True),
    Kind("coordination.k8s.io/v1", "Lease", "leases", leases),
    Kind(f"{GROUP}/v1", "Thing", "things", things, thing_status),
)
# What each type can be created with.
ENOUGH: dict[str, dict[str, Any]] = {"Deployment": deployment({}, {}, [{"name": "web"}])}

# A custom resource keeps empty labels and annotations, unseen, so that their removal is a change. The model does not.
metas = some(
    labels=some(app=words, tier=st.sampled_from(["a", "not valid"])).filter(bool),
    annotations=some(note=words, other=words).filter(bool),
    finalizers=st.lists(st.sampled_from(FINALIZERS), unique=True, min_size=1),
)
types = st.sampled_from(TESTED)
names = st.sampled_from(NAMES)
managers = st.sampled_from(["ann", "bob"])
preconditions = st.sampled_from(["none", "both", "both", "both", "old", "uid", "version", "other uid"])
dry_runs = st.sampled_from([False, False, False, False, True])


class Answer(NamedTuple):
    """What a server answers: an object, or an error."""

    found: Any = None
    error: HeadwayError | None = None


class Comparison:
    """Compares the answers of two servers, whose uids and resourceVersions are different but equal in pattern."""

    def __init__(self) -> None:
        self._uids: dict[str, str] = {}
        self._versions: dict[int, int] = {}
        self._pairs: list[tuple[int, int]] = []

    def answers(self, real: Answer, model: Answer, about: str) -> None:
        if real.error is None and model.error is None:
            self.values(real.found, model.found, about)
            return
        assert _error(real.error) == _error(model.error), f"{about}: {real} but the model: {model}"

    def values(self, real: Any, model: Any, at: str) -> None:
        key = at.rpartition(".")[2]
        if key == "uid":
            assert self._uids.setdefault(real, model) == model, at
            assert len(set(self._uids.values())) == len(self._uids), at
        elif key == "resourceVersion":
            self._version(int(real), int(model), at)
        elif key == "managedFields":
            entries = [sorted(map(_entry, each), key=json.dumps) for each in (real, model)]
            self.values(entries[0], entries[1], f"{at}[]")
        elif isinstance(real, dict) and isinstance(model, dict):
            more, less = ({key: a[key] for key in a.keys() - b.keys()} for a, b in ((real, model), (model, real)))
            assert (more, less) == ({}, {}), f"{at}: only the real server has {more}, and only the model {less}"
            for name in real:
                self.values(real[name], model[name], f"{at}.{name}")
        elif isinstance(real, list) and isinstance(model, list):
            assert len(real) == len(model), f"{at}: {real} but the model: {model}"
            for index, pair in enumerate(zip(real, model, strict=True)):
                self.values(pair[0], pair[1], f"{at}.{index}")
        elif not key.endswith(("Time", "Timestamp", "time")):
            assert real == model, f"{at}: {real!r} but the model: {model!r}"

    def _version(self, real: int, model: int, at: str) -> None:
        if real not in self._versions:
            self._versions[real] = model
            insort(self._pairs, (real, model))
            index = self._pairs.index((real, model))
            near = self._pairs[max(index - 1, 0) : index + 2]
            assert near == sorted(near, key=lambda pair: pair[1]), f"{at}: {near}"
            assert len({pair[1] for pair in near}) == len(near), f"{at}: {near}"
        assert self._versions[real] == model, f"{at}: {real} was {self._versions[real]}, and is {model}"


def _entry(entry: dict[str, Any]) -> dict[str, Any]:
    return {key: entry[key] for key in sorted(entry) if key != "time"}


def _error(error: HeadwayError | None) -> object:
    if error is None:
        return None
    status = error.__cause__
    assert isinstance(status, ApiStatus), error
    causes = sorted({(each.reason, each.field) for each in status.causes})
    return type(error).__name__, status.code, status.reason, causes


class Sides:
    """The two servers, on a Trio loop in a thread of its own."""

    def __init__(self, kube: KubeServer) -> None:
        self.kube = kube
        self.token: trio.lowlevel.TrioToken
        self.real: ApiServer
        self.nursery: trio.Nursery

    @contextmanager
    def running(self) -> Iterator[None]:
        begun = threading.Event()
        thread = threading.Thread(target=trio.run, args=(self._main, begun))
        thread.start()
        begun.wait()
        try:
            yield
        finally:
            trio.from_thread.run_sync(self.nursery.cancel_scope.cancel, trio_token=self.token)
            thread.join()

    async def _main(self, begun: threading.Event) -> None:
        self.token = trio.lowlevel.current_trio_token()
        try:
            async with ApiServer(RealServer(self.kube).config()) as self.real, trio.open_nursery() as self.nursery:
                begun.set()
                await trio.sleep_forever()
        finally:
            begun.set()

    def run(self, function: Callable[..., Awaitable[Any]], *args: Any) -> Any:
        return trio.from_thread.run(function, *args, trio_token=self.token)

    def define(self) -> None:
        """Define the custom type in the real cluster, and wait until it is served."""
        self.run(self._define)

    async def _define(self) -> None:
        await self.real.call("POST", DEFINITIONS, body=DEFINITION)
        path = f"/apis/{GROUP}/v1/namespaces/default/things"
        with trio.fail_after(20):
            while True:
                try:
                    body = {"apiVersion": f"{GROUP}/v1", "kind": "Thing", "metadata": {"name": "first"}}
                    await self.real.call("POST", path, body=body)
                    return
                except NotFound:
                    await trio.sleep(0.1)


class Watched(NamedTuple):
    """An open watch of both servers, and what each has sent."""

    type: Kind
    params: tuple[dict[str, str], dict[str, str]]
    events: tuple[list[Any], list[Any]]
    scopes: list[trio.CancelScope]


class ModelMachine(RuleBasedStateMachine):
    """Requests to the two servers."""

    sides: Sides

    def __init__(self) -> None:
        super().__init__()
        self.compared = Comparison()
        self.known: dict[tuple[str, str], list[tuple[Any, Any]]] = {}
        self.watches: list[Watched] = []
        self.arrived = trio.Event()
        self.namespace = f"model-{uuid.uuid4().hex[:12]}"
        self.model: ModelServer = self.sides.run(self._make_model)

    async def _make_model(self) -> ModelServer:
        return ModelServer(ModelCluster())

    # Both.

    def both(
        self,
        method: str,
        path: str,
        body: Callable[[int], Any] = lambda _: None,
        content_type: str = "application/json",
        params: dict[str, str] | None = None,
    ) -> tuple[Answer, Answer]:
        """Make a request of both servers."""
        options = {"content_type": content_type, "params": params}
        found = tuple(
            self.sides.run(self._ask, side, method, path, {"body": body(index), **options})
            for index, side in enumerate((self.sides.real, self.model))
        )
        return found[0], found[1]

    async def _ask(self, side: ApiServer | ModelServer, method: str, path: str, options: dict[str, Any]) -> Answer:
        try:
            return Answer(await side.call(method, path, **options))
        except HeadwayError as error:
            return Answer(error=error)

    def write(
        self,
        method: str,
        type: Kind,
        name: str,
        subresource: str,
        body: Callable[[int], Any],
        content_type: str = "application/json",
        dry_run: bool = False,
        **params: str,
    ) -> None:
        """Make a write, compare the answers, and remember the objects."""
        path = type.path(self.namespace, "" if method == "POST" else name, subresource)
        params |= {"dryRun": "All"} if dry_run else {}
        answers = self.both(method, path, body, content_type, params)
        if dry_run:
            # The uid of an object that is not stored is for the answer alone.
            for each in answers:
                assert method != "POST" or each.found is None or each.found["metadata"].pop("uid")
        self.compared.answers(*answers, f"{method} {path} {body(0)} {content_type} {params}")
        if answers[0].error is None and answers[0].found.get("kind") == type.kind and not dry_run:
            self.known.setdefault((type.kind, name), []).append((answers[0].found, answers[1].found))

    def meta_of(self, type: Kind, name: str, what: str, side: int) -> dict[str, str]:
        """Return the uid and the resourceVersion that a write is to have."""
        states = self.known.get((type.kind, name))
        if not states or what == "none":
            return {}
        last, first = states[-1][side]["metadata"], states[0][side]["metadata"]
        meta = {"uid": last["uid"], "resourceVersion": last["resourceVersion"]}
        if what == "old":
            meta["resourceVersion"] = first["resourceVersion"]
        elif what == "uid":
            del meta["resourceVersion"]
        elif what == "version":
            del meta["uid"]
        elif what == "other uid":
            meta["uid"] = "00000000-0000-4000-8000-000000000000"
        return meta

    def body(
        self, type: Kind, name: str, meta: dict[str, Any], content: dict[str, Any], what: str = "none"
    ) -> Callable[[int], Any]:
        """Return a function that makes the object of a request for each server."""

        def made(side: int) -> Any:
            merged = {"name": name, "namespace": self.namespace, **meta, **self.meta_of(type, name, what, side)}
            return {"apiVersion": type.api_version, "kind": type.kind, "metadata": merged, **content}

        return made

    # Requests.

    @initialize()
    def begin(self) -> None:
        self.sides.run(self._begin)
        self.watch_all("")
        self.watch_all("app=a")

    async def _begin(self) -> None:
        await self.model.call("POST", DEFINITIONS, body=DEFINITION)
        for side in (self.sides.real, self.model):
            await side.call("POST", "/api/v1/namespaces", body={"metadata": {"name": self.namespace}})

    @rule(type=types, name=names, meta=metas, data=st.data(), dry_run=dry_runs, manager=managers)
    def create(self, type: Kind, name: str, meta: Any, data: st.DataObject, dry_run: bool, manager: str) -> None:
        content = data.draw(type.bodies)
        self.write("POST", type, name, "", self.body(type, name, meta, content), dry_run=dry_run, fieldManager=manager)

    @rule(type=types, name=names, meta=metas, data=st.data(), what=preconditions, dry_run=dry_runs, manager=managers)
    def put(
        self, type: Kind, name: str, meta: Any, data: st.DataObject, what: str, dry_run: bool, manager: str
    ) -> None:
        made = self.body(type, name, meta, data.draw(type.bodies), what)
        self.write("PUT", type, name, "", made, dry_run=dry_run, fieldManager=manager)

    @rule(type=types, name=names, meta=metas, data=st.data(), what=preconditions, dry_run=dry_runs, manager=managers)
    def patch(
        self, type: Kind, name: str, meta: Any, data: st.DataObject, what: str, dry_run: bool, manager: str
    ) -> None:
        content = data.draw(type.bodies)

        def made(side: int) -> Any:
            return {"metadata": {**meta, **self.meta_of(type, name, what, side)}, **content}

        self.write("PATCH", type, name, "", made, MERGE, dry_run=dry_run, fieldManager=manager)

    @rule(type=types, name=names, key=st.sampled_from(["labels", "annotations", "finalizers"]))
    def remove_metadata(self, type: Kind, name: str, key: str) -> None:
        self.write("PATCH", type, name, "", lambda _: {"metadata": {key: None}}, MERGE, fieldManager="bob")

    @rule(type=types, name=names, key=st.sampled_from(["spec", "data", "status"]))
    def remove_field(self, type: Kind, name: str, key: str) -> None:
        self.write("PATCH", type, name, "", lambda _: {key: None}, MERGE, fieldManager="bob")

    @rule(
        type=types,
        name=names,
        operations=st.lists(
            st.sampled_from(
                [
                    {"op": "add", "path": "/metadata/labels", "value": {"app": "b"}},
                    {"op": "add", "path": "/metadata/labels/app", "value": "a"},
                    {"op": "replace", "path": "/metadata/labels/app", "value": "b"},
                    {"op": "remove", "path": "/metadata/labels/app"},
                    {"op": "test", "path": "/metadata/labels/app", "value": "a"},
                    {"op": "add", "path": "/metadata/finalizers", "value": [FINALIZERS[0]]},
                    {"op": "replace", "path": "/metadata/finalizers", "value": [FINALIZERS[1]]},
                    {"op": "remove", "path": "/metadata/finalizers"},
                ]
            ),
            min_size=1,
            max_size=2,
        ),
    )
    def json_patch(self, type: Kind, name: str, operations: list[Any]) -> None:
        self.write("PATCH", type, name, "", lambda _: operations, JSON_PATCH, fieldManager="ann")

    @rule(
        type=types,
        name=names,
        meta=metas,
        data=st.data(),
        what=preconditions,
        dry_run=dry_runs,
        manager=managers,
        force=st.booleans(),
    )
    def apply(
        self,
        type: Kind,
        name: str,
        meta: Any,
        data: st.DataObject,
        what: str,
        dry_run: bool,
        manager: str,
        force: bool,
    ) -> None:
        content = data.draw(type.bodies)
        content.pop("unknown", None)
        content.get("spec", {}).pop("unknown", None)
        # A server commits an apply of nothing to an object without managers, and the model does not.
        meta = meta or {"annotations": {"note": "a"}}
        made = self.body(type, name, meta, content, what)
        params = {"fieldManager": manager, "force": str(force).lower()}
        self.write("PATCH", type, name, "", made, APPLY, dry_run=dry_run, **params)

    @rule(
        type=st.sampled_from([each for each in TESTED if each.status is not None]),
        name=names,
        data=st.data(),
        what=preconditions,
        how=st.sampled_from(["PUT", MERGE, APPLY]),
        manager=managers,
    )
    def write_status(self, type: Kind, name: str, data: st.DataObject, what: str, how: str, manager: str) -> None:
        assert type.status is not None
        content = {"status": data.draw(type.status)}
        if how == "PUT":
            states = self.known.get((type.kind, name))
            spec = states[-1][0].get("spec", {}) if states else {}
            made = self.body(type, name, {}, {**content, "spec": spec}, what)
            self.write("PUT", type, name, "status", made, fieldManager=manager)
        elif how == MERGE:
            self.write(
                "PATCH",
                type,
                name,
                "status",
                lambda side: {"metadata": self.meta_of(type, name, what, side), **content},
                MERGE,
                fieldManager=manager,
            )
        else:
            made = self.body(type, name, {}, content, what)
            self.write("PATCH", type, name, "status", made, APPLY, fieldManager=manager, force="true")

    @rule(name=names, replicas=numbers, what=preconditions)
    def scale(self, name: str, replicas: int, what: str) -> None:
        [type] = [each for each in TESTED if each.scale]
        now = self.both("GET", type.path(self.namespace, name))[0]
        if now.error is None and now.found["spec"]["replicas"] == replicas:
            # A server changes the managers then, at most twice. The model does not.
            return
        self.write(
            "PATCH",
            type,
            name,
            "scale",
            lambda side: {"metadata": self.meta_of(type, name, what, side), "spec": {"replicas": replicas}},
            MERGE,
            fieldManager="bob",
        )
        self.get(type, name, "scale")

    @rule(
        type=types,
        name=names,
        what=preconditions,
        policy=st.sampled_from(["", "", "Background", "Foreground", "Orphan"]),
        dry_run=dry_runs,
    )
    def delete(self, type: Kind, name: str, what: str, policy: str, dry_run: bool) -> None:
        def made(side: int) -> Any:
            options = {"apiVersion": "v1", "kind": "DeleteOptions"}
            chosen: dict[str, Any] = {"propagationPolicy": policy} if policy else {}
            chosen |= {"dryRun": ["All"]} if dry_run else {}
            return {**options, **chosen, "preconditions": self.meta_of(type, name, what, side)}

        self.write("DELETE", type, name, "", made, dry_run=dry_run)

    @rule(type=types, name=names, what=st.just(""))
    def get(self, type: Kind, name: str, what: str) -> None:
        path = type.path(self.namespace, name, what)
        answers = self.both("GET", path)
        self.compared.answers(*answers, f"GET {path}")
        if answers[0].error is None and not what:
            self.known.setdefault((type.kind, name), []).append((answers[0].found, answers[1].found))

    @rule(
        type=types,
        params=some(
            labelSelector=st.sampled_from(["app=a", "app!=a", "app", "!app", "app in (a,b),tier", "app notin (a)"]),
            fieldSelector=st.sampled_from(["metadata.name=one", "metadata.color=red"]),
            limit=st.sampled_from(["1", "2"]),
        ),
        accept=st.sampled_from(["application/json", METADATA]),
    )
    def list(self, type: Kind, params: dict[str, str], accept: str) -> None:
        path, pages = type.path(self.namespace), [dict(params), dict(params)]
        while True:
            answers = [
                self.sides.run(self._ask, side, "GET", path, {"params": each, "accept": accept})
                for side, each in zip((self.sides.real, self.model), pages, strict=True)
            ]
            tokens = [_without_revision(each) for each in answers]
            self.compared.answers(answers[0], answers[1], f"GET {path} {params}")
            assert len(set(map(bool, tokens))) == 1, f"{params}: {tokens}"
            if not tokens[0]:
                return
            pages = [{**params, "continue": token} for token in tokens]

    @rule(name=names)
    def create_elsewhere(self, name: str) -> None:
        """Create an object in a namespace that does not exist."""
        type = TESTED[0]
        answers = self.both("POST", type.path("absent"), lambda _: {"metadata": {"name": name}})
        self.compared.answers(*answers, "POST in an absent namespace")

    # Watches.

    def watch_all(self, selector: str) -> None:
        for type in TESTED:
            self.watch(type, ({}, {}), {"labelSelector": selector} if selector else {})

    @precondition(lambda self: self.known)
    @rule(data=st.data())
    def watch_from(self, data: st.DataObject) -> None:
        """Open a watch from the resourceVersion of an object that was seen."""
        kind, name = data.draw(st.sampled_from(sorted(self.known)))
        [type] = [each for each in TESTED if each.kind == kind]
        pair = data.draw(st.sampled_from(self.known[kind, name]))
        starts = [{"resourceVersion": each["metadata"]["resourceVersion"]} for each in pair]
        self.watch(type, (starts[0], starts[1]), {})

    def watch(self, type: Kind, starts: tuple[dict[str, str], dict[str, str]], params: dict[str, str]) -> None:
        initial = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan", "allowWatchBookmarks": "true"}
        both = tuple({**params, **(each or initial)} for each in starts)
        opened = Watched(type, (both[0], both[1]), ([], []), [])
        self.watches.append(opened)
        for index, side in enumerate((self.sides.real, self.model)):
            self.sides.run(self._start, side, opened, index)

    async def _start(self, side: ApiServer | ModelServer, opened: Watched, index: int) -> None:
        await self.sides.nursery.start(self._follow, side, opened, index)

    async def _follow(
        self, side: ApiServer | ModelServer, opened: Watched, index: int, task_status: trio.TaskStatus[None]
    ) -> None:
        with trio.CancelScope() as scope:
            opened.scopes.append(scope)
            path = opened.type.path(self.namespace)
            async with side.watch(path, opened.params[index]) as lines:
                task_status.started()
                async for line in lines:
                    opened.events[index].append(json.loads(line))
                    self.arrived.set()
                    self.arrived = trio.Event()

    async def _until_end(self, opened: Watched) -> None:
        with trio.fail_after(10):
            while not all(any(_is_end(event) for event in events) for events in opened.events):
                await self.arrived.wait()

    def teardown(self) -> None:
        try:
            for type in TESTED if self.watches else ():
                body = self.body(type, END, {"labels": {"app": "a"}}, ENOUGH.get(type.kind, {}))
                answers = self.both("POST", type.path(self.namespace), body)
                self.compared.answers(*answers, "the end")
            for each in self.watches:
                try:
                    self.sides.run(self._until_end, each)
                except trio.TooSlowError:
                    raise AssertionError(f"{each.params}: {each.events}") from None
                real, model = (without_bookmarks(events) for events in each.events)
                self.compared.values(real, model, f"the watch of {each.type.kind} {each.params}")
        finally:
            for scope in [scope for each in self.watches for scope in each.scopes]:
                trio.from_thread.run_sync(scope.cancel, trio_token=self.sides.token)


def _without_revision(answer: Answer) -> str:
    """Take what a list says of itself, whose revision is that of the whole cluster. Return its token."""
    if answer.error is not None:
        return ""
    meta = answer.found.pop("metadata")
    answer.found["items"] = answer.found["items"] or []
    answer.found["remaining"] = meta.get("remainingItemCount")
    token: str = meta.get("continue", "")
    return token


def _is_end(event: dict[str, Any]) -> bool:
    return bool(event["object"]["metadata"].get("name") == END)


def without_bookmarks(events: list[Any]) -> list[Any]:
    """Return the events without bookmarks, whose times and revisions are each server's own."""
    return [each for each in events if each["type"] != "BOOKMARK"]


@pytest.fixture(scope="module")
def sides(kube: KubeServer) -> Iterator[Sides]:
    found = Sides(kube)
    with found.running():
        found.define()
        yield found


def machine(sides: Sides) -> type[ModelMachine]:
    return type("Machine", (ModelMachine,), {"sides": sides})


@pytest.mark.timeout(3600)
def test_model_answers_as_the_real_server(sides: Sides) -> None:
    # Each difference takes long to shrink, and its blob repeats it.
    phases = (Phase.explicit, Phase.generate)
    wanted = settings(derandomize=not os.environ.get("HEADWAY_KUBE_SECONDS"), print_blob=True, phases=phases)
    run_state_machine_as_test(machine(sides), settings=wanted)
