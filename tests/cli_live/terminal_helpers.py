"""Keys, scripted calls, files and checks for tests of the program at a terminal."""

from __future__ import annotations

import json
from typing import Any

from cli_live.conftest import CliProject
from shoal.core.agents.subagents import AgentResult, AgentWorkEvidence
from shoal.core.budgets.usage import Usage
from shoal.core.ids import LEAD_ID, AgentId

CTRL_C, CTRL_D = "\x03", "\x04"
JOE = AgentId("a1")


def make_bash_call(command: str) -> dict[str, Any]:
    return {"name": "Bash", "input": {"command": command}}


def is_at_prompt(text: str) -> bool:
    return text.endswith("›")


def make_agent_call(job: str, *, background: bool = False, **more: Any) -> dict[str, Any]:
    tool_input = {"description": f"do {job}", "prompt": f"job {job}", **more}
    return {"name": "Agent", "input": tool_input | ({"run_in_background": True} if background else {})}


def read_journal(cli_project: CliProject) -> list[dict[str, Any]]:
    (journal,) = (cli_project.home / "shoal" / "runs").glob("*/journal.jsonl")
    return [json.loads(line) for line in journal.read_text().splitlines()]


def write_agent_definition(cli_project: CliProject, name: str, color: str) -> None:
    directory = cli_project.project / ".claude" / "agents"
    directory.mkdir(parents=True, exist_ok=True)
    text = f"---\nname: {name}\ndescription: Does jobs.\ncolor: {color}\n---\nDo the job.\n"
    (directory / f"{name}.md").write_text(text)


def get_session_id(cli_project: CliProject) -> str:
    return next((cli_project.home / "projects").glob("*/*.jsonl")).stem


def make_result(**facts: Any) -> AgentResult:
    known: dict[str, Any] = {
        "id": "r",
        "agent": JOE,
        "status": "completed",
        "kind": "plumber",
        "description": "mend\nit",
        "report_to": LEAD_ID,
        "call": "c1",
        "evidence": AgentWorkEvidence(tool_calls=2),
        "usage": Usage(input_tokens=1_500),
        "duration_ms": 12_000,
    }
    return AgentResult(**known | facts)
