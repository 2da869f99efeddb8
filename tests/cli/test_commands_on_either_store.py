"""Every command shows the same of a run, whether it is kept in files or in a database."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from difflib import unified_diff
from pathlib import Path

import httpx
import pytest
from msgspec import Struct
from shoal_process import TIMEOUT, CliResult

pytestmark = pytest.mark.needs("postgres", "asyncpg")
SESSION = "b0000000-0000-4000-8000-000000000021"
SCRIPT = """
[[steps]]
match = "begin"
tools = [{ name = "TeamCreate", input = { team_name = "crew" } }]

[[steps]]
match = "crew"
tools = [{ name = "TaskCreate", input = { subject = "saw", description = "the plank" } }]

[[steps]]
match = "saw"
text = "I write a file."
tools = [{ name = "Write", input = { file_path = "PROJECT/plank.txt", content = "long" } }]

[[steps]]
match = "plank.txt"
text = "I wait for a command."
tools = [{ name = "Bash", input = { command = "touch started; while [ ! -e go ]; do sleep 0.1; done" } }]

[[steps]]
match = "hello from outside"
text = "I was greeted."

[[steps]]
match = ""
text = "The command has ended."
"""
QUESTION_SCRIPT = """
[[steps]]
match = "begin"
tools = [{ name = "Bash", input = { command = "touch allowed" } }]

[[steps]]
match = ""
text = "The command has ended."
"""
COMMANDS_WHILE_LIVE = (
    ("ps",),
    ("ps", "--json"),
    ("ps", SESSION[:8], "--json"),
    ("cost", "--json"),
    ("sessions",),
    ("task", "ls", "--team", "crew", "--json"),
    ("team", "ls", "--json"),
    ("team", "show", "crew"),
    ("team", "show", "crew", "--json"),
    ("team", "export", "crew"),
    ("undo", "--list", "--json"),
    ("undo", "--conversation", "--yes"),
    ("attach", SESSION[:8]),
    ("team", "attach", "crew"),
    ("team", "resume", "crew", "-p", "go on"),
    ("send", SESSION[:8], "nobody", "hello"),
    ("send", SESSION[:8], "lead", "hello from outside", "--json"),
)
COMMANDS_AFTERWARDS = (
    ("ps", "--json"),
    ("ps", SESSION[:8], "--json"),
    ("watch",),
    ("watch", SESSION[:8]),
    ("watch", SESSION[:8], "--json"),
    ("view", SESSION[:8], "lead", "--exit"),
    ("view", SESSION[:8], "nobody", "--exit"),
    ("cost",),
    ("cost", SESSION[:8], "--json"),
    ("export",),
    ("team", "show", "crew", "--json"),
    ("team", "export", "crew", "--json"),
    ("doctor", "--why", "slow", "--json"),
    ("attach", SESSION[:8]),
    ("send", SESSION[:8], "lead", "hello"),
    ("stop", SESSION[:8]),
    ("undo", "--list"),
    ("undo", "--yes", "--json"),
    ("undo", "--list", "--json"),
)
_VARIABLE_TEXT = (
    (re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+Z?"), "TIME"),
    (re.compile(r"\b\d\d:\d\d(:\d\d)?(\.\d+)?\b"), "TIME"),
    (re.compile(r"\b\d+(\.\d+)? ?(ms|s|min)\b"), "DURATION"),
    (re.compile(r"\b1[6-9]\d{11}\b"), "MILLISECONDS"),
    (re.compile(r"\b(?!b0000000)[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b"), "ID"),
    (re.compile(r"req-[0-9a-f-]+|[0-9a-f]{12,}"), "ID"),
    (re.compile(r"process \d+( on [\w-]+)?"), "PROCESS"),
    (re.compile(r'("(\w*seconds|\w+_ms|usd|offset|since|next|began|last\w*)": ?)[\d.]+'), r"\1N"),
    (re.compile(r'("item":)"[0-9a-f]+"'), r"\1ID"),
    (re.compile(r" +"), " "),
)


async def wait_for_result(process: asyncio.subprocess.Process) -> CliResult:
    async with asyncio.timeout(TIMEOUT):
        out, err = await process.communicate()
    assert process.returncode is not None
    assert b"Traceback" not in err, err.decode()
    return CliResult(code=process.returncode, out=out, err=err.decode())


class Place(Struct, frozen=True, kw_only=True):
    """A home and a project, and the store of their runs."""

    home: Path
    project: Path
    store: str

    @property
    def env(self) -> dict[str, str]:
        env = {**os.environ, "SHOAL_HOME": str(self.home), "IS_SANDBOX": "1", "COLUMNS": "120"}
        return {**env, "SHOAL_STORE": self.store} if self.store else env

    async def run_shoal(self, *arguments: str) -> CliResult:
        async with self.start_shoal(*arguments) as process:
            return await wait_for_result(process)

    @asynccontextmanager
    async def start_shoal(self, *arguments: str) -> AsyncIterator[asyncio.subprocess.Process]:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "shoal", *arguments),
            cwd=self.project,
            env=self.env,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            yield process
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()

    @asynccontextmanager
    async def start_run(self, script_text: str, *arguments: str) -> AsyncIterator[asyncio.subprocess.Process]:
        script = self.project / "script.toml"
        script.write_text(script_text.replace("PROJECT", str(self.project)))
        model = ("--model", f"scripted:{script}", "--session-id", SESSION)
        async with self.start_shoal("-p", "begin", *model, *arguments) as process:
            yield process

    async def wait_for_file(self, name: str, process: asyncio.subprocess.Process) -> None:
        async with asyncio.timeout(60):
            while not (self.project / name).exists():
                assert process.returncode is None
                await asyncio.sleep(0.05)

    async def describe(self, *arguments: str) -> tuple[int, str, str]:
        """Return what a command does and shows, without what differs between any two runs."""
        result = await self.run_shoal(*arguments)
        return result.code, self._to_comparable(result.text), self._to_comparable(result.err)

    def _to_comparable(self, text: str) -> str:
        text = text.replace(str(self.project.parent), "PLACE")
        for pattern, replacement in _VARIABLE_TEXT:
            text = pattern.sub(replacement, text)
        return text


@pytest.fixture
def places(tmp_path: Path, database: str) -> tuple[Place, Place]:
    found = []
    for name, store in (("files", ""), ("bases", database)):
        place = Place(home=tmp_path / name / "home", project=tmp_path / name / "project", store=store)
        place.project.mkdir(parents=True)
        found.append(place)
    return found[0], found[1]


async def check_same(places: tuple[Place, Place], commands: tuple[tuple[str, ...], ...]) -> None:
    differences = []
    for arguments in commands:
        in_files, in_database = [await place.describe(*arguments) for place in places]
        if in_files != in_database:
            lines = [re.split(r"(?<=[,\n])", "".join(map(str, each))) for each in (in_files, in_database)]
            differences += [str(arguments), *unified_diff(*lines, n=1)]
    assert differences == [], "\n".join(differences)


@pytest.mark.slow
async def test_commands_show_the_same_of_a_run_in_files_and_in_a_database(places) -> None:
    allowed = ("--permission-mode", "bypassPermissions")
    async with places[0].start_run(SCRIPT, *allowed) as first, places[1].start_run(SCRIPT, *allowed) as other:
        for place, process in zip(places, (first, other), strict=True):
            await place.wait_for_file("started", process)
        await check_same(places, COMMANDS_WHILE_LIVE)
        for place, process in zip(places, (first, other), strict=True):
            (place.project / "go").touch()
            result = await wait_for_result(process)
            assert (result.code, result.text) == (0, "I was greeted.\n"), result.err
    await check_same(places, COMMANDS_AFTERWARDS)
    assert not (places[1].project / "plank.txt").exists()
    assert not (places[1].home / "projects").exists()


async def test_what_needs_the_machine_of_a_run_is_refused_elsewhere_with_a_sentence(
    places: tuple[Place, Place], tmp_path: Path
) -> None:
    here = places[1]
    elsewhere = Place(home=tmp_path / "other-home", project=here.project, store=here.store)
    async with here.start_run(SCRIPT, "--permission-mode", "bypassPermissions") as process:
        await here.wait_for_file("started", process)
        for arguments in (("send", SESSION[:8], "lead", "hello"), ("stop", SESSION[:8], "all")):
            result = await elsewhere.run_shoal(*arguments)
            assert result.code == 1
            assert f"Session {SESSION} runs in process {process.pid} on" in result.err
            assert "with another home directory. Messages and commands reach it only there." in result.err
        rows = (await elsewhere.run_shoal("ps", "--json")).out
        assert [row["state"] for row in json.loads(rows)] == ["working"]
        result = await here.run_shoal("stop", SESSION[:8])
        assert (result.code, result.text) == (0, f"Stopping session {SESSION}.\n")
        async with asyncio.timeout(TIMEOUT):
            await process.communicate()
    result = await elsewhere.run_shoal("undo", "--yes")
    assert result.code == 1
    assert "Files can be restored only there." in result.err
    assert (here.project / "plank.txt").exists()
    resumed = await elsewhere.run_shoal(
        *("team", "resume", "crew", "-p", "go on", "--model", f"scripted:{here.project / 'script.toml'}")
    )
    assert (resumed.code, resumed.text) == (0, "The command has ended.\n"), resumed.err
    assert not (elsewhere.home / "teams").exists()


async def test_a_question_of_a_run_in_the_database_is_answered_in_a_browser(
    places: tuple[Place, Place], tmp_path: Path
) -> None:
    here = places[1]
    elsewhere = Place(home=tmp_path / "other-home", project=here.project, store=here.store)
    here.home.mkdir()
    (here.home / "settings.json").write_text(json.dumps({"shoal": {"question_patience": 60}}))
    async with (
        here.start_run(QUESTION_SCRIPT, "--permission-mode", "default") as process,
        elsewhere.start_shoal("web", "--json") as server,
    ):
        assert server.stdout is not None
        async with asyncio.timeout(TIMEOUT):
            address = json.loads(await server.stdout.readline())
            headers = {"Authorization": f"Bearer {address['token']}"}
            base = address["url"].partition("/?")[0]
            async with httpx.AsyncClient(base_url=base, headers=headers, timeout=30) as client:
                while not (rows := (await client.get("/api/questions")).json()):
                    assert process.returncode is None
                (row,) = rows
                assert (row["session"], row["question"]["tool"]) == (SESSION, "Bash")
                reply = await client.post(
                    f"/api/runs/{SESSION}/questions/{row['id']}", json={"type": "allowed"}
                )
                assert reply.json() == {"stands": True}
                result = await wait_for_result(process)
                assert (result.code, result.text) == (0, "The command has ended.\n")
                page = (await client.get(f"/api/runs/{SESSION}/agents/lead/transcript")).json()
        server.terminate()
    assert (here.project / "allowed").exists()
    assert "touch allowed" in json.dumps(page)
