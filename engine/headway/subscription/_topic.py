"""A program's own topic: events by subject that are not resources, for subscribers of this process's engines."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import Any, Generic, TypeVar

import betterproto2
import trio
from trio.lowlevel import TrioToken

from headway.base import answer_problem, current_run, ended, plain_problem, repr_text
from headway.errors import DeclarationError, InvalidArgument, PayloadError
from headway.protobuf import bind_name, decode, encode, field, message
from headway.resource import AnyMessage, DescribedTopic, name_problem
from headway.subscription._topic_log import MAX_EVENTS, TopicEvent, TopicLog, TopicPosition

T = TypeVar("T")

ANY_SUBJECT = "*"
"""The subject that stands for all subjects of a topic."""

MAX_SUBJECT = 255
"""The maximum length of a subject, in characters."""

MAX_PUBLISHED = 1 << 20
"""The maximum size of what one call publishes, in bytes. Clients accept messages of four MiB."""

FORM = 'app.topic("rates", Rate, snapshot=current)'

_URL = "type.googleapis.com/"


@cache
def _bytes_class() -> type[Any]:
    """Return the class of events that are bytes. It is declared at its first use, because few topics have such."""

    @message(name="google.protobuf.BytesValue")
    class BytesValue:
        value: bytes = field(1)

    return BytesValue


class Topic(Generic[T]):
    """Events of a program, by subject: ``RATES = app.topic("rates", Rate, snapshot=current)``. See `App.topic`.

    All methods must be called on Trio's thread.

    Attributes:
        name: the topic's name.
        payload: the message class of its events; None if they are bytes.
        wildcard: True if subscribers may ask for all subjects at once.
    """

    def __init__(
        self,
        name: str,
        payload: type[Any] | None,
        snapshot: Callable[[str], Mapping[str, T]],
        *,
        wildcard: bool = False,
    ) -> None:
        _check_declaration(name, payload, snapshot)
        self.name = name
        self.payload = payload
        self.wildcard = wildcard
        self._class: type[Any] = payload or _bytes_class()
        self._raw = payload is None
        self._url = _URL + bind_name(self._class, f"topics.{name.replace('-', '_')}")
        self._snapshot = snapshot
        self._log = TopicLog(name)
        self._incarnation = uuid.uuid4().hex
        # Imported here, because most programs have no topic, and clients need no store.
        from headway.storage import Pulse

        self._pulse = Pulse()
        # Snapshots that nothing was published after. Invariant: only of subjects that have subscribers.
        self._snapshots: dict[str, list[TopicEvent]] = {}
        self._subscribers: Counter[str] = Counter()
        # The run of Trio in which they wait.
        self._home: TrioToken | None = None

    def __repr__(self) -> str:
        return f"<Topic {self.name}>"

    @property
    def position(self) -> TopicPosition:
        """The position of the last event."""
        return TopicPosition(self.name, self._incarnation, self._log.head)

    def publish(self, events: Mapping[str, T]) -> TopicPosition:
        """Publish events by subject, which stay together, and return their position: ``RATES.publish({"EUR": rate})``.

        The events are copied. This never blocks. Publish each change of your state without a checkpoint between the
        two.

        Raises:
            InvalidArgument: a subject or an event is not valid, or all of them are too large. Nothing is published.
        """
        self._check_thread()
        given: object = events
        if not isinstance(given, Mapping) or not given:
            raise InvalidArgument(
                f"publish() of topic {self.name} expects events by subject, such as "
                f'publish({{"EUR": rate}}), not {repr_text(given)}'
            )
        if len(events) > MAX_EVENTS:
            raise InvalidArgument(
                f"publish() of topic {self.name} got {len(events)} events: publish at most {MAX_EVENTS} in one call"
            )
        encoded = {self._checked(subject): self._encoded(subject, event) for subject, event in events.items()}
        if (size := sum(len(data.value) for data in encoded.values())) > MAX_PUBLISHED:
            raise InvalidArgument(
                f"publish() of topic {self.name} got {size} bytes: publish at most {MAX_PUBLISHED} bytes in one call"
            )
        self._log.append(encoded)
        for subject in (*encoded, ANY_SUBJECT):
            self._snapshots.pop(subject, None)
        self._pulse.beat()
        return self.position

    def reset(self) -> None:
        """Make every subscriber take a new snapshot, because the state was replaced. Positions so far are void."""
        self._check_thread()
        self._incarnation = uuid.uuid4().hex
        # The events of the old state must not follow a snapshot of the new one.
        self._log = TopicLog(self.name)
        self._snapshots.clear()
        self._pulse.beat()

    # --- called by the service and the client ---

    def described(self) -> DescribedTopic:
        """Return the description of the topic for clients."""
        return DescribedTopic(self.name, self.wildcard, self._url.removeprefix(_URL), self.payload)

    @property
    def subscribers(self) -> int:
        """The number of subscriptions to a subject of this topic, or to all of them."""
        return self._subscribers.total()

    @property
    def kept_snapshots(self) -> int:
        """The number of snapshots that are kept for further subscribers."""
        return len(self._snapshots)

    @property
    def log(self) -> TopicLog:
        """The log of the current incarnation."""
        return self._log

    @contextmanager
    def subscribed(self, subjects: frozenset[str]) -> Iterator[None]:
        """Count a subscriber of these subjects during the block. The last one that leaves frees what is kept for it."""
        self._home = current_run()
        self._subscribers.update(subjects)
        try:
            yield
        finally:
            self._subscribers.subtract(subjects)
            for subject in subjects:
                if not self._subscribers[subject]:
                    del self._subscribers[subject]
                    self._snapshots.pop(subject, None)

    def snapshot(self, subject: str) -> list[TopicEvent]:
        """Return the current events of a subject, or of all of them for `ANY_SUBJECT`. Contains no checkpoint.

        Subscribers share the result until something is published. A failed snapshot is not kept.

        Raises:
            TypeError: the program's function returned something else than events by subject.
        """
        kept = self._snapshots.get(subject)
        if kept is not None:
            return kept
        before = self.position
        found: object = self._snapshot(subject)
        if problem := answer_problem(found):
            raise TypeError(f"snapshot of topic {self.name} {problem}")
        if not isinstance(found, Mapping) or not (subject == ANY_SUBJECT or found.keys() <= {subject}):
            raise TypeError(
                f"snapshot of topic {self.name} was called with {subject!r}: it must return the events by subject "
                f"that this selects, such as {{{subject!r}: event}} or {{}}, not {repr_text(found)}"
            )
        events = [TopicEvent(self.name, self._checked(each), self._encoded(each, found[each])) for each in found]
        if self._subscribers[subject] and self.position == before:
            self._snapshots[subject] = events
        return events

    async def wait(self, after: TopicPosition) -> None:
        """Wait until the topic is not at this position."""
        await trio.lowlevel.checkpoint()
        while self.position == after:
            await self._pulse.wait()

    def decoded(self, data: AnyMessage) -> T:
        """Return an event. Raise PayloadError if it does not decode, or is of another class."""
        if data.type_url != self._url:
            raise PayloadError(f"topic {self.name} has events {self._url}, got {repr_text(data.type_url)}")
        event: Any = decode(self._class, data.value)
        event = event.value if self._raw else event
        decoded: T = event
        return decoded

    def _encoded(self, subject: str, event: object) -> AnyMessage:
        wanted = bytes if self._raw else self._class
        if not isinstance(event, wanted):
            raise InvalidArgument(
                f"topic {self.name}: the event of {subject!r} must be a {wanted.__name__}, not {repr_text(event)}"
            )
        data = encode(self._class(value=event) if self._raw else event)  # type: ignore[arg-type]
        if len(data) > MAX_PUBLISHED:
            raise InvalidArgument(
                f"topic {self.name}: the event of {subject!r} has {len(data)} bytes: "
                f"it must have at most {MAX_PUBLISHED}"
            )
        return AnyMessage(type_url=self._url, value=data)

    def _checked(self, subject: object) -> str:
        if problem := subject_problem(subject):
            raise InvalidArgument(f"topic {self.name}: {problem}")
        assert isinstance(subject, str)
        return subject

    def _check_thread(self) -> None:
        if not self._subscribers:
            return
        if not trio.lowlevel.in_trio_run() or trio.lowlevel.current_trio_token() is not self._home:
            raise InvalidArgument(
                f"topic {self.name} has subscribers on Trio's thread: call it there, such as by "
                "trio.from_thread.run_sync(topic.publish, events, trio_token=token)"
            )


def subject_problem(subject: object) -> str | None:
    """Return the problem with a subject of a topic, or None if it is valid."""
    if not isinstance(subject, str):
        return f"subject {repr_text(subject)} must be a string, such as 'EUR'"
    if subject == ANY_SUBJECT:
        return f"subject {ANY_SUBJECT!r} stands for all subjects: name one, such as 'EUR'"
    if not 0 < len(subject) <= MAX_SUBJECT or not subject.isprintable():
        return f"subject {repr_text(subject)} must have from 1 to {MAX_SUBJECT} printable characters, such as 'EUR'"
    return None


def _check_declaration(name: object, payload: object, snapshot: object) -> None:
    problem = name_problem("a topic's name", name)
    if (
        problem is None
        and payload is not None
        and not (isinstance(payload, type) and issubclass(payload, betterproto2.Message))
    ):
        problem = f"payload {repr_text(payload)} must be a @headway.message class, or left out for bytes"
    if problem is None and (wrong := plain_problem(snapshot, 1, "a subject")):
        problem = f"snapshot {wrong}"
    if problem:
        raise DeclarationError(f"app.topic: {ended(problem)} The form is: {FORM}")
