"""The EnterWorktree and ExitWorktree tools, with which the lead moves into a git worktree and back."""

from __future__ import annotations

from typing import Literal, Protocol

from shoal.core.conversation.tools import Tool, ToolOutput, create_tool_error_output
from shoal.core.errors import WorktreeError
from shoal.tools.builtin_tool import builtin_tool

WORKTREE_TOOLS = ("EnterWorktree", "ExitWorktree")


class WorktreeMover(Protocol):
    """Moves the lead. Both methods return a sentence for it, and raise `WorktreeError`."""

    async def enter_worktree(self, name: str | None, path: str | None) -> str: ...

    async def exit_worktree(self, *, remove: bool, discard_changes: bool) -> str: ...


def build_worktree_tools(mover: WorktreeMover) -> tuple[Tool, ...]:
    @builtin_tool(name="EnterWorktree")
    async def enter_worktree(name: str | None = None, path: str | None = None) -> ToolOutput:
        try:
            return ToolOutput(content=await mover.enter_worktree(name, path))
        except WorktreeError as error:
            return create_tool_error_output(str(error))

    @builtin_tool(name="ExitWorktree")
    async def exit_worktree(
        action: Literal["keep", "remove"],
        discard_changes: bool = False,  # noqa: FBT001, FBT002 - the protocol names it
    ) -> ToolOutput:
        try:
            sentence = await mover.exit_worktree(remove=action == "remove", discard_changes=discard_changes)
        except WorktreeError as error:
            return create_tool_error_output(str(error))
        return ToolOutput(content=sentence)

    return enter_worktree, exit_worktree
