"""Engines: `open_engine`, which assembles all other parts of Headway, `open_workers`, `open_cache` and `connect`.

Start with `_open_engine.py`. `_placing.py` places the controllers of a process, and `_running.py` watches its tasks.
"""

from headway.engine._arguments import combine_apps as combine_apps
from headway.engine._arguments import combine_topics as combine_topics
from headway.engine._arguments import report_of as report_of
from headway.engine._around import Around as Around
from headway.engine._built_in import built_in as built_in
from headway.engine._connect import connect as connect
from headway.engine._engine import Engine as Engine
from headway.engine._extension import Extension as Extension
from headway.engine._extension import Host as Host
from headway.engine._extension import Observer as Observer
from headway.engine._given import EngineOptions as EngineOptions
from headway.engine._given import ProcessOptions as ProcessOptions
from headway.engine._open_cache import open_cache as open_cache
from headway.engine._open_engine import open_engine as open_engine
from headway.engine._open_engine import run_engine as run_engine
from headway.engine._open_workers import open_workers as open_workers
from headway.engine._options import Network as Network
from headway.engine._options import Timing as Timing
from headway.engine._placing import worker_name as worker_name
from headway.engine._services import EngineServices as EngineServices
from headway.engine._shutdown import ShutdownWatch as ShutdownWatch
