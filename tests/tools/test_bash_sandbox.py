"""Which sandbox holds a command: the session's, or the agent's own."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace
from sites import text, workbench

from shoal.core.ports import Launch


class Naming:
    """Confines nothing, and lets a command see whose it is."""

    vouches = False
    ends_all = False

    def __init__(self, name: str, *, holds: bool = False) -> None:
        self.name = name
        self.holds = holds

    async def ready(self) -> None: ...

    def wrap(self, launch: Launch) -> Launch:
        return replace(launch, env={**launch.env, "HELD_BY": self.name})


async def test_an_agent_with_a_sandbox_of_its_own_is_held_by_that_one(tmp_path: Path) -> None:
    async with workbench(tmp_path) as bench:
        bench.shells.confine(Naming("session", holds=True))
        assert text(await bench.bash("echo $HELD_BY")) == "session"
        bench.sandbox = Naming("agent")
        assert text(await bench.bash("echo $HELD_BY")) == "agent"
        await bench.bash("echo $HELD_BY", run_in_background=True)
        (shell,) = bench.shells.list()
        await shell.ended.wait()
        assert shell.output.text.strip() == "agent"
        refused = text(await bench.bash("echo Read-only file system; false"))
        assert "sandbox" not in refused
