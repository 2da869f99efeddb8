"""Events of a run, for `from shoal.events import ToolFinished`."""

import sys

from shoal.core import events
from shoal.core.events import *  # noqa: F403 - for type checkers

sys.modules[__name__] = events
