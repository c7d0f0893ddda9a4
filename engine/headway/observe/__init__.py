"""Exporters, which turn events into log lines, metrics and health.

Nothing here affects what the engine does. Start with `_log.py`, then read `_metrics.py`.
"""

from headway.observe._log import log_report as log_report
from headway.observe._metrics import Metrics as Metrics
from headway.observe._metrics import reports as reports
from headway.observe._pages import Pages as Pages
from headway.observe._pages import open_pages as open_pages
from headway.observe._pages import unready as unready
