"""The pages of a controller and of a resource with several controllers, in a real Chromium."""

from __future__ import annotations

from contextlib import nullcontext

import pytest
from ulid_transform import ulid_at_time

import headway
from headway.base import wall_time
from headway.storage import MemoryBackend
from tests.helpers.browser import PATIENCE
from tests.helpers.why_programs import Team
from tests.page.opened import opened
from tests.pauses.test_pauses import store_pause

pytestmark = [pytest.mark.browser, pytest.mark.timeout(6 * PATIENCE)]


async def test_pause_has_its_own_duration() -> None:
    """The phase has just begun, and the pause is an hour old."""
    async with MemoryBackend() as backend:
        await store_pause(backend, "shop/billing", ulid_at_time(wall_time() - 3600))
        async with opened("/#/controller/shop%2Fbilling", store=nullcontext(backend)) as (_, browser):
            line = "document.querySelector('.state-line')?.innerText"
            await browser.wait(f"{line}?.startsWith('paused')")
            assert await browser.evaluate(line) == "paused for 60 min"


async def test_each_button_to_reconcile_names_its_controller() -> None:
    app = headway.App("staff")
    team = app.type("staff", "v1", "Team", Team)

    @app.controller(manages=team)
    async def teams(rt: headway.Runtime, request: headway.Request[Team]) -> None:
        """Reconcile nothing."""

    @app.timer(team, every=60)
    async def audit(rt: headway.Runtime, resource: headway.Resource[Team]) -> None:
        """Do nothing."""

    async with opened("/#/resource/staff.v1.Team/default/default/core", app=app, writes=True) as (running, browser):
        await running.client.write(team.new("core"))
        buttons = "[...document.querySelectorAll('.actions button')].filter((each) => each.innerText.startsWith('Rec'))"
        await browser.wait(f"{buttons}.length === 2")
        assert sorted(await browser.evaluate(f"{buttons}.map((each) => each.innerText)")) == [
            "Reconcile now by staff/audit",
            "Reconcile now by staff/teams",
        ]
        assert sorted(await browser.evaluate(f"{buttons}.map((each) => each.getAttribute('aria-label'))")) == [
            "Reconcile now by staff/audit: Team core, by staff/audit",
            "Reconcile now by staff/teams: Team core, by staff/teams",
        ]
