"""A workbench for shell tools: real files, real processes, and a record of their reports."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from hashlib import sha256
from itertools import count
from pathlib import Path
from typing import Any

from shoal.backends.guarded_processes import GuardedProcessLauncher
from shoal.core.agents.background_shells import (
    BackgroundShell,
    BackgroundShellResult,
    NullBackgroundShellObserver,
)
from shoal.core.agents.identity import AgentIdentity
from shoal.core.clock import Clock, SystemClock
from shoal.core.conversation.tools import Tool, ToolContext, ToolOutput
from shoal.core.ids import AgentId, IdGenerator, SessionId
from shoal.core.permissions.questions import Answer, DenyAnswer, Question
from shoal.core.permissions.sandbox import Sandbox
from shoal.tools.bash_tools import build_shell_tools
from shoal.tools.command_launcher import ShellEnvironment
from shoal.tools.shell_supervisor import BackgroundShellSupervisor
from shoal.workspaces.local_workspace import LocalWorkspace


class DirectoryResultStore:
    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def save_result(self, name: str, content: bytes) -> Path:
        self.directory.mkdir(exist_ok=True)
        path = self.directory / name
        path.write_bytes(content)
        return path


class ScriptedQuestionBroker:
    """Returns prepared answers, and records the questions."""

    def __init__(self, *answers: Answer) -> None:
        self.answers = list(answers)
        self.questions: list[Question] = []

    async def ask_person_or_deny(self, question: Question) -> Answer:
        self.questions.append(question)
        return self.answers.pop(0) if self.answers else DenyAnswer(reason="nobody is there", by="policy")


class RecordingShellObserver(NullBackgroundShellObserver):
    """Records reports about background commands."""

    def __init__(self) -> None:
        self.results: list[BackgroundShellResult] = []
        self.stalls: list[tuple[str, str]] = []
        self.looks: list[str] = []

    def on_ended(self, end: BackgroundShellResult) -> None:
        self.results.append(end)

    def on_waiting_for_input(self, facts: BackgroundShell, tail: str) -> None:
        self.stalls.append((facts.shell, tail))

    def on_end_shown_to_agent(self, facts: BackgroundShell, by: AgentId, call: str) -> None:
        self.looks.append(facts.shell)


class ShellWorkbench:
    """A project directory, the tools, and one call after the other."""

    def __init__(
        self,
        directory: Path,
        *,
        env: Mapping[str, str],
        processes: GuardedProcessLauncher,
        clock: Clock,
        sandbox: Sandbox | None,
    ) -> None:
        self.project = directory / "project"
        self.project.mkdir()
        self.home = directory / "home"
        self.results = DirectoryResultStore(directory / "results")
        self.workspace = LocalWorkspace(self.project)
        self.processes = processes
        self.question_broker = ScriptedQuestionBroker()
        self.sandbox: Sandbox | None = None
        self.clock = clock
        self.ids = IdGenerator(1)
        self.env = env
        self.progress_texts: list[str] = []
        self.notes: list[str] = []
        self.shell_observer = RecordingShellObserver()
        self.shells = BackgroundShellSupervisor(
            processes=processes,
            clock=self.clock,
            environment=ShellEnvironment(
                home=self.home,
                variables=env,
                # One for each test, also where several run at once: the directories of commands contain it.
                mark=sha256(str(self.home).encode()).hexdigest()[:8],
                sandbox=sandbox,
            ),
            note=self.notes.append,
            observer=self.shell_observer,
        )
        self.tools: dict[str, Tool] = {tool.schema.name: tool for tool in build_shell_tools(self.shells)}
        self._calls = count(1)

    def create_context(self) -> ToolContext:
        return ToolContext(
            call_id=f"call_{next(self._calls)}",
            agent=AgentIdentity(session=SessionId("s")),
            workspace=self.workspace,
            processes=self.processes,
            question_broker=self.question_broker,
            results=self.results,
            clock=self.clock,
            ids=self.ids,
            report_progress=self._record_progress,
            env=self.env,
            sandbox=self.sandbox,
        )

    async def call_tool(self, tool: str, **arguments: Any) -> ToolOutput:
        return await self.tools[tool].run(arguments, self.create_context())

    async def run_bash(self, command: str, **arguments: Any) -> ToolOutput:
        return await self.call_tool("Bash", command=command, **arguments)

    async def _record_progress(self, text: str) -> None:
        self.progress_texts.append(text)


@asynccontextmanager
async def open_workbench(
    directory: Path, clock: Clock | None = None, sandbox: Sandbox | None = None, **env: str
) -> AsyncIterator[ShellWorkbench]:
    processes = GuardedProcessLauncher(SystemClock())
    home = directory / "user"
    home.mkdir(exist_ok=True)
    base = {"PATH": os.environ["PATH"], "HOME": str(home), "SHELL": "/bin/bash", "LANG": "C.UTF-8"}
    bench = ShellWorkbench(
        directory, env=base | env, processes=processes, clock=clock or SystemClock(), sandbox=sandbox
    )
    try:
        async with bench.shells:
            yield bench
    finally:
        await processes.aclose()


def get_text(output: ToolOutput) -> str:
    assert isinstance(output.content, str)
    return output.content
