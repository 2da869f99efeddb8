"""Client of a run, as the full screen uses it: takes input, and gives its presenter what to show."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from shoal.core.conversation.messages import Message
from shoal.core.ids import AgentId
from shoal.surfaces.tui.completions import InputCompletionProposal
from shoal.surfaces.tui.run_presenter import TuiRunPresenter


class TuiRunClient(Protocol):
    @property
    def presenter(self) -> TuiRunPresenter: ...

    @property
    def is_open(self) -> bool:
        """True if input is accepted: not before the run is up, nor while it ends."""
        ...

    @property
    def root(self) -> Path:
        """Root of the project, for `@` completion and image paths."""
        ...

    @property
    def viewed(self) -> AgentId:
        """Agent whose conversation is shown and who receives the input."""
        ...

    @property
    def takes_images(self) -> bool: ...

    @property
    def activity_text(self) -> str:
        """Current activity of the run in one line; empty if it is idle."""
        ...

    @property
    def footer_facts(self) -> Sequence[str]:
        """Facts for the bottom line that only this kind of run has: delegate mode, context used."""
        ...

    def list_command_proposals(self) -> list[InputCompletionProposal]: ...

    def list_agent_proposals(self) -> list[InputCompletionProposal]:
        """List the agents that can be addressed, and those that can be asked for."""
        ...

    def list_resource_servers(self) -> tuple[str, ...]:
        """List the connected MCP servers with resources."""
        ...

    async def load_resource_proposals(self) -> list[InputCompletionProposal]:
        """Ask the MCP servers for their resources."""
        ...

    def process_queued_events(self) -> None:
        """Apply the queued events to the presenter."""
        ...

    def submit_message(self, message: Message) -> None: ...

    def view_agent(self, agent: AgentId, name: str) -> None: ...

    def interrupt_current_work(self) -> bool:
        """Stop the turn of the viewed agent; return False if there is none."""
        ...

    def handle_interrupt(self, line: str) -> None:
        """Handle Ctrl-C."""
        ...

    def move_to_background(self) -> bool: ...

    def cycle_permission_mode(self) -> None: ...

    def leave_run(self, status: int = 0) -> None: ...
