"""`shoal demo`: a real team in real processes, one of which is killed; only the models are scripted."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from cli_live.conftest import SHOAL_COMMAND, CliProject
from cli_live.pty_terminal import PtyTerminal, build_environment
from shoal.app.demo.demo_project import TEST_COMMAND, find_demo_project_changes

pytestmark = [pytest.mark.needs("git"), pytest.mark.one_worker]
MEMBERS = ["ana", "ben", "cleo"]
BOUND = 60


def run_demo(tmp: Path, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Run the whole demo in a pipe; it makes its directory in `tmp`."""
    tmp.mkdir()
    return subprocess.run(
        [*SHOAL_COMMAND, "demo", "--fast", *arguments],
        env=os.environ | {"TMPDIR": str(tmp)} | env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=BOUND,
        check=False,
    )


class DemoRun:
    """A finished demo that kept its files."""

    def __init__(self, tmp: Path) -> None:
        run = run_demo(tmp, "--keep")
        assert run.returncode == 0, run.stdout + run.stderr
        self.text = run.stdout
        (self.directory,) = tmp.iterdir()
        self.home, self.project = self.directory / "home", self.directory / "project"

    def run_shoal(self, *arguments: str) -> str:
        """Run `shoal` in the home of the demo and return its output."""
        env = os.environ | {"SHOAL_HOME": str(self.home)}
        return subprocess.run(
            [*SHOAL_COMMAND, *arguments],
            cwd=self.directory,
            env=env,
            capture_output=True,
            text=True,
            check=True,
        ).stdout

    def find_lines(self, pattern: str) -> list[Any]:
        return re.findall(pattern, self.text, re.MULTILINE)

    def list_events(self, kind: str) -> list[dict[str, Any]]:
        (journal,) = self.home.glob("shoal/runs/*/journal.jsonl")
        lines = journal.read_text(encoding="utf-8").splitlines()
        return [event for event in map(json.loads, lines) if event.get("type") == kind]


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> DemoRun:
    return DemoRun(tmp_path_factory.mktemp("demo") / "tmp")


def read_json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def find_demo_processes(directory: Path) -> list[str]:
    """Return the commands of processes that work in this directory or have it in their environment."""
    commands = []
    for process in Path("/proc").iterdir():
        if process.name.isdecimal() and int(process.name) != os.getpid():
            with suppress(OSError):
                works_there = (process / "cwd").readlink().is_relative_to(directory)
                if works_there or f"={directory}".encode() in (process / "environ").read_bytes():
                    commands.append((process / "cmdline").read_text())
    return commands


@pytest.mark.spec("SRF-03")
def test_every_task_is_completed_by_its_owner_and_the_team_shuts_down(demo: DemoRun) -> None:
    assert "replies are scripted" in demo.text
    assert sorted(demo.find_lines(r"^● (\w+) +joins in process \d+")) == MEMBERS
    tasks = [read_json(demo.home / f"tasks/harbour/{number}.json") for number in range(1, 6)]
    assert [task["status"] for task in tasks] == ["completed"] * 5
    assert [task["owner"] for task in tasks[:2]] == MEMBERS[:2]
    assert [task["blockedBy"] for task in tasks[3:]] == [["1", "2", "3"], ["4"]]
    assert demo.find_lines(r"^  ✓ #\d [\w ]+? +(ana|ben|cleo) *$") == [task["owner"] for task in tasks]
    assert sorted(demo.find_lines(r"^● (\w+) +has shut down$")) == MEMBERS
    members = read_json(demo.home / "teams/harbour/config.json")["members"]
    assert [member["name"] for member in members] == ["team-lead"]
    assert find_demo_processes(demo.directory) == []


def test_the_demo_team_repairs_the_project(demo: DemoRun) -> None:
    assert "all 8 pass" in demo.text
    assert subprocess.run(TEST_COMMAND, cwd=demo.project, capture_output=True, check=False).returncode == 0
    assert [change.path for change in find_demo_project_changes(demo.project)] == [
        "harbour/berths.py",
        "harbour/fees.py",
        "harbour/tides.py",
    ]
    log = ["git", "-C", str(demo.project), "log", "--format=%s"]
    subjects = subprocess.run(log, capture_output=True, text=True, check=True).stdout.splitlines()
    assert subjects == ["Repair the harbour", "A small harbour"]


def test_the_mail_of_the_members_is_in_their_mailboxes(demo: DemoRun) -> None:
    boxes = {path.stem: read_json(path) for path in (demo.home / "teams/harbour/inboxes").glob("*.json")}
    questions = [mail["text"] for mail in boxes["ana"] if mail["from"] == "ben"]
    answers = [mail["text"] for mail in boxes["ben"] if mail["from"] == "ana"]
    assert len(questions) == len(answers) == 1
    assert demo.find_lines(r"^✉ ben → ana  (.*)$") == questions
    assert demo.find_lines(r"^✉ ana → ben  (.*)$") == answers
    plans = [mail["text"] for mail in boxes["ben"] if "plan_approval_response" in mail["text"]]
    assert [json.loads(plan)["approved"] for plan in plans] == [True]
    assert len(demo.find_lines(r"^✉ lead → ben  your plan is approved$")) == 1
    all_mail = [json.loads(demo.run_shoal("inbox", "show", name, "--all", "--json")) for name in boxes]
    assert demo.find_lines(r"^mail +(\d+) messages: .*, 2 between teammates$") == [
        str(sum(map(len, all_mail)))
    ]


def test_a_killed_member_process_is_replaced_and_keeps_its_history(demo: DemoRun) -> None:
    (joined,) = demo.find_lines(r"^● cleo +joins in process (\d+)$")
    (killed,) = demo.find_lines(r"^✗ kill -9 (\d+)   The demo kills the process of cleo")
    assert demo.find_lines(r"^● cleo +died: (.*)$") == ["it was killed by signal 9"]
    ((replacement, task),) = demo.find_lines(
        "^● cleo +continues in process (\\d+) after .*, with its history and (.*)$"
    )
    assert joined == killed != replacement
    assert task == "#3"
    starts = [
        event["resumed"] for event in demo.list_events("agent_started") if event["agent"] == "cleo@harbour"
    ]
    assert starts == [False, True]
    conversations = [path.read_text() for path in demo.home.glob("projects/*/*/subagents/*.jsonl")]
    (cleo_conversation,) = [
        conversation
        for conversation in conversations
        if "Your process ended while you were working" in conversation
    ]
    assert cleo_conversation.index("Task #3 is yours") < cleo_conversation.index(
        "Your process ended while you were working"
    )
    assert len(demo.find_lines("and 1 request cut off$")) == 1


def test_a_permission_question_is_answered_by_the_demo(demo: DemoRun) -> None:
    (asker,) = demo.find_lines(r"^\? Bash asks to run for (\w+): ")
    assert "allow? y  (the demo types this for you)" in demo.text
    (asked,), (answered,) = demo.list_events("asked"), demo.list_events("answered")
    assert asked["question"]["agent"] == f"{asker}@harbour"
    assert asked["question"]["input"]["command"].startswith("git commit")
    assert answered["answer"]["type"] == "allowed"


def test_the_costs_of_the_members_add_up_to_the_total(demo: DemoRun) -> None:
    rows = demo.find_lines(r"^  (lead|ana|ben|cleo|total) +(\d+) +\S+ +\$(\d+\.\d+)")
    assert [row[0] for row in rows] == ["lead", *MEMBERS, "total"]
    *parts, whole = rows
    assert sum(int(row[1]) for row in parts) == int(whole[1]) == len(demo.list_events("request_settled"))
    assert abs(sum(float(row[2]) for row in parts) - float(whole[2])) < 0.001


def test_commands_suggested_by_the_demo_work(demo: DemoRun) -> None:
    lines = demo.find_lines(rf"^(?:next)? +SHOAL_HOME={demo.home} shoal (.*)$")
    board, mail, cost = (demo.run_shoal(*line.split()) for line in lines)
    assert board.count("completed") == 5
    assert "fee() gets the bare length" in mail
    assert "cleo" in cost


@pytest.mark.slow
def test_the_team_demo_in_a_pipe_prints_plain_text_and_leaves_no_files(
    cli_project: CliProject, tmp_path: Path
) -> None:
    """A signing key, a hook and another model of the user do not reach the demo."""
    hooks = tmp_path / "hooks"
    hooks.mkdir()
    (hooks / "pre-commit").write_text("#!/bin/sh\nexit 1\n")
    (hooks / "pre-commit").chmod(0o755)
    config = tmp_path / "own" / ".gitconfig"
    config.parent.mkdir()
    config.write_text(f"[commit]\n gpgsign = true\n[core]\n hooksPath = {hooks}\n")
    tmp = tmp_path / "tmp"
    run = run_demo(
        tmp,
        SHOAL_HOME=str(cli_project.home),
        HOME=str(config.parent),
        GIT_DIR=str(tmp_path / "nowhere"),
        SHOAL_SUBAGENT_MODEL="openai:nobody",
        SHOAL_TEAMMATE_MODE="in-process",
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert "\x1b" not in run.stdout
    assert "✗ kill -9 " in run.stdout
    assert list(tmp.iterdir()) == []
    assert list(cli_project.home.iterdir()) == []
    assert find_demo_processes(tmp) == []


@pytest.mark.slow
def test_a_narrow_terminal_without_colours_shows_whole_lines(cli_project: CliProject, tmp_path: Path) -> None:
    env = build_environment(cli_project.home, TMPDIR=str(tmp_path), NO_COLOR="1")
    with PtyTerminal(
        [*SHOAL_COMMAND, "demo", "team", "--fast"], cwd=cli_project.project, env=env, columns=60
    ) as terminal:
        assert terminal.wait_for_end(timeout=BOUND) == 0, terminal.screen.text
        assert max(map(len, terminal.screen.lines)) <= 59
        assert "m" not in terminal.screen.codes


@pytest.mark.slow
def test_each_member_has_a_row_and_ctrl_c_leaves_nothing(cli_project: CliProject, tmp_path: Path) -> None:
    tmp = tmp_path / "tmp"
    tmp.mkdir()
    terminal = cli_project.start_shoal_terminal("demo", "--home", str(cli_project.home), TMPDIR=str(tmp))
    terminal.wait_for("takes #3 Repair the tides")
    terminal.wait_for("● cleo  works     #3 Repair the tides")
    rows = re.findall(r"^  ● (\w+) +(?:works|idle|waits) .*\$\d", terminal.screen.text, re.MULTILINE)
    assert rows == ["lead", *MEMBERS]
    assert find_demo_processes(tmp) != []
    terminal.type_text("\x03")
    assert terminal.wait_for_end() == 130
    assert list(tmp.iterdir()) == []
    assert find_demo_processes(tmp) == []


@pytest.mark.slow
def test_the_demo_cleans_up_when_it_is_terminated(cli_project: CliProject, tmp_path: Path) -> None:
    tmp = tmp_path / "tmp"
    tmp.mkdir()
    env = os.environ | {"TMPDIR": str(tmp), "SHOAL_HOME": str(cli_project.home)}
    with subprocess.Popen([*SHOAL_COMMAND, "demo"], env=env, stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        for line in run.stdout:
            if "joins in process" in line:
                break
        run.send_signal(signal.SIGTERM)
        run.communicate(timeout=20)
    assert run.returncode == 143
    assert list(tmp.iterdir()) == []
    assert find_demo_processes(tmp) == []


@pytest.mark.slow
def test_a_failing_demo_exits_with_an_error(cli_project: CliProject, tmp_path: Path) -> None:
    broken = tmp_path / "bin" / "python3"
    broken.parent.mkdir()
    broken.write_text("#!/bin/sh\necho nothing works today >&2\nexit 9\n")
    broken.chmod(0o755)
    path = f"{broken.parent}{os.pathsep}{os.environ['PATH']}"
    run = run_demo(tmp_path / "tmp", PATH=path, SHOAL_HOME=str(cli_project.home))
    assert run.returncode == 1, run.stdout + run.stderr
    assert "✗ #1 Repair the berths" in run.stdout
    assert "The demo failed" in run.stdout
