"""The page of a process on a cluster in a real Chromium. A model of the API server stands for the cluster."""

from __future__ import annotations

import pytest

from headway.errors import NotFound
from headway.page import open_page
from headway.testing.kubernetes import ModelCluster, ModelServer
from tests.helpers.browser import PATIENCE, open_chromium
from tests.kubernetes.connected import CRD, GROUP, Program, Spec, Website
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


def press(label: str, within: str = "main") -> str:
    """Return a script that presses the button of this text, and fails while it is absent."""
    buttons = f"[...document.querySelectorAll('{within} button')]"
    return f"({buttons}.find((each) => each.innerText === '{label}').click(), true)"


async def test_custom_resource_is_made_edited_and_deleted() -> None:
    """Its group has dots."""
    program, model = Program(), ModelServer(ModelCluster())
    await model.call("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", body=CRD)
    async with (
        running(model, program) as engine,
        open_page(engine, program.app, http="127.0.0.1:0", http_writes=True) as address,
        open_chromium() as browser,
    ):
        area = "document.querySelector('dialog[open] textarea')"
        await browser.open(f"http://{address}/#/resources/{GROUP}.v1.Website")
        await browser.wait(press("New"))
        await browser.wait(f"{area} !== null")
        for name, value in (("name", "blog"), ("namespace", "default")):
            await browser.evaluate(f"void (document.querySelector('dialog [name={name}]').value = '{value}')")
        await browser.evaluate(f"""void ({area}.value = '{{"data": {{"spec": {{"image": "web:1"}}}}}}')""")
        await browser.wait(press("Apply", "dialog"))
        await browser.wait(f"{TEXT}.includes('blog')")
        await browser.evaluate(f"void (location.hash = '#/resource/{GROUP}.v1.Website/default/default/blog')")
        await browser.wait(press("Edit"))
        await browser.wait(f"{area}?.value.includes('web:1')")
        await browser.evaluate(f"void ({area}.value = {area}.value.replace('web:1', 'web:2'))")
        await browser.wait(press("Apply", "dialog"))
        await browser.wait(f"{TEXT}.includes('web:2')")
        site = await engine.client.read(program.website, "blog", namespace="default")
        assert site.data == Website(spec=Spec(image="web:2"))
        await browser.wait(press("Delete"))
        await browser.wait(press("Delete", "dialog"))
        await browser.wait(f"{TEXT}.includes('not stored')")
        with pytest.raises(NotFound):
            await engine.client.read(program.website, "blog", namespace="default")
        assert await browser.logs() == []
