"""The block around an effect outside that must not be repeated."""

from __future__ import annotations

import contextlib
from types import TracebackType
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import trio

from headway.base import KeyTurns
from headway.errors import HeadwayError, InvalidArgument, PermanentFailure
from headway.reconcile import MAPPING, RECONCILING, Block, NewestStatuses
from headway.resource import ConditionState, Resource
from headway.steps._record import (
    BEGUN,
    DONE,
    FAILED,
    SUFFIX,
    Inputs,
    checked_text,
    find,
    key_of,
    record_name,
    with_record,
)
from headway.steps._reported import StepUncertain

if TYPE_CHECKING:
    from headway.reconcile import Runtime


_LAST = 2.0
"""The maximum duration, in seconds, of storing an outcome after the block was canceled."""


class _OfRun:
    """The steps of one run: those that are open, and the turns of the tasks that write a status.

    Attributes:
        wrong: by the name of a step, what is wrong with its program: no step of this name is begun again.
    """

    def __init__(self) -> None:
        self.open: set[object] = set()
        self.turns = KeyTurns()
        self.wrong: dict[str, str] = {}


_RUNS: WeakKeyDictionary[NewestStatuses, _OfRun] = WeakKeyDictionary()


class Step(Block):
    """A block around an effect outside that must not be repeated. Created by `Runtime.step`.

    Before the block begins, its intention is stored, and when it ends, its result. If the first write fails, the block
    does not begin; a run that has been superseded thus begins no step. If the process dies in between, or the block
    raises, it is entered again, and ``uncertain`` is true then.

    A step that is done is entered, too, so that later code finds its result. Its block must ask ``done`` first. If it
    does not, PermanentFailure is raised when it ends, and then before any step of this name in this run begins.

    If the block raises or is canceled after it has set the result or has called `failed`, that is stored all the same.
    """

    _usage = "rt.step(resource, name) as step"

    def __init__(
        self, rt: Runtime, statuses: NewestStatuses, resource: Resource[Any], name: str, inputs: Inputs
    ) -> None:
        self._record = record_name(name, inputs)
        _check_own(rt, resource, name)
        self._rt = rt
        self._statuses = statuses
        self._resource = resource
        self._name = name
        self._status_key = f"{rt.controller}{SUFFIX}"
        self._run = _RUNS.setdefault(statuses, _OfRun())
        self._key = key_of(resource.id, self._status_key, self._record)
        self._done = self._uncertain = False
        # What the block says of the effect: done with a result, or failed for a reason.
        self._outcome: tuple[ConditionState, str, str] | None = None
        self._asked = False
        super().__init__()

    @property
    def done(self) -> bool:
        """True if the effect has happened and its result is stored: skip it."""
        self._check_begun("step.done")
        self._asked = True
        return self._done

    @property
    def uncertain(self) -> bool:
        """True if the step was begun before and never ended: the effect may have happened, and may even be under way.

        Ask the outside, or repeat the effect with the same `key` if the outside carries out each key once.
        """
        self._check_begun("step.uncertain")
        return self._uncertain

    @property
    def key(self) -> str:
        """A key for the outside: a UUID, the same whenever this incarnation of the resource enters this step.

        Raises:
            PermanentFailure: the step is done, so that the effect must be skipped.
        """
        self._check_begun("step.key")
        if self._done:
            raise self._repeats("step.key")
        return self._key

    @property
    def result(self) -> str:
        """The result, also after the block; empty without one. A block that sets none is done when it ends."""
        self._check_begun("step.result")
        return self._outcome[2] if self._outcome is not None and self._outcome[1] == DONE else ""

    @result.setter
    def result(self, text: str) -> None:
        self._check_open("step.result")
        if self._done:
            raise self._repeats("step.result = ...")
        try:
            self._outcome = ConditionState.TRUE, DONE, checked_text(f"step {self._name!r}: the result", text)
        except InvalidArgument as error:
            # The effect has happened, and a retry would repeat it for the same result.
            raise PermanentFailure(str(error)) from None

    def failed(self, why: str) -> None:
        """Say that the effect has certainly not happened, such as when the outside has refused it.

        The next time, ``uncertain`` is false. Then raise, if the key is to be reconciled again.
        """
        self._check_open("failed()")
        if self._done:
            raise self._repeats("failed()")
        self._outcome = ConditionState.FALSE, FAILED, checked_text(f"step {self._name!r}: failed(): why", why)

    async def __aenter__(self) -> Step:
        self._entered = True
        if wrong := self._run.wrong.get(self._name):
            raise PermanentFailure(f"{wrong}. No step of this name begins again in this run of the controller")
        stored = self._statuses.get(self._resource, self._status_key)
        record = None if stored is None else find(stored.conditions, self._record)
        if record is not None and record.state == ConditionState.TRUE:
            self._done, self._outcome = True, (record.state, DONE, record.message)
            self._is_open = True
            return self
        if (opened := (self._resource.id, self._status_key, self._record)) in self._run.open:
            raise InvalidArgument(
                f"step {self._name!r} of {self._resource.id} is open in another task: its effect would happen twice. "
                "Enter it in one task, or give each effect a name or inputs of its own"
            )
        self._run.open.add(opened)
        try:
            if record is not None and record.state == ConditionState.UNKNOWN:
                # The key that the outside was given, even if this program would make another one.
                self._uncertain, self._key = True, record.message
            # Also if that is stored already: the store then checks the fence, and a former leader does not go on.
            await self._write(ConditionState.UNKNOWN, BEGUN, self._key)
        except BaseException:
            self._run.open.discard(opened)
            raise
        if self._uncertain:
            self._rt.report(StepUncertain(self._rt.full_name, self._resource.id, self._name, self._key))
        self._is_open = True
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            repeats = None
            if not self._asked and (error is None or (not self._done and self._outcome is not None)):
                repeats = self._repeats("the block")
            if not self._done:
                await self._end(error)
            if repeats is not None and error is None:
                raise repeats
        finally:
            self._is_open = False
            self._run.open.discard((self._resource.id, self._status_key, self._record))

    async def _end(self, error: BaseException | None) -> None:
        if error is None and self._outcome is None:
            self._outcome = ConditionState.TRUE, DONE, ""
        if self._outcome is None:
            return
        try:
            await self._write(*self._outcome)
        except trio.Cancelled:
            # The program knows the outcome, and the next reconcile would not.
            with trio.move_on_after(_LAST, shield=True), contextlib.suppress(HeadwayError):
                await self._write(*self._outcome)
            raise

    async def _write(self, state: ConditionState, reason: str, text: str) -> None:
        """Store the record. Other tasks may write the records of other steps of the resource meanwhile."""
        async with self._run.turns.at((self._resource.id, self._status_key)):
            stored = self._statuses.get(self._resource, self._status_key)
            records = with_record([] if stored is None else stored.conditions, state, reason, self._record, text)
            # The status may be newer than the resource that the program holds.
            generation = max(self._resource.generation, "" if stored is None else stored.observed_generation)
            written = await self._rt.client.write_status(
                self._resource, self._status_key, records, observed_generation=generation
            )
            self._statuses.note(written, self._status_key)

    def _check_begun(self, what: str) -> None:
        if self._is_open is None:
            self._check_open(what)

    def _repeats(self, what: str) -> PermanentFailure:
        """Let no step of this name begin in this run, since a retry would repeat the effect."""
        wrong = self._run.wrong[self._name] = (
            f"step {self._name!r}: {what} does not ask whether the step is done, so it would repeat the effect: write "
            "`if not step.done:` around the effect"
        )
        return PermanentFailure(wrong)


def _check_own(rt: Runtime, resource: Resource[Any], name: str) -> None:
    """Raise InvalidArgument for a resource that other keys may write steps of: each would lose records of the other."""
    at_work = RECONCILING.get() or MAPPING.get()
    own = None if at_work is None else (rt.cache.manages.kind, at_work.key)
    if own != (resource.type.kind, resource.id.key):
        raise InvalidArgument(
            f"step {name!r} of {resource.id}: a step belongs to the resource that is reconciled: record it there, with "
            "inputs=… for the other one"
        )
