"""The page over TLS: a cookie that browsers keep for this host and for encrypted connections alone."""

from __future__ import annotations

import ssl

import httpx

from headway.rpc import server_tls
from tests.page.kit import EVERYTHING, PATIENCE, Visitor, open_shop
from tests.rpc.test_renewal import Pair
from tests.rpc.test_renewal import pair as pair


async def test_cookie_of_an_encrypted_page_is_for_its_host_alone(pair: Pair) -> None:
    """Its prefix makes browsers refuse it from another host, from plain text, or with a domain."""
    tls, trusting = server_tls(pair.certificate, pair.key), ssl.create_default_context(cafile=str(pair.ca))
    async with (
        open_shop(writes=True, rules={"all": [EVERYTHING]}, tls=tls) as running,
        httpx.AsyncClient(base_url=f"https://{running.address}", verify=trusting, timeout=PATIENCE) as http,
    ):
        http.headers["origin"] = f"https://{running.address}"
        visitor, port = Visitor(http, running.address), running.address.rpartition(":")[2]
        answer = await visitor.sign_in(running.tokens["all"])
        assert answer.status_code == 204
        name, _, rest = answer.headers["set-cookie"].partition("=")
        attributes = rest.split("; ")[1:]
        assert name == f"__Host-headway-{port}"
        assert {"Secure", "HttpOnly", "SameSite=strict", "Path=/"} <= set(attributes)
        # The prefix forbids one.
        assert not [each for each in attributes if each.lower().startswith("domain")]
        assert (visitor.session["allowed"], visitor.session["writes"]) == (True, True)
        pause = ("POST", "/page/pause", {"controller": "shop/billing"})
        assert (await visitor.change(*pause, origin=f"https://{running.address}")).status_code == 204
        # The same host in plain text is another site, and its cookies count for nothing.
        assert (await visitor.change(*pause, origin=f"http://{running.address}")).status_code == 403
        [text] = [cookie.value for cookie in http.cookies.jar]
        http.cookies.clear()
        plain = {"cookie": f"headway-{port}={text}"}
        assert (await http.get("/page/session", headers=plain)).json()["allowed"] is False
        prefixed = {"cookie": f"__Host-headway-{port}={text}"}
        assert (await http.get("/page/session", headers=prefixed)).json()["allowed"] is True
        ended = await http.delete("/page/session", headers=prefixed)
        assert ended.headers["set-cookie"].startswith(f'__Host-headway-{port}=""; HttpOnly; Max-Age=0')
        assert "Secure" in ended.headers["set-cookie"]
        assert (await http.get("/page/session", headers=prefixed)).json()["allowed"] is False
