"""Asks the controllers of this process and of all processes that attend, and adds what the server itself knows.

A process attends by a stream (`ObserveService.Attend`). A question to it waits for at most `PATIENCE` seconds, so that
a process that hangs delays an answer, but never prevents it.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from itertools import islice

import trio

from headway._gen.headway.observe import v1 as observe_pb
from headway.base import by_turns, give_way, wall_time
from headway.builtin import NAME as BUILTIN_APP
from headway.errors import NotFound
from headway.journal import Journal, Written
from headway.resource import Kind, ResourceId, ScopedType, TypeName, event_id, resource_id
from headway.run import ControllerStatus, Supervisor
from headway.why._attending import Attending, Busy, Sort, stuck_of
from headway.why._elsewhere import Absent, Elsewhere
from headway.why._known import events_answer, id_without_uid, past_causes, stored_answer, with_writers
from headway.why._leases import Leases, ReadLeases
from headway.why._local import controllers_why, retry_here, stuck_here, to_wall
from headway.why._now import FAILING
from headway.why._rights import AttendingRights, ReadStored
from headway.why.answers import OWN_FINALIZERS, cleaned, joined, ref_of, said_by

MOST_ATTENDING = 1000
"""The number of processes that may attend at once; those of one caller may be three quarters of it."""
MOST_ATTENDED = 10_000
"""The number of controllers that these processes may have together, and those of one caller three quarters of it. A
caller chooses their names, and every look goes through all of them."""
_GONE_SECONDS = 3600.0
_MOST_GONE = 200
_MOST_LEFT = 1000
_TURNED_AWAY_SECONDS = 30.0
"""The time for which a process that was turned away counts as running. It asks again within five seconds."""
_SIBLINGS = "the server itself"
"""The caller of the other processes of this server. No caller can have this name."""
_MOST_MORE = 2**64 - 1
"""The greatest number of items that an answer can say it leaves out."""
WRITES = 10
STANDBYS = 100
"""The number of controllers on standby in an answer about what is stuck."""
_PROGRAM = "a program in the server's process"


class ObserveHost:
    """The questions to the controllers of one server.

    Args:
        read: returns a stored resource. Also available as an attribute.
        journal: the journal of this process; None without one.
        leases: returns the leases of the store; None without a store.

    Attributes:
        supervisors: the controllers of the server's own process.
        names_callers: True if every remote caller has a name. A caller without one is then a program in this process.
        siblings: the names of the other processes of this server. One that does not attend is away.
        number: the number of this process among the processes of its server, from 1 on; 0 if it is alone.
        pass_on: passes an answer on to the process of this server that has asked, and returns False if that process no
            longer waits for it. A worker has several connections, which may reach different processes.
        absent: the controllers that are wanted and run nowhere.
        clashes: the controllers that share a finalizer and a status, as stuck work.
        refusals: returns how many commits this process has refused, by the names of quotas.
        attended_next: set when the next process attends.
    """

    def __init__(self, read: ReadStored, journal: Journal | None = None, leases: ReadLeases | None = None) -> None:
        self.read = read
        self._read_leases = leases
        self._journal = journal
        self.supervisors: Sequence[Supervisor] = ()
        self.names_callers = False
        self.siblings: Collection[str] = ()
        self.number = 0
        self.pass_on: Callable[[observe_pb.AnswerRequest], Awaitable[bool]] | None = None
        # By caller and process. So a caller cannot end the stream of a process of another caller.
        self._attending: dict[tuple[str, str], Attending] = {}
        self._gone: OrderedDict[tuple[str, str], tuple[float, dict[str, Kind]]] = OrderedDict()
        # By controller. A process may come back under its name and run other controllers.
        self._left: OrderedDict[str, tuple[float, str]] = OrderedDict()
        self._turned_away: OrderedDict[str, tuple[float, str, Kind]] = OrderedDict()
        self._followers: list[Callable[[Attending], None]] = []
        self._ended = False
        self.absent: Sequence[Absent] = ()
        self.clashes: Sequence[observe_pb.StuckItem] = ()
        self.attended_next = trio.Event()
        self.refusals: Callable[[], Mapping[str, int]] = dict

    async def why(self, id: ResourceId) -> observe_pb.Why:
        """Return why a resource is, or is not, done.

        Raises:
            NotFound: the id has a uid, and another incarnation has its name now. The controllers work on that one.
        """
        stored = await self.read(id.without_uid())
        if stored is not None and id.uid not in ("", resource_id(stored.id).uid):
            raise NotFound(
                f"{id} was deleted, and a later resource has its name: to ask about that one, pass the id without its "
                "uid, such as team.id.without_uid()"
            )
        controllers = controllers_why(self.supervisors, id)
        replies = await self._ask_all(lambda: observe_pb.Question(why=id_without_uid(id)))
        unreachable, writes = self._away(), self.writes_of(id)
        for attending, answer in replies:
            if answer is None:
                unreachable.append(attending.process)
                continue
            if attending.sort is Sort.SIBLING:
                writes += map(cleaned, answer.writes)
            # Accept answers of a process only about the controllers that it attends for, and one about each.
            parts = {each.name: each for each in answer.controllers}
            own = [
                each
                for name, each in parts.items()
                if name in attending.controllers
                and (each.role != "manages" or attending.controllers[name] == id.type.unversioned)
            ]
            controllers += [replace(cleaned(each), process=attending.process) for each in own]
        if self.siblings:
            # Every process of the server must give the same answer.
            controllers.sort(key=lambda each: each.process)
        return observe_pb.Why(
            at=wall_time(),
            resource=ref_of(id.type, id.key),
            stored=None
            if stored is None
            else stored_answer(
                stored,
                self._finalizing(resource_id(stored.id).type.unversioned),
                {each.name for each in controllers if each.role == "manages"},
            ),
            controllers=await self._with_writers(await self._leases().of_parts(controllers)),
            writes=sorted(writes, key=lambda each: -each.revision)[:WRITES],
            unreachable=sorted(unreachable),
            gone=self._gone_of(id.type.unversioned),
            events=[] if stored is None else events_answer(await self.read(event_id(resource_id(stored.id)))),
        )

    async def stuck(self, longer_than: float, types: Collection[str] | None = None) -> observe_pb.StuckList:
        """Return the work of these types, or of all, that has been pending for longer than this, the oldest first."""
        before = wall_time() - longer_than
        missed = [each for each in self.absent if each.since < before and (types is None or str(each.manages) in types)]
        clashes = [
            each
            for each in self.clashes
            if each.since < before and each.resource and (types is None or each.resource.type in types)
        ]
        known = observe_pb.StuckList(items=[*map(Absent.item, missed), *clashes])
        lists = [stuck_here(self.supervisors, longer_than, types), known]
        unreachable = self._away()
        asked = [] if types is None else sorted(types)
        for attending, answer in await self._ask_all(lambda: observe_pb.Question(longer_than=longer_than, types=asked)):
            if answer is None or answer.stuck is None:
                unreachable.append(attending.process)
                continue
            said = await stuck_of(answer.stuck)
            lists.append(said_by(attending.process, attending.controllers, said, types))
        items = joined([each.items for each in lists])
        # A process may send any number, but the answer has room for 64 bits.
        more = min(sum(each.more + len(each.items) for each in lists) - len(items), _MOST_MORE)
        # Only their leases show which of them are worth a note.
        noted = await self._leases().of_standbys([each for one in lists for each in one.standbys])
        shown = list(islice(by_turns(noted, lambda each: each.process), STANDBYS))
        left = len(noted) - len(shown)
        return observe_pb.StuckList(wall_time(), items, more, sorted(unreachable), shown, left)

    async def retry(self, controller: str, id: ResourceId) -> tuple[dict[str, bool], list[str]]:
        """Let a controller reconcile a resource now, whatever its delay, in each process that has its key.

        Return the processes that do, each with True if it is reconciling the resource already and does so again after
        that, and the processes that did not answer.
        """
        kind = id.type.unversioned
        asked = [each for each in self._attending.values() if each.controllers.get(controller) == kind]
        here = retry_here(self.supervisors, controller, id)
        replies = await self._ask(asked, lambda: observe_pb.Question(why=id_without_uid(id), retry=controller))
        done = {each.process: answer.running for each, answer in replies if answer is not None and answer.retried}
        return here | done, self._away() + [each.process for each, answer in replies if answer is None]

    async def elsewhere(self, most: int) -> tuple[list[Elsewhere], int]:
        """Return the controllers of the processes that attend, and of those that are gone, and how many are left out.

        At most ``most`` are returned, and only their processes are asked.
        """
        every = [
            (attending, Elsewhere(caller, attending.process, name, kind))
            for (caller, _), attending in self._attending.items()
            for name, kind in attending.controllers.items()
        ]
        shown = every[:most]
        asked = {id(attending): attending for attending, _ in shown}
        now_of: dict[tuple[int, str], observe_pb.ControllerNow] = {}
        for attending, answer in await self._ask(list(asked.values()), lambda: observe_pb.Question(now=True)):
            for each in [] if answer is None else answer.now:
                del each.failing[FAILING:]
                now_of[id(attending), each.name] = cleaned(each)
                await give_way()
        # A process speaks for its own controllers only: other names are never asked for here.
        found = [
            each._replace(now=now_of.get((id(attending), each.name)))
            for attending, each in shown
            # It may have disconnected in the meantime.
            if (each.caller, each.process) in self._attending
        ]
        since = wall_time() - _GONE_SECONDS
        gone = [
            Elsewhere(caller, process, name, kind, gone=at)
            for (caller, process), (at, controllers) in self._gone.items()
            if at > since
            for name, kind in controllers.items()
        ]
        known = {each.name for each in gone}
        gone += [
            Elsewhere("", each.process, each.controller, each.manages.unversioned, gone=each.since)
            for each in self.absent
            if each.controller not in known
        ]
        room = most - len(found)
        found += gone[:room]
        return found, len(every) - len(shown) + max(len(gone) - room, 0)

    async def refused_elsewhere(self) -> Mapping[str, int]:
        """Return how many commits the other processes of this server have refused, by the names of quotas."""
        refused = Counter[str]()
        for _, answer in await self._ask(self._siblings(), lambda: observe_pb.Question(refused=True)):
            refused.update({} if answer is None else answer.refused)
        return refused

    # --- processes that attend ---

    @asynccontextmanager
    async def attended(
        self,
        process: str,
        controllers: dict[str, Kind],
        caller: str = "",
        sort: Sort = Sort.WORKER,
        rights: AttendingRights | None = None,
        scoped: Collection[str] = (),
    ) -> AsyncIterator[Attending]:
        """Let a process of a caller attend during the block. This ends the stream of an earlier process with its name.

        Raises Busy if too many processes attend, in all or of the caller, or if a relayed worker attends here directly.
        """
        if sort is Sort.SIBLING:
            caller = _SIBLINGS
        name = (caller, process)
        earlier = self._attending.get(name)
        if earlier is not None and sort is Sort.RELAYED and earlier.sort is Sort.WORKER:
            raise Busy
        if self._are_too_many(name, len(controllers)):
            self._note_turned_away(controllers, process)
            raise Busy
        if earlier is not None:
            earlier.end()
        attending = self._attending[name] = Attending(process, controllers, caller, sort, rights, self.number, scoped)
        self._gone.pop(name, None)
        self.attended_next.set()
        self.attended_next = trio.Event()
        if self._ended:
            attending.end()
        elif sort is Sort.WORKER:
            for begin in self._followers:
                begin(attending)
        try:
            yield attending
        finally:
            attending.end()
            self._note_left(controllers, process)
            if self._attending.get(name) is attending:
                del self._attending[name]
                self._gone[name] = (wall_time(), controllers)
                self._bound_gone(lambda _: 1, _MOST_GONE)
                self._bound_gone(len, _MOST_LEFT)

    def _note_left(self, controllers: Iterable[str], process: str) -> None:
        for each in controllers:
            self._left[each] = (wall_time(), process)
            self._left.move_to_end(each)
        while len(self._left) > _MOST_LEFT:
            self._left.popitem(last=False)

    def _note_turned_away(self, controllers: Mapping[str, Kind], process: str) -> None:
        for name, kind in controllers.items():
            self._turned_away[name] = (trio.current_time(), process, kind)
            self._turned_away.move_to_end(name)
        while len(self._turned_away) > _MOST_LEFT:
            self._turned_away.popitem(last=False)

    def _siblings(self) -> list[Attending]:
        return [each for each in self._attending.values() if each.sort is Sort.SIBLING]

    def _away(self) -> list[str]:
        return sorted({*self.siblings} - {each.process for each in self._siblings()})

    def _bound_gone(self, weigh: Callable[[dict[str, Kind]], int], most: int) -> None:
        """Forget the oldest process of the caller that has the most, until all together weigh no more than this."""
        weights = Counter[str]()
        for (caller, _), (_, controllers) in self._gone.items():
            weights[caller] += weigh(controllers)
        while weights.total() > most:
            heaviest = max(weights, key=weights.__getitem__)
            oldest = next(each for each in self._gone if each[0] == heaviest)
            _, controllers = self._gone.pop(oldest)
            weights[heaviest] -= weigh(controllers)

    def _are_too_many(self, name: tuple[str, str], controllers: int) -> bool:
        """Return True if a process with so many controllers may not attend beside the others."""
        others = {each: len(attending.controllers) for each, attending in self._attending.items() if each != name}
        own = [count for (caller, _), count in others.items() if caller == name[0]]
        is_new = name not in self._attending
        return (
            (is_new and (len(others) >= MOST_ATTENDING or len(own) >= _share(name[0], MOST_ATTENDING)))
            or sum(others.values()) + controllers > MOST_ATTENDED
            or sum(own) + controllers > _share(name[0], MOST_ATTENDED)
        )

    @contextmanager
    def following(self, begin: Callable[[Attending], None]) -> Iterator[None]:
        """Call ``begin`` for each worker that attends here directly, now or later, while the block runs."""
        for each in self._attending.values():
            if each.sort is Sort.WORKER:
                begin(each)
        self._followers.append(begin)
        try:
            yield
        finally:
            self._followers.remove(begin)

    def names(self, types: Collection[str] | None = None) -> list[str]:
        """Return the names of the controllers of these types, or of all, that the server knows."""
        known = self.kinds() | {each.controller: each.manages.unversioned for each in self.absent}
        kinds = None if types is None else {TypeName(*each.rsplit(".", 2)).unversioned for each in types}
        return sorted(name for name, kind in known.items() if kinds is None or kind in kinds)

    def running(self) -> dict[str, tuple[str, Kind]]:
        """Return the controllers that workers run: one process of each, and the kind that it manages.

        A worker that may not attend because too many do, and asks again and again, runs its controllers as well.
        """
        since = trio.current_time() - _TURNED_AWAY_SECONDS
        asking = {name: (process, kind) for name, (at, process, kind) in self._turned_away.items() if at > since}
        workers = (each for each in self._attending.values() if each.sort is not Sort.SIBLING)
        return asking | {name: (each.process, kind) for each in workers for name, kind in each.controllers.items()}

    def scoped(self) -> set[str]:
        """Return the controllers that manage a part of their kind only."""
        own = {
            each.fence_name
            for each in self.supervisors
            if each.definition is not None and isinstance(each.definition.manages, ScopedType)
        }
        return own.union(*(each.scoped for each in self._attending.values()))

    def kinds(self) -> dict[str, Kind]:
        """Return the controllers of this server and of the workers that attend, with the kinds that they manage."""
        own = {each.fence_name: each.definition.manages.kind for each in self.supervisors if each.definition}
        return own | {name: kind for each in self._attending.values() for name, kind in each.controllers.items()}

    def runs_here(self, controller: str) -> bool:
        """Return True if this server has the controller itself."""
        own = any(each.fence_name == controller for each in self.supervisors)
        return own or any(controller in each.controllers for each in self._siblings())

    def left(self, controller: str) -> tuple[float, str] | None:
        """Return when the last process with a controller has left, and which it was."""
        return self._left.get(controller)

    async def holds_lease(self, controller: str) -> bool:
        """Return True if any process holds a lease of the controller, also one that another server asks."""
        held = () if self._read_leases is None else await self._read_leases(controller)
        return any(each.lease.name.partition("#")[0] == controller for each in held)

    def answered(self, answer: observe_pb.AnswerRequest) -> bool:
        """Hand an answer to its question. Return False if no question waits for it."""
        return any(each.answered(answer) for each in list(self._attending.values()))

    def absent_status(self) -> list[ControllerStatus]:
        """Return the state of the controllers that are wanted and run nowhere."""
        return [each.status() for each in self.absent]

    def attending(self) -> list[str]:
        """Return the names of the processes that attend, sorted."""
        return sorted(process for _, process in self._attending)

    def end(self) -> None:
        """End all streams, because the engine ends."""
        self._ended = True
        for each in self._attending.values():
            each.end()

    def _leases(self) -> Leases:
        connected = {(each.process, name) for each in self._attending.values() for name in each.controllers}
        return Leases(self._read_leases, connected | {(each.process, each.fence_name) for each in self.supervisors})

    async def _ask_all(
        self, question: Callable[[], observe_pb.Question]
    ) -> list[tuple[Attending, observe_pb.AnswerRequest | None]]:
        return await self._ask(list(self._attending.values()), question)

    async def _ask(
        self, processes: Sequence[Attending], question: Callable[[], observe_pb.Question]
    ) -> list[tuple[Attending, observe_pb.AnswerRequest | None]]:
        replies: list[tuple[Attending, observe_pb.AnswerRequest | None]] = []

        async def ask(attending: Attending) -> None:
            replies.append((attending, await attending.ask(question())))

        async with trio.open_nursery() as nursery:
            for each in processes:
                nursery.start_soon(ask, each)
        return sorted(replies, key=lambda each: each[0].process)

    # --- what the server knows itself ---

    def _finalizing(self, kind: Kind) -> dict[str, str]:
        """Return the controllers that remove finalizers from resources of a kind, by the names of the finalizers."""
        gone = [of for _, of in self._gone.values()]
        # After a restart of the server, only the records tell of the controllers that run in no process.
        gone.append({each.controller: each.manages.unversioned for each in self.absent})
        # A process names the finalizers of the types that it attends for, and of no others.
        named = {name.rpartition("/")[2]: name for of in gone for name in of if of[name] == kind}
        # No finalizer has the name of a controller of Headway, so "reaper" is a program's own.
        programs = [each for each in self.supervisors if not each.fence_name.startswith(f"{BUILTIN_APP}/")]
        # Two apps may have a controller of this name. A program may also use its finalizer for types that it only uses.
        programs.sort(key=lambda each: each.definition is not None and each.definition.manages.kind == kind)
        named |= {each.name: each.fence_name for each in programs}
        attending = (each.controllers for each in self._attending.values())
        named |= {name.rpartition("/")[2]: name for of in attending for name in of if of[name] == kind}
        return named | {each.name: each.controller for each in OWN_FINALIZERS if each.kind == kind}

    def writes_of(self, id: ResourceId) -> list[observe_pb.PastWrite]:
        """Return the last writes of a resource that this process has committed, the newest first."""
        if self._journal is None:
            return []
        wall = to_wall()
        found = islice(self._journal.writes.of(id.type.unversioned, id.key), WRITES)
        return [observe_pb.PastWrite(wall(each.at), each.revision, each.verb, self._writer(each)) for each in found]

    def writers_of(self, revisions: set[int]) -> dict[int, str]:
        """Return the writers of these revisions that this process has committed."""
        if self._journal is None:
            return {}
        return {at: self._writer(each) for at, each in self._journal.writes.at(revisions).items()}

    def _writer(self, written: Written) -> str:
        return written.writer or (_PROGRAM if self.names_callers else "")

    async def _with_writers(self, controllers: Sequence[observe_pb.ControllerWhy]) -> list[observe_pb.ControllerWhy]:
        """Return the parts with the writer of each cause. Only the process that committed a write knows its writer."""
        wanted = {each.revision for part in controllers for each in (*part.causes, *past_causes(part))} - {0}
        writers = self.writers_of(wanted)
        if self.siblings and (unknown := sorted(wanted - writers.keys())):
            for _, answer in await self._ask(self._siblings(), lambda: observe_pb.Question(revisions=unknown)):
                writers |= {} if answer is None else {each.revision: each.writer for each in answer.writes}

        return with_writers(controllers, writers)

    def _gone_of(self, kind: Kind) -> list[observe_pb.Gone]:
        since = wall_time() - _GONE_SECONDS
        gone = [
            observe_pb.Gone(process, at, sorted(name for name, of in controllers.items() if of == kind))
            for (_, process), (at, controllers) in self._gone.items()
            if at > since and kind in controllers.values()
        ]
        known = {name for each in gone for name in each.controllers}
        return gone + [
            observe_pb.Gone(each.process, each.since, [each.controller])
            for each in self.absent
            if each.manages.unversioned == kind and each.controller not in known
        ]


def _share(caller: str, most: int) -> int:
    """Return how many of these one caller may have. A program without access control has no other callers."""
    return max(1, most * 3 // 4) if caller else most
