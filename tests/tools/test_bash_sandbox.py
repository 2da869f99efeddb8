"""Sandbox of a command: the one of the session or of the agent."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace
from shell_workbench import get_text, open_workbench

from shoal.core.ports import ProcessLaunchSpec


class NamedSandbox:
    """Confines nothing, and lets a command see whose it is."""

    can_skip_permission_question = False
    ends_all_processes = False

    def __init__(self, name: str, *, holds: bool = False) -> None:
        self.name = name
        self.is_active = holds

    async def detect_availability(self) -> None: ...

    async def begin_command(self) -> None: ...

    async def finish_command(self) -> tuple[str, ...]:
        return ()

    async def wrap_launch(self, launch: ProcessLaunchSpec, scratch: Path | None = None) -> ProcessLaunchSpec:
        return replace(launch, env={**launch.env, "HELD_BY": self.name})


async def test_commands_of_an_agent_with_its_own_sandbox_run_in_that_sandbox(tmp_path: Path) -> None:
    async with open_workbench(tmp_path, sandbox=NamedSandbox("session", holds=True)) as workbench:
        assert get_text(await workbench.run_bash("echo $HELD_BY")) == "session"
        workbench.sandbox = NamedSandbox("agent")
        assert get_text(await workbench.run_bash("echo $HELD_BY")) == "agent"
        await workbench.run_bash("echo $HELD_BY", run_in_background=True)
        (shell,) = workbench.shells.list_shells()
        await shell.ended.wait()
        assert shell.output.text.strip() == "agent"
        refused = get_text(await workbench.run_bash("echo Read-only file system; false"))
        assert "sandbox" not in refused
