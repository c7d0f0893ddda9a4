"""A state machine that drives a subscription under lost streams, lagging servers, lost history, resets and restores.

Whatever happens, the state that a program keeps from its batches is one that the store and the topic have had, at the
position of the last batch: never half a commit, never empty by accident, and never older than before, unless the
subscription has ended with an error that says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import trio
from grpclib.const import Status
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

import headway
from headway.client import Client
from headway.errors import StoreChanged
from headway.resource import Position, ResourceType
from headway.rpc import InProcessChannel
from headway.storage import Operation
from headway.subscribing import Subscription
from headway.subscription import SubscriptionPosition, Topic
from headway.testing import LiveRun
from tests.helpers.declared import CHILD, NOTE, registry, text_of
from tests.helpers.faulty_subscription import FaultySubscription
from tests.helpers.restorable import Backup, RestorableBackend
from tests.helpers.subscribing import a_service, put, remove
from tests.helpers.truth import Commit

TYPES: list[ResourceType[Any]] = [NOTE, CHILD]
NAMES, CURRENCIES = ("a", "b"), ("EUR", "CHF")
SELECTIONS = range(3)
"""The subjects of a subscription: everything, some names, and one type."""

State = dict[tuple[str, str], str]

writes = st.lists(st.tuples(st.sampled_from([0, 1]), st.sampled_from(NAMES), st.booleans()), min_size=1, max_size=4)
commits = st.lists(writes, max_size=3)


class SubscribeMachine(LiveRun, RuleBasedStateMachine):
    """Hypothesis commits, publishes, harms streams and restores the store, while a program reads at any pace."""

    batches: Subscription

    def __init__(self) -> None:
        super().__init__()
        self.store = RestorableBackend()
        self.published: dict[str, bytes] = {}
        self.topic: Topic[bytes] = Topic("rates", None, self._current, wildcard=True)
        # The current events of the topic after each call, by incarnation.
        self.events: dict[str, list[dict[str, bytes]]] = {}
        self._note_published()
        self.channel = FaultySubscription(InProcessChannel(a_service(self.store, {"rates": self.topic})))
        self.client = Client(self.channel, registry())
        self.backup: Backup | None = None
        # The commits of the sessions of the store that a restore has ended.
        self.lost: dict[str, list[Commit]] = {}
        # The state of the program, with its subjects and its position.
        self.state: State = {}
        self.rates: dict[str, bytes] = {}
        self.selection = self.asked = 0
        self.position: SubscriptionPosition | None = None
        self.written = 0
        self._leave = trio.Event()

    def _current(self, subject: str) -> dict[str, bytes]:
        return {each: value for each, value in self.published.items() if subject in (each, "*")}

    def _note_published(self) -> None:
        # A reset topic counts its calls anew, and its first snapshot has what was published before.
        self.events.setdefault(self.topic.position.incarnation, []).append(dict(self.published))

    # --- the program ---

    @initialize(first=commits, selection=st.sampled_from(SELECTIONS))
    def begin(self, first: list[list[tuple[int, str, bool]]], selection: int) -> None:
        for each in first:
            self.commit(each)
        self._subscribe(selection, None)

    def _subscribe(self, selection: int, after: SubscriptionPosition | None) -> None:
        self.asked = selection
        if after is None:
            self.position = None
        self._leave = trio.Event()

        async def subscribed(leave: trio.Event, task_status: trio.TaskStatus[Subscription]) -> None:
            subjects = self._subjects(selection)
            async with self.client.subscribe(subjects, resume_after=after, progress_interval=0.01) as batches:
                task_status.started(batches)
                await leave.wait()

        async def start() -> Subscription:
            batches: Subscription = await self.nursery.start(subscribed, self._leave)
            return batches

        self.batches = self.call(start)

    def _subjects(self, selection: int) -> Sequence[Any]:
        return (
            [*TYPES, self.topic],
            [headway.Subject(NOTE, "a"), CHILD, headway.Subject(self.topic, "EUR")],
            [NOTE],
        )[selection]

    @rule(count=st.integers(1, 4))
    def receive(self, count: int) -> None:
        """Read some batches, and compare the state after each."""
        for _ in range(count):
            if not self._receive():
                break

    def _receive(self) -> bool:
        """Read the next batch if there is one. A program whose store was replaced begins anew."""
        found: list[headway.subscribing.SubscriptionBatch] = []

        async def read() -> None:
            with trio.move_on_after(1.0):
                found.append(await anext(self.batches))

        try:
            self.call(read)
        except StoreChanged:
            assert self.restored, "the store is the one that it was"
            self._end_subscription()
            self._subscribe(self.asked, None)
            return True
        if found:
            self._apply(found[0])
        return bool(found)

    def _apply(self, batch: headway.subscribing.SubscriptionBatch) -> None:
        if batch.snapshot:
            self.state, self.rates, self.selection = {}, {}, self.asked
        for event in batch.events:
            match event:
                case headway.client.Upserted(resource):
                    self.state[resource.type.name.kind, resource.name] = resource.data.text
                case headway.client.Deleted(resource):
                    del self.state[resource.type.name.kind, resource.name]
                case headway.subscribing.Published(_, subject, data):
                    self.rates[subject] = data
        assert self.selection == self.asked, "a subscription to other subjects was resumed"
        self._check_position(batch.position)
        self.position = batch.position
        self._check_state()

    def _check_position(self, position: SubscriptionPosition) -> None:
        assert position.store is not None
        if self.position is not None:
            assert self.position.store is not None
            assert self.position.store.store_id == position.store.store_id, "it went to another store unseen"
            assert self.position.store.session == position.store.session, "it went to another history unseen"
            assert self.position.store.revision <= position.store.revision, "it went back"
            before = {each.incarnation: each.number for each in self.position.topics}
            assert all(before.get(each.incarnation, 0) <= each.number for each in position.topics), "it went back"
        # A batch that was on its way before a restore has the id of the restored store, but not its session.
        if position.store.session == self.store.position.session:
            self.restored = False

    def _check_state(self) -> None:
        assert self.position is not None
        assert self.position.store is not None
        assert self.state == self._truth(self.position.store)
        for topic in self.position.topics:
            rates = self.events[topic.incarnation][topic.number]
            assert self.rates == {each: rates[each] for each in rates if self.selection == 0 or each == "EUR"}

    def _truth(self, at: Position) -> State:
        """Return the resources of the program's subjects at a position."""
        state: State = {}
        for commit in self.lost.get(at.session, self.store.commits):
            if commit.revision <= at.revision:
                self._follow(state, commit)
        return {key: text for key, text in state.items() if self._selects(*key)}

    def _selects(self, kind: str, name: str) -> bool:
        if self.selection == 1:
            return kind == "Child" or name == "a"
        return self.selection == 0 or kind == "Note"

    @staticmethod
    def _follow(state: State, commit: Commit) -> None:
        key = (commit.kind[1], commit.key[2])
        if commit.new is None:
            state.pop(key, None)
        else:
            state[key] = text_of(commit.new)

    @rule(selection=st.sampled_from(SELECTIONS), resume=st.booleans())
    def subscribe_again(self, selection: int, resume: bool) -> None:
        """The program is restarted, with the position that it has kept or without it."""
        self._end_subscription()
        self._subscribe(selection, self.position if resume else None)

    def _end_subscription(self) -> None:
        self._leave.set()
        self.run_until_blocked()

    # --- the store and the topic ---

    @rule(what=writes)
    def commit(self, what: list[tuple[int, str, bool]]) -> None:
        """Write several resources of both types in one commit."""
        operations: dict[tuple[int, str], Operation] = {}
        for kind, name, delete in what:
            type = TYPES[kind]
            held = self.store.resources(type).get(name)
            version = "" if held is None else held.version
            self.written += 1
            if not delete:
                operations[kind, name] = put(name, str(self.written), type, expected=version)
            elif held is not None:
                operations[kind, name] = remove(name, type, expected=version)
        if operations:
            self.call(self.store.commit, list(operations.values()))

    @rule(subjects=st.lists(st.sampled_from(CURRENCIES), min_size=1, unique=True))
    def publish(self, subjects: list[str]) -> None:
        self.written += 1
        events = dict.fromkeys(subjects, str(self.written).encode())

        async def publish() -> None:
            # Without a checkpoint between the two, as a program has to. A snapshot in between would be ahead of its
            # position.
            self.published |= events
            self.topic.publish(events)
            self._note_published()

        self.call(publish)

    @rule()
    def reset(self) -> None:
        async def reset() -> None:
            self.topic.reset()

        self.call(reset)
        self._note_published()

    @rule()
    def compact(self) -> None:
        self.store.compact()

    @rule()
    def back_up(self) -> None:
        self.backup = self.store.back_up()

    restored = False

    @precondition(lambda self: self.backup is not None)
    @rule(new_id=st.booleans(), what=commits)
    def restore(self, new_id: bool, what: list[list[tuple[int, str, bool]]]) -> None:
        """Put the store back to a backup, perhaps one that the program has seen more than."""
        backup, self.backup = self.backup, None
        assert backup is not None
        self.channel.behind_for = 0
        self.restored = True
        self.lost[self.store.position.session] = list(self.store.commits)
        self.store.restore(backup, new_id=new_id)
        for each in what:
            self.commit(each)

    # --- the network and the servers ---

    @rule(count=st.integers(1, 3), status=st.sampled_from([Status.UNAVAILABLE, Status.ABORTED, None]))
    def lose(self, count: int, status: Status | None) -> None:
        """Lose the stream with the next item, and perhaps the streams after it."""
        self.channel.drops, self.channel.status = count, status

    @rule(count=st.integers(1, 2))
    def repeat(self, count: int) -> None:
        self.channel.repeats = count

    @rule(count=st.integers(1, 3), what=commits)
    def lag(self, count: int, what: list[list[tuple[int, str, bool]]]) -> None:
        """Lose the stream. The next ones come from a server that has stopped at the present state."""
        replica = RestorableBackend()
        replica.restore(self.store.back_up(), new_id=False)
        here = self.store.position
        replica._store_id, replica._session = here.store_id, here.session
        replica._position = replica._at(here.revision)
        self.channel.behind = InProcessChannel(a_service(replica, {"rates": self.topic}))
        self.channel.behind_for = count
        for each in what:
            self.commit(each)
        self.lose(1, Status.UNAVAILABLE)

    @rule(seconds=st.sampled_from([0.01, 0.3, 5.0]))
    def pass_time(self, seconds: float) -> None:
        self.sleep(seconds)

    def teardown(self) -> None:
        """End the faults. Then the program gets everything."""
        try:
            if hasattr(self, "batches"):
                self.channel.heal()
                self.sleep(200.0)
                # A server that lags keeps the streams that it has.
                self.subscribe_again(self.asked, resume=True)
                for _ in range(500):
                    if not self._receive():
                        break
                assert self.selection == self.asked, "the subscription has not begun"
                assert self.batches.problem is None
                assert self.batches.position is not None
                assert self.batches.position.store is not None
                assert self.batches.position.store.revision == self.store.position.revision
                self._check_state()
                assert self.state == self._truth(self.store.position)
                if self.selection == 0:
                    assert self.rates == self.published
        finally:
            super().teardown()


# A failure is shrunk for up to five minutes.
TestSubscribe = pytest.mark.timeout(400)(SubscribeMachine.TestCase)
BOUND: Any = settings.default
TestSubscribe.settings = settings(BOUND, report_multiple_bugs=False)
