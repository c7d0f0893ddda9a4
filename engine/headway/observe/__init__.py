"""Exporters, which turn events into log lines, metrics and health.

Nothing here affects what the engine does. Start with `_log.py`, then read `_metrics.py`.
"""

from headway.observe._log import log_report as log_report
from headway.observe._metrics import Metrics as Metrics
from headway.observe._metrics import reports as reports
from headway.observe._pages import PAGE as PAGE
from headway.observe._pages import AllPages as AllPages
from headway.observe._pages import PageRequest as PageRequest
from headway.observe._pages import PageResponse as PageResponse
from headway.observe._pages import Pages as Pages
from headway.observe._pages import PagesService as PagesService
from headway.observe._pages import ProcessState as ProcessState
from headway.observe._pages import open_pages as open_pages
from headway.observe._pages import serving_pages as serving_pages
from headway.observe._pages import unready as unready
from headway.observe._states import ControllerState as ControllerState
from headway.observe._states import Sample as Sample
from headway.observe._states import state_text as state_text
from headway.observe._states import states_in as states_in
