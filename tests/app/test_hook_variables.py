"""Variables that a SessionStart hook leaves in `CLAUDE_ENV_FILE` for the shell commands of agents."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent_scripts import call_tool
from hook_helpers import (
    AGENT_POSITIONS,
    list_results,
    make_command_hook,
    make_settings,
    open_hook_scenario,
)

MP = pytest.MonkeyPatch
SHOW = call_tool("Bash", "b1", command='echo "$HARBOUR, $PIER"')


@pytest.mark.spec("CMP-043")
@pytest.mark.parametrize("position", AGENT_POSITIONS)
async def test_commands_get_the_variables_that_a_start_hook_exports(
    position: str, project: Path, monkeypatch: MP, tmp_path: Path
) -> None:
    own = tmp_path / "own.sh"
    own.write_text("export HARBOUR=old PIER=7\n")
    monkeypatch.setenv("CLAUDE_ENV_FILE", str(own))
    hook = """echo 'export HARBOUR="Kiel west"' >> "$CLAUDE_ENV_FILE" """
    settings = make_settings({"SessionStart": hook})
    async with open_hook_scenario(position, project, monkeypatch, [SHOW, "done"], settings) as scenario:
        await scenario.run_session()
        assert "Kiel west, 7" in list_results(scenario.last_request)[0]


@pytest.mark.spec("CMP-043")
async def test_variables_of_several_hooks_reach_commands_in_a_sandbox(project: Path, monkeypatch: MP) -> None:
    hooks = [
        make_command_hook(f"""[ -f "$CLAUDE_ENV_FILE" ] && echo 'export {variable}' >> "$CLAUDE_ENV_FILE" """)
        for variable in ("HARBOUR=Kiel", "PIER=7")
    ]
    settings = make_settings(
        {"SessionStart": {"hooks": hooks}},
        shoal={"sandbox": {"enabled": "auto"}},
    )
    async with open_hook_scenario("lead", project, monkeypatch, [SHOW, "done"], settings) as scenario:
        await scenario.run_session()
        assert "Kiel, 7" in list_results(scenario.last_request)[0]
