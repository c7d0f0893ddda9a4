"""A program that copies jobs, for the tests in which its store is put back to old data."""

from __future__ import annotations

import headway
from headway import events
from tests.helpers.cluster import Copy, Job


class Program:
    """A program that copies each job and records its reports."""

    def __init__(self) -> None:
        self.events: list[object] = []
        self.app = headway.App("staff")
        self.job = job = self.app.type("staff", "v1", "Job", Job)
        self.copy = copy = self.app.type("staff", "v1", "Copy", Copy)

        @self.app.controller(manages=job, watches=[headway.watch(copy, headway.mappers.same_name())], name="copier")
        async def copier(rt: headway.Runtime, request: headway.Request[Job]) -> None:
            given = rt.resource(request)
            if given is not None:
                await rt.apply(copy.new(given.name, Copy(text=given.data.text)))

    def errors(self) -> list[type[BaseException]]:
        """Return the errors that ended runs of the controller."""
        ended = (event for event in self.events if isinstance(event, events.RunEnded))
        return [type(each.error) for each in ended if each.controller == "staff/copier" and each.error is not None]

    async def copies(self, engine: headway.Engine) -> dict[str, str]:
        return {each.name: each.data.text for each in await engine.client.list(self.copy)}
