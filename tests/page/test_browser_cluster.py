"""The page of a process on a cluster in a real Chromium. A model of the API server stands for the cluster."""

from __future__ import annotations

import pytest

from headway.page import open_page
from headway.testing.kubernetes import ModelCluster, ModelServer
from tests.helpers.browser import PATIENCE, open_chromium
from tests.kubernetes.test_on_model import rollouts, running
from tests.page.opened import TEXT

pytestmark = [pytest.mark.browser, pytest.mark.timeout(6 * PATIENCE)]


async def test_page_of_a_cluster_has_objects_and_leases_and_no_quotas() -> None:
    """An object is found in the list of its type, and its manifest is shown as the mapping that it is."""
    program = rollouts()
    async with (
        running(ModelServer(ModelCluster()), program) as engine,
        open_page(engine, program.app, http="127.0.0.1:0") as address,
        open_chromium() as browser,
    ):
        await engine.client.write(program.config_map.new("web", {"data": {"replicas": "2"}}, namespace="default"))
        await engine.wait_idle()
        await browser.open(f"http://{address}/")
        await browser.wait("document.querySelector('.controllers') !== null")
        links = "[...document.querySelectorAll('header nav a')].map((each) => each.innerText).join(' ')"
        assert await browser.evaluate(links) == "Overview Controllers Resources Leases"
        await browser.evaluate("void (location.hash = '#/resources/core.v1.ConfigMap')")
        await browser.wait("[...document.querySelectorAll('main a')].some((each) => each.innerText === 'web')")
        await browser.evaluate(
            "void [...document.querySelectorAll('main a')].find((each) => each.innerText === 'web').click()"
        )
        shown = await browser.wait(f"{TEXT}.includes('replicas') && {TEXT}")
        assert "sites/rollouts" in shown
        await browser.wait(f"{TEXT}.includes('Deployment')")
        assert await browser.logs() == []
