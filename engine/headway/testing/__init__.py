"""What proves a part of Headway right, yours too: it ships with the package and imports no test framework.

`check_backend` runs every promise of `headway.storage.Backend` against a store. A check is an async function whose name
is the claim it makes; it raises AssertionError with a sentence where the claim doesn't hold.
"""

from headway.testing._conformance import BACKEND_CHECKS as BACKEND_CHECKS
from headway.testing._conformance import SHORT_HISTORY as SHORT_HISTORY
from headway.testing._conformance import BackendCheck as BackendCheck
from headway.testing._conformance import OpenBackend as OpenBackend
from headway.testing._conformance import check_backend as check_backend
from headway.testing._conformance import run_backend_check as run_backend_check
