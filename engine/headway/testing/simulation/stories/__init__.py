"""The explanation of a run that failed, as text and as a page. Pure, except for the file that the page is written to.

`_causes.py` and `_excerpt.py` choose the part of the trace that a story shows. `_report.py` prints it, and `_page.py`
draws it.
"""

from headway.testing.simulation.stories._causes import located as located
from headway.testing.simulation.stories._page import page as page
from headway.testing.simulation.stories._report import Explored as Explored
from headway.testing.simulation.stories._report import is_timing_alone as is_timing_alone
from headway.testing.simulation.stories._report import replay_line as replay_line
from headway.testing.simulation.stories._report import timeline as timeline
from headway.testing.simulation.stories._report import when as when
from headway.testing.simulation.stories._story_file import save_page as save_page
from headway.testing.simulation.stories._story_file import told as told
