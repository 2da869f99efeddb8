"""Errors that Shoal raises, for `from shoal.errors import RunFailed`."""

import sys

from shoal.core import errors
from shoal.core.errors import *  # noqa: F403 - for type checkers

sys.modules[__name__] = errors
