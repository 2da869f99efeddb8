"""Launches teammates outside their lead's process."""

from __future__ import annotations

from typing import Protocol

from shoal.core.agents.subagents import SpawnRequest
from shoal.core.permissions.permission_decisions import PermissionMode
from shoal.core.teams.member_backends import MemberProcess
from shoal.core.teams.roster import BackendType, RosterEntry


class MemberLauncher(Protocol):
    async def prepare_backend(self) -> None:
        """Start the setup that the first teammate of a new team would have to wait for."""
        ...

    async def choose_backend(self, kind: str) -> BackendType:
        """Return the backend for a teammate of that type under current conditions."""
        ...

    def is_foreign_agent_type(self, kind: str) -> bool:
        """Return True if agents of that type are a foreign program."""
        ...

    async def launch_member(
        self, entry: RosterEntry, request: SpawnRequest | None, *, mode: PermissionMode | None, call: str
    ) -> MemberProcess:
        """Start its process; without a request it resumes from its transcript.

        Raises `AgentRequestRefused`.
        """
        ...

    async def aclose(self) -> None: ...


class NullMemberLauncher:
    """Launcher of a session whose teammates all run in the lead's process."""

    async def prepare_backend(self) -> None:
        return

    async def choose_backend(self, kind: str) -> BackendType:
        return "in-process"

    def is_foreign_agent_type(self, kind: str) -> bool:
        return False

    async def launch_member(
        self, entry: RosterEntry, request: SpawnRequest | None, *, mode: PermissionMode | None, call: str
    ) -> MemberProcess:
        raise NotImplementedError

    async def aclose(self) -> None:
        return
