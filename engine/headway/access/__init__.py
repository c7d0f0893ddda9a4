"""Authentication by tokens and logins (JWTs), and authorization by the policies that they are bound to.

    text, token = new_token(["operators"], description="the deploy job")     # show the text once, keep the token
    authorizer = Authorizer(load_access("access.yaml"))
    identity = authorizer.identify(metadata)                                # once per request; Unauthenticated
    identity.allows("read", type_name, partition, namespace, name)          # any number of times; True or False
    Guarded(serve, authorizer, registry)                                    # does both for a network service

A service without a guard trusts its callers, as the in-process one does. A service guarded by `Authorizer(Access())`
denies everything.

Invariants: tokens cannot be recovered from what is stored; no refusal depends on the contents of the store; everything
that no rule allows is denied; nothing blocks. Only `_document.py` and `_key_sources.py` do I/O, and only `new_token`
uses randomness.

Open `_policy.py` first, then `_tokens.py`; `_authorizer.py` puts them together. A login goes through `_jwt_text.py`,
`_login.py` and `_logins.py`, and `_key_sources.py` has the task that keeps the keys.
`_limits.py` declares limits on how often callers may call, and `_limiter.py` keeps them.
"""

from typing import TYPE_CHECKING

from headway._imported_later import imported_later
from headway.access._audit import Audit as Audit
from headway.access._authorizer import LEASE as LEASE
from headway.access._authorizer import Authorizer as Authorizer
from headway.access._authorizer import Identity as Identity
from headway.access._content import ANONYMOUS as ANONYMOUS
from headway.access._content import Access as Access
from headway.access._guard import CHANGED as CHANGED
from headway.access._guard import NO_TOKEN_SENT as NO_TOKEN_SENT
from headway.access._guard import Caller as Caller
from headway.access._guard import Guarded as Guarded
from headway.access._limiter import Refused as Refused
from headway.access._limits import Limit as Limit
from headway.access._login import Login as Login
from headway.access._policy import GROUPS as GROUPS
from headway.access._policy import VERBS as VERBS
from headway.access._policy import Policy as Policy
from headway.access._policy import Rights as Rights
from headway.access._policy import Rule as Rule
from headway.access._policy import Verb as Verb
from headway.access._tokens import REFUSED as REFUSED
from headway.access._tokens import Token as Token
from headway.access._tokens import TokenSet as TokenSet
from headway.access._tokens import new_token as new_token

if TYPE_CHECKING:
    from headway.access._document import add_token as add_token
    from headway.access._document import entry as entry
    from headway.access._document import load_access as load_access
    from headway.access._document import read_access as read_access
    from headway.access._id_token import check_id_token as check_id_token
    from headway.access._issuers import ALGORITHMS as ALGORITHMS
    from headway.access._issuers import Binding as Binding
    from headway.access._issuers import Issuer as Issuer
    from headway.access._jwks import Keys as Keys
    from headway.access._jwks import read_keys as read_keys
    from headway.access._jwt_text import JwtRefused as JwtRefused
    from headway.access._jwt_text import looks_like_jwt as looks_like_jwt
    from headway.access._jwt_text import parsed as parsed
    from headway.access._key_sources import keep_keys as keep_keys
    from headway.access._serving import start_guard as start_guard

# Imported on first use, to keep `import headway` light: only a server with access control needs them.
_LATER = {
    "_document": "add_token entry load_access read_access",
    "_serving": "start_guard",
    "_id_token": "check_id_token",
    "_issuers": "ALGORITHMS Binding Issuer",
    "_jwks": "Keys read_keys",
    "_jwt_text": "JwtRefused looks_like_jwt parsed",
    "_key_sources": "keep_keys",
}

__getattr__ = imported_later(__name__, _LATER)
