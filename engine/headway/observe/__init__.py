"""Exporters: what the rooms report, as log lines.

Nothing here changes what the engine does. Open `_log.py`.
"""

from headway.observe._log import log_report as log_report
