"""The storage conformance suite: checks of every promise of `headway.storage.Backend`.

The modules whose names have no underscore hold the checks of one subject each: every public coroutine function in them
is a check. `_suite.py` runs them. The other names here are what checks are made of, for further tests of a store.
"""

from headway.testing.conformance._reader import Held as Held
from headway.testing.conformance._reader import Reader as Reader
from headway.testing.conformance._reader import held as held
from headway.testing.conformance._reader import reading as reading
from headway.testing.conformance._reader import summary as summary
from headway.testing.conformance._suite import BACKEND_CHECKS as BACKEND_CHECKS
from headway.testing.conformance._suite import OpenStore as OpenStore
from headway.testing.conformance._suite import StoreUnderTest as StoreUnderTest
from headway.testing.conformance._suite import Verdict as Verdict
from headway.testing.conformance._suite import check_backend as check_backend
from headway.testing.conformance._suite import checks_of as checks_of
from headway.testing.conformance._suite import claim_of as claim_of
from headway.testing.conformance._suite import run_backend_check as run_backend_check
from headway.testing.conformance._suite import verdicts as verdicts
from headway.testing.conformance._tools import EVERYTHING as EVERYTHING
from headway.testing.conformance._tools import KIND as KIND
from headway.testing.conformance._tools import OTHER_KIND as OTHER_KIND
from headway.testing.conformance._tools import SHORT_HISTORY as SHORT_HISTORY
from headway.testing.conformance._tools import BackendCheck as BackendCheck
from headway.testing.conformance._tools import Capability as Capability
from headway.testing.conformance._tools import fill as fill
from headway.testing.conformance._tools import kind_of as kind_of
from headway.testing.conformance._tools import name_of as name_of
from headway.testing.conformance._tools import names as names
from headway.testing.conformance._tools import put as put
from headway.testing.conformance._tools import putting as putting
from headway.testing.conformance._tools import read_back as read_back
from headway.testing.conformance._tools import refused as refused
from headway.testing.conformance._tools import remove as remove
from headway.testing.conformance._tools import removing as removing
from headway.testing.conformance._tools import store_a_matrix as store_a_matrix
from headway.testing.conformance._tools import text_of as text_of
from headway.testing.conformance._tools import thing as thing
from headway.testing.conformance._tools import uid_of as uid_of
from headway.testing.conformance._tools import version_of as version_of
from headway.testing.conformance._truth import Truth as Truth
