"""Logins of people at an OpenID Connect issuer, from the command line.

    login = await by_browser(asker, provider, request, print)        # or by_device
    kept = KeptLogins().of("127.0.0.1:7070")                         # its place: a private file, or the keyring
    async with kept_fresh(token): ...                                # renews it while the block runs

Open `_flow.py` first. `_provider.py` asks the issuer, within bounds; `_kept.py` keeps logins; `_renewing.py` renews
them. What a server accepts of a login is decided by `headway.access`; this package only obtains one.
"""

from typing import TYPE_CHECKING

from headway._imported_later import imported_later
from headway.login._kept import KeptLogin as KeptLogin
from headway.login._kept import KeptLogins as KeptLogins
from headway.login._kept import Place as Place
from headway.login._renewing import RenewedToken as RenewedToken
from headway.login._renewing import kept_fresh as kept_fresh

if TYPE_CHECKING:
    from headway.login._device import by_device as by_device
    from headway.login._flow import by_browser as by_browser
    from headway.login._provider import Asker as Asker
    from headway.login._provider import Provider as Provider
    from headway.login._provider import discovered as discovered
    from headway.login._provider import open_asker as open_asker
    from headway.login._tokens import Request as Request
    from headway.login._tokens import revoke as revoke

# Imported on first use: most commands with a login only read it.
_LATER = {
    "_device": "by_device",
    "_flow": "by_browser",
    "_provider": "Asker Provider discovered open_asker",
    "_tokens": "Request revoke",
}

__getattr__ = imported_later(__name__, _LATER)
