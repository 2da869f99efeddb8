"""The Ray actor in which teammates of one session run on a machine of the cluster."""

from __future__ import annotations

import importlib
import traceback
from typing import Any


class MemberHostActor:
    """Runs in the main thread of a process that Ray started for it, and ends with the function it calls."""

    def run(self, entry: str, order: dict[str, Any]) -> None:
        """Call `entry`, given as `module:function`, with the order; the process ends afterward."""
        import ray

        module, _, function = entry.partition(":")
        try:
            getattr(importlib.import_module(module), function)(order)
        except Exception:
            traceback.print_exc()  # Ray hides it, because the actor exits
            raise
        finally:
            ray.actor.exit_actor()
