"""The side of a process that attends: one stream to its server, which sends questions, and a call for each answer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import NoReturn

import trio

from headway._gen.headway.observe import v1 as observe_pb
from headway.api import Call, Code, ObserveApi, code_of
from headway.base import retry_delay
from headway.client import client_error
from headway.errors import HeadwayError, PayloadError
from headway.events import CallDelayed, Report, ignore
from headway.resource import ScopedType, TypeName, resource_id
from headway.rpc import Channel
from headway.run import Supervisor
from headway.why._attending import Attending
from headway.why._host import ObserveHost
from headway.why._local import controllers_why, retry_here, stuck_here
from headway.why._now import controllers_now

_OLD_SERVER = 300.0
"""The seconds until a server without this service is asked again."""
_DENIED = 60.0
"""The longest delay in seconds until a server that denies it is asked again. The missing rule may have been added, and
the server knows nothing of this process until then."""
_SIBLING_DELAY = 0.5
"""The longest delay in seconds until another process of the same server is tried again. It is on this machine."""
_LATE = 5.0
"""The seconds that sending an answer may take. The server no longer waits for it then."""


async def attend(
    channel: Channel, process: str, supervisors: Sequence[Supervisor], report: Report, host: ObserveHost | None = None
) -> NoReturn:
    """Answer the questions of a server about the controllers of this process, until canceled.

    A stream that ends is opened again. Failures are reported, unless the server doesn't have this service.

    Args:
        host: if the server is another process of the same server, what this process has committed.
    """
    request = _request(process, supervisors)

    async def answer(question: observe_pb.Question) -> bool:
        await pass_answer(channel, _answer(question, supervisors, host))
        # The controllers of peerings begin later. The other processes must learn of them.
        return host is None or len(supervisors) == len(request.controllers)

    def asked() -> observe_pb.AttendRequest:
        nonlocal request
        request = _request(process, supervisors)
        return request

    await _stay(channel, asked, answer, report, 5.0 if host is None else _SIBLING_DELAY)


async def relay(channel: Channel, attending: Attending) -> None:
    """Let a worker of this process attend at another process of the same server too, until its stream here ends."""
    controllers = [
        observe_pb.Attended(name=name, manages=TypeName(group, "v1", kind).message(), scoped=name in attending.scoped)
        for name, (group, kind) in attending.controllers.items()
    ]
    request = observe_pb.AttendRequest(process=attending.process, controllers=controllers, caller=attending.caller)

    async def ask(question: observe_pb.Question) -> None:
        number = question.number
        answer = await attending.ask(question)
        if answer is not None:
            answer.number = number
            await pass_answer(channel, answer)

    async def ask_soon(question: observe_pb.Question) -> bool:
        nursery.start_soon(ask, question)
        return True

    async with trio.open_nursery() as nursery:
        nursery.start_soon(_stay, channel, lambda: request, ask_soon, ignore, _SIBLING_DELAY)
        await attending.ended.wait()
        nursery.cancel_scope.cancel()


async def _stay(
    channel: Channel,
    request: Callable[[], observe_pb.AttendRequest],
    answer: Callable[[observe_pb.Question], Awaitable[bool]],
    report: Report,
    longest: float,
) -> NoReturn:
    """Answer each question. If ``answer`` returns False, open a new stream, with a new request.

    The delays until a stream is opened again grow to ``longest`` seconds.
    """
    failures = 0
    while True:
        try:
            async with ObserveApi.over(channel).attend(Call(), request()) as questions:
                async for question in questions:
                    failures = 0
                    if question.number and not await answer(question):
                        break
            delay = retry_delay(failures, longest)
        except HeadwayError as error:
            code = code_of(error)
            if code is None and not isinstance(error, PayloadError):
                raise
            if code is Code.UNIMPLEMENTED:
                delay = _OLD_SERVER
            else:
                delay = retry_delay(failures, _DENIED if code is Code.PERMISSION_DENIED else longest)
                report(CallDelayed("", "Attend", client_error(error), delay))
        failures += 1
        await trio.sleep(delay)


def _request(process: str, supervisors: Sequence[Supervisor]) -> observe_pb.AttendRequest:
    controllers = [
        observe_pb.Attended(
            name=each.fence_name,
            manages=each.definition.manages.name.message(),
            scoped=isinstance(each.definition.manages, ScopedType),
        )
        for each in supervisors
        if each.definition is not None
    ]
    return observe_pb.AttendRequest(process=process, controllers=controllers)


def _answer(
    question: observe_pb.Question, supervisors: Sequence[Supervisor], host: ObserveHost | None
) -> observe_pb.AnswerRequest:
    answer = observe_pb.AnswerRequest(number=question.number)
    if question.why is not None and question.retry:
        here = retry_here(supervisors, question.retry, resource_id(question.why))
        answer.retried, answer.running = bool(here), any(here.values())
    elif question.why is not None:
        id = resource_id(question.why)
        answer.controllers = controllers_why(supervisors, id)
        if host is not None:
            answer.writes = host.writes_of(id)
    elif question.revisions:
        written = {} if host is None else host.writers_of(set(question.revisions))
        answer.writes = [observe_pb.PastWrite(revision=at, writer=writer) for at, writer in written.items()]
    elif question.refused:
        answer.refused = {} if host is None else dict(host.refusals())
    elif question.now:
        own = [(each, each.status()) for each in supervisors if each.definition is not None]
        answer.now = controllers_now(own)
    else:
        answer.stuck = stuck_here(supervisors, question.longer_than, set(question.types) or None)
    return answer


async def pass_answer(channel: Channel, answer: observe_pb.AnswerRequest) -> bool:
    """Send an answer. Return False if it is late or lost: then the server reports that this process did not answer."""
    with trio.move_on_after(_LATE):
        try:
            await ObserveApi.over(channel).answer(Call(), answer)
        except HeadwayError:
            return False
        return True
    return False
