"""Workflows that the lead's model writes: the request to start one, and the port that runs them."""

from __future__ import annotations

from typing import Any, Literal, Protocol, TypeAlias

from msgspec import Struct

from shoal.core.conversation.tools import ToolContext

WorkflowStatus: TypeAlias = Literal["running", "completed", "failed", "stopped", "interrupted"]
MAX_SCRIPT_CHARACTERS = 32_000
MAX_SCRIPT_LINES = 400
"""Maximum number of lines in a script. A permission question shows all of them."""
MAX_SCRIPT_LINE_CHARACTERS = 400
"""Maximum length of one line. A person has to read every line before the script runs."""
MAX_SCRIPT_AGENTS = 1_000


class WorkflowScript(Struct, frozen=True, kw_only=True):
    """A workflow in Python that a model wrote."""

    name: str
    script: str
    max_agents: int
    arguments: dict[str, Any] = {}


class WorkflowSnapshot(Struct, frozen=True, kw_only=True):
    """State of a workflow."""

    workflow: str
    status: WorkflowStatus
    phase: str = ""
    finished_steps: int = 0
    open_steps: int = 0
    detail: str = ""
    value: str = ""
    """What it returned."""


class WorkflowOperations(Protocol):
    """Runs workflows in the background."""

    def describe_cost(self, script: str, agents: int) -> str:
        """Return the estimated cost of a script with that many agents as part of a sentence."""
        ...

    def find_script(self, workflow: str) -> WorkflowScript | None:
        """Return the script of a workflow of the session; None if it has none with this id."""
        ...

    async def start_script(self, script: WorkflowScript, context: ToolContext) -> str:
        """Start a script and return the id of the workflow. Raises `WorkflowError`."""
        ...

    async def resume_script(self, workflow: str, context: ToolContext) -> str:
        """Continue a script that was interrupted, stopped or failed. Raises `WorkflowError`."""
        ...

    def take_snapshot(self, workflow: str) -> WorkflowSnapshot | None:
        """Return the state of a workflow of the session; None if it has none with this id."""
        ...

    async def wait_for_end(self, workflow: str) -> None:
        """Wait until the workflow is not running."""
        ...

    async def stop_workflow(self, workflow: str, why: str) -> bool:
        """Stop a running workflow; return False if none has this id or name."""
        ...
