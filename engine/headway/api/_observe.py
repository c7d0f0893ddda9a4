"""The typed protocol of the service that observes an engine."""

from __future__ import annotations

from typing import Protocol

from headway._gen.headway.observe import v1 as pb
from headway.api._call import Call
from headway.api._methods import Api, Cardinality, Stream, method


class ObserveApi(Api, Protocol, service="headway.observe.v1.ObserveService"):
    """What the controllers do, and why a resource is not done."""

    @method("Why", pb.WhyRequest, pb.WhyResponse)
    async def why(self, call: Call, request: pb.WhyRequest, /) -> pb.WhyResponse:
        """Return why a resource is or is not done."""
        ...

    @method("Stuck", pb.StuckRequest, pb.StuckResponse)
    async def stuck(self, call: Call, request: pb.StuckRequest, /) -> pb.StuckResponse:
        """Return the resources that are not done."""
        ...

    @method("Retry", pb.RetryRequest, pb.RetryResponse)
    async def retry(self, call: Call, request: pb.RetryRequest, /) -> pb.RetryResponse:
        """Let a controller reconcile a resource now."""
        ...

    @method("Attend", pb.AttendRequest, pb.Question, Cardinality.UNARY_STREAM)
    def attend(self, call: Call, request: pb.AttendRequest, /) -> Stream[pb.Question]:
        """Send questions to a process until its stream ends."""
        ...

    @method("Answer", pb.AnswerRequest, pb.AnswerResponse, effect=True)
    async def answer(self, call: Call, request: pb.AnswerRequest, /) -> pb.AnswerResponse:
        """Accept the answer to a question."""
        ...
