"""A workbench for shell tools: real files, real processes, and a record of their reports."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from hashlib import sha256
from itertools import count
from pathlib import Path
from typing import Any

from shoal.backends.processes import GuardedProcesses
from shoal.core.clock import Clock, SystemClock
from shoal.core.identity import Identity
from shoal.core.ids import AgentId, Ids, SessionId
from shoal.core.questions import Answer, Denied, Question
from shoal.core.sandbox import Sandbox
from shoal.core.shells import ShellEnd, ShellFacts, Unheard
from shoal.core.tools import Outcome, Site, Tool
from shoal.tools.bash import shell_tools
from shoal.tools.shells import Shells
from shoal.workspaces.local import LocalWorkspace


class KeptFiles:
    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def keep(self, name: str, content: bytes) -> Path:
        self.directory.mkdir(exist_ok=True)
        path = self.directory / name
        path.write_bytes(content)
        return path


class AnsweringDesk:
    """Returns prepared answers, and records the questions."""

    def __init__(self, *answers: Answer) -> None:
        self.answers = list(answers)
        self.questions: list[Question] = []

    async def ask(self, question: Question) -> Answer:
        self.questions.append(question)
        return self.answers.pop(0) if self.answers else Denied(reason="nobody is there", by="policy")


class Heard(Unheard):
    """Records reports about background commands."""

    def __init__(self) -> None:
        self.ends: list[ShellEnd] = []
        self.stalls: list[tuple[str, str]] = []
        self.looks: list[str] = []

    def ended(self, end: ShellEnd) -> None:
        self.ends.append(end)

    def stuck(self, facts: ShellFacts, tail: str) -> None:
        self.stalls.append((facts.shell, tail))

    def seen(self, facts: ShellFacts, by: AgentId, call: str) -> None:
        self.looks.append(facts.shell)


class Workbench:
    """A project directory, the tools, and one call after the other."""

    def __init__(
        self, directory: Path, *, env: Mapping[str, str], processes: GuardedProcesses, clock: Clock
    ) -> None:
        self.project = directory / "project"
        self.project.mkdir()
        self.home = directory / "home"
        self.results = KeptFiles(directory / "results")
        self.workspace = LocalWorkspace(self.project)
        self.processes = processes
        self.desk = AnsweringDesk()
        self.sandbox: Sandbox | None = None
        self.clock = clock
        self.ids = Ids(1)
        self.env = env
        self.told: list[str] = []
        self.notes: list[str] = []
        self.heard = Heard()
        self.shells = Shells(
            processes=processes,
            clock=self.clock,
            home=self.home,
            env=env,
            # One for each test, also where several run at once: the directories of commands contain it.
            mark=sha256(str(self.home).encode()).hexdigest()[:8],
            note=self.notes.append,
        )
        self.shells.news = self.heard
        self.tools: dict[str, Tool] = {tool.schema.name: tool for tool in shell_tools(self.shells)}
        self._calls = count(1)

    def site(self) -> Site:
        return Site(
            call_id=f"call_{next(self._calls)}",
            agent=Identity(session=SessionId("s")),
            workspace=self.workspace,
            processes=self.processes,
            desk=self.desk,
            results=self.results,
            clock=self.clock,
            ids=self.ids,
            progress=self._progress,
            env=self.env,
            sandbox=self.sandbox,
        )

    async def call(self, tool: str, **arguments: Any) -> Outcome:
        return await self.tools[tool].run(arguments, self.site())

    async def bash(self, command: str, **arguments: Any) -> Outcome:
        return await self.call("Bash", command=command, **arguments)

    async def _progress(self, text: str) -> None:
        self.told.append(text)


@asynccontextmanager
async def workbench(directory: Path, clock: Clock | None = None, **env: str) -> AsyncIterator[Workbench]:
    processes = GuardedProcesses(SystemClock())
    home = directory / "user"
    home.mkdir(exist_ok=True)
    base = {"PATH": os.environ["PATH"], "HOME": str(home), "SHELL": "/bin/bash", "LANG": "C.UTF-8"}
    bench = Workbench(directory, env=base | env, processes=processes, clock=clock or SystemClock())
    try:
        async with bench.shells:
            yield bench
    finally:
        await processes.aclose()


def text(outcome: Outcome) -> str:
    assert isinstance(outcome.content, str)
    return outcome.content
