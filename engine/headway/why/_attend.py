"""A worker's side: one stream to its server, which sends questions, and a call for each answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

import trio
from grpclib import GRPCError
from grpclib.const import Status

from headway._gen.headway.observe import v1 as observe_pb
from headway.base import retry_delay
from headway.client import client_error
from headway.errors import PayloadError
from headway.events import CallDelayed, Report
from headway.resource import resource_id
from headway.rpc import Channel
from headway.run import Supervisor
from headway.why._local import controllers_why, stuck_here
from headway.why._now import controllers_now
from headway.why._service import ATTEND, OBSERVE_SERVICE
from headway.why._wire import to_message

_ANSWER = f"/{OBSERVE_SERVICE}/Answer"
_OLD_SERVER = 300.0
"""The seconds until a server without this service, or that denies it, is asked again."""
_LATE = 5.0
"""The seconds that sending an answer may take. The server no longer waits for it then."""


async def attend(channel: Channel, process: str, supervisors: Sequence[Supervisor], report: Report) -> NoReturn:
    """Answer the questions of a server about the controllers of this process, until canceled.

    A stream that ends is opened again. A failure is reported, except that a server knows no such service.
    """
    failures = 0
    while True:
        try:
            async with channel.stream(ATTEND, _request(process, supervisors)) as questions:
                async for question in questions:
                    failures = 0
                    if question.number:
                        await _answer(channel, question, supervisors)
            delay = retry_delay(failures)
        except GRPCError as error:
            rejected = error.status in (Status.UNIMPLEMENTED, Status.PERMISSION_DENIED)
            delay = _OLD_SERVER if rejected else retry_delay(failures)
            if error.status is not Status.UNIMPLEMENTED:
                report(CallDelayed("", "Attend", client_error(error), delay))
        except PayloadError as error:
            delay = retry_delay(failures)
            report(CallDelayed("", "Attend", error, delay))
        failures += 1
        await trio.sleep(delay)


def _request(process: str, supervisors: Sequence[Supervisor]) -> observe_pb.AttendRequest:
    controllers = [
        observe_pb.Attended(name=each.fence_name, manages=each.definition.manages.name.message())
        for each in supervisors
        if each.definition is not None
    ]
    return observe_pb.AttendRequest(process=process, controllers=controllers)


async def _answer(channel: Channel, question: observe_pb.Question, supervisors: Sequence[Supervisor]) -> None:
    answer = observe_pb.AnswerRequest(number=question.number)
    if question.why is not None:
        answer.controllers = [to_message(each) for each in controllers_why(supervisors, resource_id(question.why))]
    elif question.now:
        answer.now = [to_message(each) for each in controllers_now(supervisors)]
    else:
        answer.stuck = to_message(stuck_here(supervisors, question.longer_than, set(question.types) or None))
    # If the answer is late or lost, the server says that this process did not answer.
    with trio.move_on_after(_LATE):
        try:
            await channel.unary(_ANSWER, answer, observe_pb.AnswerResponse)
        except GRPCError:
            return
