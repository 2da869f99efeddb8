"""Ports for instructions that an agent gets later: about files that it uses, and from MCP servers."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Literal, Protocol, TypeAlias

from msgspec import Struct

from shoal.core.conversation.messages import Message

InstructionLoadReason: TypeAlias = Literal["session_start", "nested_traversal", "path_glob_match", "include"]


class DeliveredInstructionFile(Struct, frozen=True, kw_only=True):
    """Instruction file that entered a prompt or a conversation, as hooks get it."""

    file_path: str
    memory_type: str
    load_reason: InstructionLoadReason


class PathInstructions(Protocol):
    """Instructions of one agent that depend on the files that it uses."""

    def add_used_file(self, path: str) -> None:
        """Note that the agent has read or changed a file."""
        ...

    def take_new_text(self) -> tuple[str, tuple[DeliveredInstructionFile, ...]]:
        """Return the instructions about files used since the last call; each file is returned once."""
        ...

    def forget_delivered(self) -> None:
        """Return everything again when it is needed: the conversation no longer has it."""
        ...


class ServerInstructions(Protocol):
    """Instructions that MCP servers give to one agent."""

    def take_new_texts(self, tools: Collection[str], messages: Sequence[Message]) -> tuple[str, ...]:
        """Return the texts for an agent with these tools that its messages do not have yet."""
        ...
