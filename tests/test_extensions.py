"""Extensions: a package that the engine does not know adds a service, a wrapper, a controller and a task."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked
from typing_extensions import override

import headway
from headway.access import Access, Authorizer, Caller, Policy, Rule, new_token
from headway.api import Api, Call, Cardinality, Stream, Wrapper, method, stream
from headway.client import call_service
from headway.engine import Extension, Host
from headway.errors import (
    Closed,
    CommitRefused,
    DeclarationError,
    FailedPrecondition,
    InvalidArgument,
    NotHeadway,
    PermissionDenied,
)
from headway.protobuf import field, message
from headway.resource import PARTITION, Key, Kind, ResourceType, pb
from headway.rpc import open_channel
from headway.service import AccessChecks, WriteRules
from headway.storage import Change, Claim, CommitRule, Stored, rules_of


@message(name="test.counting.Request")
class Request:
    name: str = field(1)


@message(name="test.counting.Reply")
class Reply:
    calls: int = field(1)


@headway.message
class Job:
    done: bool = field(1)


class CountingApi(Api, service="test.counting.Counting"):
    """The number of calls of a method."""

    @method("Count", Request, Reply)
    async def count(self, call: Call, request: Request, /) -> Reply:
        """Return how often a method was called."""
        raise NotImplementedError

    @method("Follow", Request, Reply, Cardinality.UNARY_STREAM)
    def follow(self, call: Call, request: Request, /) -> Stream[Reply]:
        """Send the number twice."""
        raise NotImplementedError


class Counter(Wrapper):
    """Counts the calls of all services by their methods."""

    def __init__(self, inner: Any, counts: dict[str, int]) -> None:
        super().__init__(inner)
        self._counts = counts

    def _note(self, path: str) -> None:
        self._counts[path.rpartition("/")[2]] = self._counts.get(path.rpartition("/")[2], 0) + 1

    @override
    async def unary(self, path: str, answer: Callable[[Call, Any], Awaitable[Any]], call: Call, request: Any) -> Any:
        self._note(path)
        return await answer(call, request)

    @override
    def streaming(self, path: str, opened: Callable[[Call, Any], Stream[Any]], call: Call, request: Any) -> Stream[Any]:
        self._note(path)
        return opened(call, request)


class Counting:
    """The extension with its state."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        self.hosts: list[Host] = []
        self.app = headway.App("counting")
        self.job = self.app.type("counting", "v1", "Job", Job)
        self.app.controller(manages=self.job)(self.reconcile)

    async def reconcile(self, rt: headway.Runtime, request: headway.Request) -> None:
        job = rt.cache.get(self.job, request.id)
        if job is not None and not job.data.done:
            job.data.done = True
            await rt.client.write(job)

    def service(self, host: Host, caller: Caller | None) -> CountingApi:
        extension = self

        class Served(CountingApi):
            @override
            async def count(self, call: Call, request: Request, /) -> Reply:
                if caller is not None and not caller.may_know(extension.job.name):
                    raise PermissionDenied("permission denied: you may not count calls")
                return Reply(calls=extension.counts.get(request.name, 0))

            @override
            @stream
            async def follow(self, call: Call, request: Request, /) -> AsyncGenerator[Reply, None]:
                for _ in range(2):
                    yield await self.count(call, request)

        assert host.registry.find(self.job.name) is not None
        return Served()

    async def task(self, host: Host) -> None:
        await host.client.write(self.job.new("first"))
        self.hosts.append(host)
        await trio.sleep_forever()

    def extension(self) -> Extension:
        return Extension(
            apps=[self.app],
            services=[self.service],
            wraps=[lambda inner: Counter(inner, self.counts)],
            tasks=[self.task],
        )


app = headway.App("plain")


async def test_extension_adds_a_service_a_wrapper_a_controller_and_a_task() -> None:
    counting = Counting()
    async with headway.open_engine("memory:", app, extensions=[counting.extension()]) as engine:
        with trio.fail_after(10):
            await headway.until(engine.client, counting.job, "first", lambda job: job is not None and job.data.done)
        before = counting.counts.get("Read", 0)
        await engine.client.get(counting.job, "first")
        reply = await call_service(engine.client, lambda channel: CountingApi.over(channel).count, Request(name="Read"))
        assert reply.calls == before + 1
        assert [host.client for host in counting.hosts]
    async with headway.open_engine("memory:", app) as engine:
        with pytest.raises(
            NotHeadway, match=r"does not serve /test.counting.Counting/Count: open the engine with the ext"
        ):
            await call_service(engine.client, lambda channel: CountingApi.over(channel).count, Request())


async def test_service_of_an_extension_is_served_over_the_network_with_the_rights_of_its_caller() -> None:
    counting = Counting()
    text, token = new_token(["reader"])
    other, stranger = new_token([])
    rule = Rule(verbs=["read"], type="counting.v1.Job", partition="*", namespace="*")
    access = Authorizer(Access([Policy("reader", [rule])], [token, stranger]))
    network = headway.Network(["127.0.0.1:0"], access=access)

    def decoder() -> Any:
        return lambda bodies: [headway.protobuf.decode(Reply, body) for body in bodies]

    async with (
        headway.open_engine("memory:", app, network=network, extensions=[counting.extension()]) as engine,
        open_channel(engine.addresses[0], decoders={"/test.counting.Counting/Follow": decoder}) as channel,
    ):
        service = CountingApi.over(channel)
        assert (await service.count(Call({"x-consul-token": text}), Request(name="Count"))).calls == 1
        with pytest.raises(PermissionDenied, match="you may not count calls"):
            await service.count(Call({"x-consul-token": other}), Request(name="Count"))
        async with service.follow(Call({"x-consul-token": text}), Request(name="Count")) as items:
            assert [item.calls async for item in items] == [2, 2]
    assert counting.counts["Follow"] == 1


@message(name="test.counting.Odd")
class Odd:
    type: str = field(1)
    subjects: list[str] = field(2)
    tenancy: str = field(3)
    id: str = field(4)


class OddApi(Api, service="test.counting.Odd"):
    """Messages with fields that mean other things than those of the engine's services, and a method with an effect."""

    def __init__(self, effects: list[str] | None = None, meanwhile: Callable[[], None] = lambda: None) -> None:
        self.effects = [] if effects is None else effects
        self.meanwhile = meanwhile

    @method("Read", Odd, Odd)
    async def read(self, _call: Call, request: Odd) -> Odd:
        self.meanwhile()
        return request

    @method("Deploy", Odd, Odd, effect=True)
    async def deploy(self, _call: Call, request: Odd) -> Odd:
        self.effects.append(request.type)
        self.meanwhile()
        return request


ODD = Odd(type="a", subjects=["b"], tenancy="c", id="d")


async def test_service_of_an_extension_refuses_callers_without_a_token() -> None:
    access = Authorizer(Access([Policy("anonymous", [Rule(verbs=["*"], type="*", partition="*", namespace="*")])]))
    extension = Extension(services=[lambda _, __: OddApi()])
    network = headway.Network(["127.0.0.1:0"], access=access)
    async with (
        headway.open_engine("memory:", app, network=network, extensions=[extension]) as engine,
        open_channel(engine.addresses[0]) as channel,
    ):
        with pytest.raises(PermissionDenied, match="this service needs a token"):
            await OddApi.over(channel).read(Call(), ODD)


def test_mistakes_in_declarations_are_refused() -> None:
    with pytest.raises(DeclarationError, match="Unnamed declares methods and names no service"):

        class Unnamed(Api):
            @method("Read", Odd, Odd)
            async def read(self, _: Call, request: Odd) -> Odd:
                return request

    with pytest.raises(DeclarationError, match=r"Bare.follow is a bare async generator: put @headway.api.stream above"):

        class Bare(CountingApi):
            async def follow(self, _: Call, __: Request) -> AsyncGenerator[Reply, None]:  # type: ignore[override]  # a mistake
                yield Reply()

    class More(OddApi, service="test.counting.More"):
        @method("Further", Odd, Odd)
        async def further(self, _: Call, request: Odd) -> Odd:
            return request

    assert set(More.methods) == {f"/test.counting.More/{name}" for name in ("Read", "Deploy", "Further")}


async def test_client_of_the_host_is_there_when_the_engine_serves() -> None:
    def early(host: Host, _: object) -> OddApi:
        with pytest.raises(Closed, match="the engine does not serve yet"):
            _ = host.client
        return OddApi()

    async with headway.open_engine("memory:", app, extensions=[Extension(services=[early])]):
        pass


async def test_open_service_needs_no_token() -> None:
    counting = Counting()
    extension = Extension(open_services=[lambda host: counting.service(host, None)], apps=[counting.app])
    network = headway.Network(["127.0.0.1:0"], access=Authorizer(Access()))
    async with (
        headway.open_engine("memory:", app, network=network, extensions=[extension]) as engine,
        open_channel(engine.addresses[0]) as channel,
    ):
        assert (await CountingApi.over(channel).count(Call(), Request(name="Count"))).calls == 0


async def test_rules_of_an_extension_refuse_writes() -> None:
    @headway.message
    class Task:
        done: bool = field(1)

    tasks = headway.App("tasks")
    task_type = tasks.type("tasks", "v1", "Task", Task)

    class OnceDone(WriteRules):
        """Done tasks stay done, none is begun as done, and those in partition ``kept`` stay as they are."""

        kinds = frozenset({task_type.kind})

        @override
        def check_key(self, access: AccessChecks, kind: Kind, key: Key) -> None:
            assert kind == task_type.kind or key[0] == "kept"
            if key[0] == "kept" and not access.privileged:
                raise FailedPrecondition("kept")

        @override
        def admit(self, access: AccessChecks, type: ResourceType[Any], key: Key, resource: pb.Resource) -> None:
            if type is task_type and not resource.version and type.view(resource).data.done:
                raise FailedPrecondition("begun as done")

        @override
        def replace(
            self, access: AccessChecks, type: ResourceType[Any], key: Key, stored: pb.Resource, resource: pb.Resource
        ) -> None:
            if type is task_type and type.view(stored).data.done and not type.view(resource).data.done:
                raise FailedPrecondition("done already")

    class NeverThird(WriteRules):
        """It names no kinds, so it is asked about all of them."""

        @override
        def check_key(self, access: AccessChecks, kind: Kind, key: Key) -> None:
            if key[2] == "third":
                raise FailedPrecondition("no third")

    extension = Extension(apps=[tasks], rules=[OnceDone(), NeverThird()])
    async with headway.open_engine("memory:", app, extensions=[extension]) as engine:
        client = engine.client
        await client.write(PARTITION.new("team"))
        with pytest.raises(FailedPrecondition, match="no third"):
            await client.write(PARTITION.new("third"))
        with pytest.raises(FailedPrecondition, match="begun as done"):
            await client.write(task_type.new("first", Task(done=True)))
        task = await client.write(task_type.new("first"))
        task.data.done = True
        task = await client.write(task)
        task.data.done = False
        with pytest.raises(FailedPrecondition, match="done already"):
            await client.write(task)
        with pytest.raises(FailedPrecondition, match="kept"):
            await client.delete(task_type.id("first", partition="kept"))
        with pytest.raises(FailedPrecondition, match="kept"):
            await client.write(task_type.new("first", partition="kept"))


async def test_commit_that_a_rule_of_an_extension_refuses_has_certainly_no_effect() -> None:
    """Otherwise a controller in another process would hold all its keys, and raise its fence."""

    @headway.message
    class Frost:
        pass

    tasks = headway.App("tasks")
    job = tasks.type("tasks", "v1", "Frost", Frost)

    class Frozen(CommitRule):
        kinds = frozenset({job.kind})
        active = True

        @override
        def begin(self, stored: Stored) -> None: ...

        @override
        def claims(self, changes: Sequence[Change]) -> Sequence[Claim]:
            if any(each.kind == job.kind for each in changes):
                raise CommitRefused("jobs are frozen")
            return ()

        @override
        def follow(self, changes: Sequence[Change]) -> None: ...

        @override
        def count(self, growing: Sequence[tuple[Kind, Key]] | None) -> bool:
            return False

        @override
        def refused(self, error: CommitRefused) -> None: ...

    async def freeze(host: Host) -> None:
        rules = rules_of(host.backend)
        assert rules is not None
        rules.add(Frozen())

    network = headway.Network(["127.0.0.1:0"], insecure=True)
    async with (
        headway.open_engine("memory:", tasks, network=network, extensions=[Extension(openings=[freeze])]) as engine,
        headway.connect(engine.addresses, tasks) as client,
    ):
        for each in (engine.client, client):
            with pytest.raises(CommitRefused, match="jobs are frozen") as refused:
                await each.write(job.new("first"))
            assert type(refused.value) is CommitRefused


async def test_host_tells_when_the_engine_listens_and_ends() -> None:
    told: list[object] = []

    async def task(host: Host) -> None:
        host.ending.callback(told.append, "ending")
        await host.listening.wait()
        told.append(list(host.addresses))

    network = headway.Network(["127.0.0.1:0"], insecure=True)
    async with headway.open_engine("memory:", app, network=network, extensions=[Extension(tasks=[task])]) as engine:
        await wait_all_tasks_blocked()
        assert told == [engine.addresses]
    assert told == [engine.addresses, "ending"]


async def test_error_of_a_task_ends_the_engine() -> None:
    async def fails(_: Host) -> None:
        raise RuntimeError("the task has failed")

    with pytest.raises(RuntimeError, match="the task has failed"):
        async with headway.open_engine("memory:", app, extensions=[Extension(tasks=[fails])]):
            await trio.sleep_forever()


async def test_task_ends_with_the_engine() -> None:
    ended: list[str] = []

    async def task(_: Host) -> None:
        try:
            await trio.sleep_forever()
        finally:
            ended.append("ended")

    async with headway.open_engine("memory:", app, extensions=[Extension(tasks=[task])]):
        await wait_all_tasks_blocked()
        assert ended == []
    assert ended == ["ended"]


@pytest.mark.parametrize("given", ["counting", [app], None, Extension()])
async def test_what_is_no_list_of_extensions_is_refused(given: Any) -> None:
    with pytest.raises(DeclarationError, match=r"extensions must be a list of headway.engine.Extension, .* got "):
        async with headway.open_engine("memory:", app, extensions=given):
            pass


async def test_workers_run_the_controllers_and_tasks_of_extensions() -> None:
    counting = Counting()
    extension = Extension(apps=[counting.app], tasks=[counting.task])
    with_types = Extension(open_services=[lambda host: counting.service(host, None)])
    network = headway.Network(["127.0.0.1:0"], insecure=True)
    types = headway.App("types")
    types.registry.register(counting.job)
    async with (
        headway.open_engine("memory:", types, network=network, extensions=[with_types]) as engine,
        headway.open_workers(engine.addresses, app, process="web-1", extensions=[extension]) as workers,
    ):
        with trio.fail_after(10):
            await headway.until(engine.client, counting.job, "first", lambda job: job is not None and job.data.done)
        assert [*workers.controllers] == ["counting/reconcile"]
        [host] = counting.hosts
        assert host.process == "web-1"
        with pytest.raises(InvalidArgument, match=r"host.backend: workers do not open the store: use host.client"):
            host.backend  # noqa: B018  # raises


@pytest.mark.parametrize("name", ["late_apps", "services", "open_services", "wraps", "rules"])
async def test_workers_refuse_what_belongs_to_the_process_with_the_store(name: str) -> None:
    given: dict[str, Any] = {name: [app]}
    with pytest.raises(DeclarationError, match=f"extensions of open_workers have apps and tasks, and {name} belong to"):
        async with headway.open_workers("127.0.0.1:1", app, extensions=[Extension(**given)]):
            pass
