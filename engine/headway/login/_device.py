"""The device flow (RFC 8628): the person logs in by a browser on any other machine."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import trio

from headway.base import plain
from headway.errors import Unauthenticated, Unavailable
from headway.login._kept import KeptLogin
from headway.login._provider import Asker, Provider, check_url, refusal
from headway.login._tokens import Request, checked, text_of

_GRANT = "urn:ietf:params:oauth:grant-type:device_code"
_USUAL_INTERVAL = 5.0
_LONGEST_INTERVAL = 60.0


async def by_device(asker: Asker, provider: Provider, asked: Request, show: Callable[[str, str], None]) -> KeptLogin:
    """Log in by a browser on another machine.

    Args:
        show: called with the URL to open there, and the code to type.

    Raises:
        Unauthenticated: the issuer or the person refused.
        Unavailable: the issuer does not answer, or the time is over.
    """
    if not provider.device:
        raise Unavailable(f"{provider.issuer} has no device flow: use --no-browser, and open the URL on this machine")
    status, answer = await asker.post(provider.device, {"client_id": asked.client, "scope": asked.scope(provider)})
    if status != 200:
        raise Unauthenticated(f"{provider.issuer} refused the login: {refusal(answer, otherwise=f'status {status}')}")
    device, code = text_of(answer, "device_code"), text_of(answer, "user_code")
    url = check_url("verification_uri", answer.get("verification_uri"))
    if not device or not code:
        raise Unavailable(f"{provider.device}: its answer has no device_code or no user_code")
    show(url, plain(code)[:100])
    with trio.move_on_after(min(_number(answer, "expires_in", asked.patience), asked.patience)):
        return await _polled(asker, provider, asked, device, _number(answer, "interval", _USUAL_INTERVAL))
    raise Unavailable(f"no login within {asked.patience:g} s: run the command again")


async def _polled(asker: Asker, provider: Provider, asked: Request, device: str, interval: float) -> KeptLogin:
    form = {"grant_type": _GRANT, "device_code": device, "client_id": asked.client}
    while True:
        await trio.sleep(min(interval, _LONGEST_INTERVAL))
        status, answer = await asker.post(provider.token, form)
        if status == 200 and "error" not in answer:
            # This flow has no nonce: nothing passes through a browser that could be exchanged.
            return await checked(asker, provider, asked, answer)
        match answer.get("error"):
            case "authorization_pending":
                pass
            case "slow_down":
                interval += _USUAL_INTERVAL
            case _:
                why = refusal(answer, otherwise=f"status {status}")
                raise Unauthenticated(f"{provider.issuer} refused the login: {why}")


def _number(answer: Mapping[str, Any], name: str, usual: float) -> float:
    found = answer.get(name, usual)
    is_number = isinstance(found, int | float) and not isinstance(found, bool)
    return float(found) if is_number and 0 < found <= 86_400 else usual
