"""The live page: what the controllers do, in a browser, beside the JSON of `headway.http`.

    host = PageHost(apps, observe, registry, StoreParts(backend), writes=False)
    services.add(PageService(host, registry))
    further = page_paths(offered, writes=False)  # for `open_http`

This package computes nothing by rules of its own. `observe` computes the numbers, as for `headway top` and the metrics.
`why` answers the questions, and `headway.controller` lays out the graph. `_host.py` looks at the controllers, and
`_service.py` answers questions with the rights of their caller. `_paths.py` serves both to browsers, with the files in
`assets/`.
"""

from typing import TYPE_CHECKING

from headway._imported_later import imported_later
from headway.page._host import PageHost as PageHost
from headway.page._parts import StoreParts as StoreParts
from headway.page._service import PageService as PageService

if TYPE_CHECKING:
    from headway.page._own_page import check_own_page as check_own_page
    from headway.page._own_page import open_page as open_page
    from headway.page._paths import page_paths as page_paths
    from headway.page._serving import beside_http as beside_http
    from headway.page._serving import serving_http as serving_http

# Imported on first use: Starlette is an extra.
__getattr__ = imported_later(
    __name__, {"_own_page": "check_own_page open_page", "_paths": "page_paths", "_serving": "beside_http serving_http"}
)
