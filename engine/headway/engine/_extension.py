"""Extensions: packages that plug into an engine, which does not import them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import KW_ONLY, dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import trio

from headway.api import Api, Wrapper
from headway.base import function_text, repr_text
from headway.client import Client
from headway.controller import App
from headway.engine._options import Network
from headway.errors import Closed, DeclarationError, InvalidArgument
from headway.events import Report
from headway.informers import Informers
from headway.journal import Journal
from headway.reconcile import Gate
from headway.resource import Registry, ResourceId
from headway.rpc import Channel, StreamEncoder
from headway.run import ControllerStatus, Supervisor
from headway.service import Forms, ResourceEncodings, WriteRules
from headway.storage import Backend
from headway.subscription import Topic

if TYPE_CHECKING:
    from headway._gen.headway.observe.v1 import StuckList, Why
    from headway.access import Caller as Caller


class Observer(Protocol):
    """Answers `Engine.why` and `Engine.stuck`."""

    async def why(self, id: ResourceId, /) -> Why:
        """Return why a resource is, or is not, done."""
        ...

    async def stuck(self, longer_than: float, /) -> StuckList:
        """Return the work that has been pending for more than these seconds."""
        ...

    def absent_status(self) -> Sequence[ControllerStatus]:
        """Return the controllers that are wanted and run nowhere."""
        ...

    async def refused_elsewhere(self) -> Mapping[str, int]:
        """Return how many commits the other processes of this server have refused, by the names of their limits."""
        ...


@dataclass
class Host:
    """The engine, as an extension sees it.

    Attributes:
        store: the store; None in workers, which do not open it.
        registry: the types of all apps.
        report: receives events.
        serving: the client of the engine; None before it serves.
        network: the options of the network.
        process: the name of this process.
        journal: the record of what the controllers did; None without one.
        forms: how the resources of each type are stored and shown. An extension sets it.
        loading: returns a block in which many objects arrive that stay in memory.
        informers: the caches of Headway's own controllers; in workers, those of the process.
        gate_of: makes the gate of a controller, given its full name. An extension sets it to stop controllers.
        channel: the channel of Headway's own controllers, to which the rules for writes allow more. In workers, the
            channel to the engines.
        supervisors: the controllers.
        topics: the topics of all apps, by name.
        observer: answers `Engine.why` and `Engine.stuck`. An extension sets it.
        addresses: the engine's gRPC addresses, with the actual ports. They are known once ``listening`` is set.
        listening: set once clients can connect.
        ending: its callbacks are called when the engine ends, before it waits for its clients.
    """

    store: Backend | None
    registry: Registry
    report: Report
    serving: Client | None = field(default=None, repr=False)
    _: KW_ONLY
    network: Network = field(default_factory=Network)
    process: str = ""
    journal: Journal | None = None
    forms: Forms = field(default_factory=Forms)
    topics: Mapping[str, Topic[Any]] = field(default_factory=dict)
    loading: Callable[[], AbstractContextManager[None]] = nullcontext
    informers: Informers = field(init=False)
    gate_of: Callable[[str], Gate] = Gate
    channel: Channel = field(init=False)
    supervisors: list[Supervisor] = field(default_factory=list)
    observer: Observer | None = None
    addresses: Sequence[str] = ()
    listening: trio.Event = field(default_factory=trio.Event)
    ending: ExitStack = field(default_factory=ExitStack)

    @property
    def backend(self) -> Backend:
        """The store. Raises InvalidArgument in workers."""
        if self.store is None:
            raise InvalidArgument("host.backend: workers do not open the store: use host.client")
        return self.store

    @property
    def client(self) -> Client:
        """A client that reads and writes resources with every right, once the engine serves."""
        if self.serving is None:
            raise Closed("host.client: the engine does not serve yet: use the client when the service is called")
        return self.serving


@dataclass(frozen=True, kw_only=True)
class Extension:
    """A package that plugs into an engine: ``open_engine("memory:", app, extensions=[counting])``.

    Attributes:
        apps: its types and controllers. The engine runs them beside those of the program.
        late_apps: apps whose controllers begin with the first resource that they manage, and cost nothing before.
        services: its services, as functions that make one for a caller. Over the network, that is the caller's rights,
            which the service must check; within the process, or without access control, it is None. With access
            control, callers without a token are refused.
        open_services: services for the network that any caller may call, also without a token.
        wraps: functions that put a `headway.api.Wrapper` around a service. The engine calls them for each service, its
            own ones too. The first is the innermost. They stand around the guard: a wrapper sees a call once its
            caller is admitted, before the rights are checked. It must not give a reply to another caller.
        rules: rules for what callers write.
        openings: async functions that the engine calls before it serves. If one raises, the engine does not begin.
        encoders: functions that return encoders of streams by path, which share the bytes of resources.
        tasks: async functions that run until the engine ends. An error of theirs ends the engine.
    """

    apps: Sequence[App] = ()
    late_apps: Sequence[App] = ()
    services: Sequence[Callable[[Host, Caller | None], Api]] = ()
    open_services: Sequence[Callable[[Host], Api]] = ()
    wraps: Sequence[Callable[[Any], Wrapper]] = ()
    rules: Sequence[WriteRules] = ()
    openings: Sequence[Callable[[Host], Awaitable[None]]] = ()
    encoders: Sequence[Callable[[ResourceEncodings], Mapping[str, StreamEncoder]]] = ()
    tasks: Sequence[Callable[[Host], Awaitable[None]]] = ()


def check_extensions(given: object, *, workers: bool = False) -> None:
    """Raise DeclarationError if a value is not a list of extensions, or for what workers cannot have."""
    listed = isinstance(given, Sequence) and not isinstance(given, str)
    wrong = [each for each in given if not isinstance(each, Extension)] if listed else [given]  # type: ignore[attr-defined]  # a Sequence
    if wrong or not listed:
        raise DeclarationError(
            f"extensions must be a list of headway.engine.Extension, such as extensions=[Extension(apps=[app])]; got "
            f"{repr_text(wrong[0] if wrong else given)}"
        )
    for each in given if workers else ():  # type: ignore[attr-defined]  # a Sequence
        only_engine = ("late_apps", "services", "open_services", "wraps", "encoders", "openings", "rules")
        if has := [name for name in only_engine if getattr(each, name)]:
            raise DeclarationError(
                f"extensions of open_workers have apps and tasks, and {has[0]} belong to the process with the store: "
                "open_engine(..., extensions=[...])"
            )


def start_tasks(nursery: trio.Nursery, host: Host, *extensions: Extension) -> None:
    """Start the tasks of the extensions."""
    for task in (task for each in extensions for task in each.tasks):
        nursery.start_soon(task, host, name=f"extension {function_text(task)}")
