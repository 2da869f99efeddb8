"""Which sandbox holds a command: the session's, or the agent's own."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace
from shell_workbench import get_text, open_workbench

from shoal.core.ports import ProcessLaunch


class Naming:
    """Confines nothing, and lets a command see whose it is."""

    can_skip_asking = False
    ends_all_processes = False

    def __init__(self, name: str, *, holds: bool = False) -> None:
        self.name = name
        self.is_active = holds

    async def detect_availability(self) -> None: ...

    def wrap_launch(self, launch: ProcessLaunch) -> ProcessLaunch:
        return replace(launch, env={**launch.env, "HELD_BY": self.name})


async def test_an_agent_with_a_sandbox_of_its_own_is_held_by_that_one(tmp_path: Path) -> None:
    async with open_workbench(tmp_path) as bench:
        bench.shells.set_sandbox(Naming("session", holds=True))
        assert get_text(await bench.run_bash("echo $HELD_BY")) == "session"
        bench.sandbox = Naming("agent")
        assert get_text(await bench.run_bash("echo $HELD_BY")) == "agent"
        await bench.run_bash("echo $HELD_BY", run_in_background=True)
        (shell,) = bench.shells.list_shells()
        await shell.ended.wait()
        assert shell.output.text.strip() == "agent"
        refused = get_text(await bench.run_bash("echo Read-only file system; false"))
        assert "sandbox" not in refused
