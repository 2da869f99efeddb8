"""Messages of a conversation, for `from shoal.messages import user_message`."""

import sys

from shoal.core.conversation import messages
from shoal.core.conversation.messages import *  # noqa: F403 - for type checkers

sys.modules[__name__] = messages
