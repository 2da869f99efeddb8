"""The Ray actor in which teammates of one session run on a machine of the cluster."""

from __future__ import annotations

import importlib
import os
import threading
import traceback
from typing import Any

ORDER_TIMEOUT = 30.0
"""Seconds in which the call follows the start of the process."""


class MemberHostActor:
    """Runs in the main thread of a process that Ray started for it, and ends with the function it calls."""

    def __init__(self, order_timeout: float = ORDER_TIMEOUT) -> None:
        """End the process if the lead has ended while Ray looked for a machine: nobody calls it then.

        Ray would keep the process forever, and reserve its resources.
        """
        self._is_called = threading.Event()
        threading.Thread(target=self._wait_for_call, args=(order_timeout,), daemon=True).start()

    def _wait_for_call(self, timeout: float) -> None:
        if not self._is_called.wait(timeout):
            os._exit(1)

    def run(self, entry: str, order: dict[str, Any]) -> None:
        """Call `entry`, given as `module:function`, with the order; the process ends afterward."""
        import ray

        self._is_called.set()
        module, _, function = entry.partition(":")
        try:
            getattr(importlib.import_module(module), function)(order)
        except Exception:
            traceback.print_exc()  # Ray hides it, because the actor exits
            raise
        finally:
            ray.actor.exit_actor()
