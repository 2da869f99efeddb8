"""`shoal demo`: a real team in real processes, of which one is really killed; only the minds are scripted."""

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

from cli_live.conftest import SHOAL, Place
from cli_live.terminal import Terminal, environment
from shoal.app.demo.harbour import TESTS, changes

pytestmark = pytest.mark.needs("git")
MEMBERS = ["ana", "ben", "cleo"]
BOUND = 60


def demo(tmp: Path, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    """The whole of it, in a pipe; `tmp` is where it makes its place."""
    tmp.mkdir()
    return subprocess.run(
        [*SHOAL, "demo", "--fast", *arguments],
        env=os.environ | {"TMPDIR": str(tmp)} | env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=BOUND,
        check=False,
    )


class Ran:
    """A demo that kept what it made."""

    def __init__(self, tmp: Path) -> None:
        run = demo(tmp, "--keep")
        assert run.returncode == 0, run.stdout + run.stderr
        self.text = run.stdout
        (self.place,) = tmp.iterdir()
        self.home, self.project = self.place / "home", self.place / "project"

    def typed(self, *arguments: str) -> str:
        """What `shoal` says to that in the home that was kept."""
        env = os.environ | {"SHOAL_HOME": str(self.home)}
        return subprocess.run(
            [*SHOAL, *arguments], cwd=self.place, env=env, capture_output=True, text=True, check=True
        ).stdout

    def told(self, pattern: str) -> list[Any]:
        return re.findall(pattern, self.text, re.MULTILINE)

    def events(self, kind: str) -> list[dict[str, Any]]:
        (journal,) = self.home.glob("shoal/runs/*/journal.jsonl")
        lines = journal.read_text(encoding="utf-8").splitlines()
        return [event for event in map(json.loads, lines) if event.get("type") == kind]


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    return Ran(tmp_path_factory.mktemp("demo") / "tmp")


def read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def left_running(place: Path) -> list[str]:
    """Processes that work in that place, or know it from their surroundings."""
    found = []
    for process in Path("/proc").iterdir():
        if process.name.isdecimal() and int(process.name) != os.getpid():
            with suppress(OSError):
                known = (process / "cwd").readlink().is_relative_to(place)
                if known or f"={place}".encode() in (process / "environ").read_bytes():
                    found.append((process / "cmdline").read_text())
    return found


@pytest.mark.spec("SRF-03")
def test_every_task_is_done_by_those_who_are_told_and_the_team_shuts_down(ran: Ran) -> None:
    assert "words are scripted" in ran.text
    assert sorted(ran.told(r"^● (\w+) +joins, in process \d+")) == MEMBERS
    tasks = [read(ran.home / f"tasks/harbour/{number}.json") for number in range(1, 6)]
    assert [task["status"] for task in tasks] == ["completed"] * 5
    assert [task["owner"] for task in tasks[:2]] == MEMBERS[:2]
    assert [task["blockedBy"] for task in tasks[3:]] == [["1", "2", "3"], ["4"]]
    assert ran.told(r"^  ✓ #\d [\w ]+? +(ana|ben|cleo) *$") == [task["owner"] for task in tasks]
    assert sorted(ran.told(r"^● (\w+) +has shut down$")) == MEMBERS
    members = read(ran.home / "teams/harbour/config.json")["members"]
    assert [member["name"] for member in members] == ["team-lead"]
    assert left_running(ran.place) == []


def test_the_project_is_repaired_by_them_for_real(ran: Ran) -> None:
    assert "all 8 pass" in ran.text
    assert subprocess.run(TESTS, cwd=ran.project, capture_output=True, check=False).returncode == 0
    assert [change.path for change in changes(ran.project)] == [
        "harbour/berths.py",
        "harbour/fees.py",
        "harbour/tides.py",
    ]
    log = ["git", "-C", str(ran.project), "log", "--format=%s"]
    subjects = subprocess.run(log, capture_output=True, text=True, check=True).stdout.splitlines()
    assert subjects == ["Repair the harbour", "A small harbour"]


def test_what_they_write_to_each_other_is_in_their_inboxes(ran: Ran) -> None:
    boxes = {path.stem: read(path) for path in (ran.home / "teams/harbour/inboxes").glob("*.json")}
    asked = [mail["text"] for mail in boxes["ana"] if mail["from"] == "ben"]
    answered = [mail["text"] for mail in boxes["ben"] if mail["from"] == "ana"]
    assert len(asked) == len(answered) == 1
    assert ran.told(r"^✉ ben → ana  (.*)$") == asked
    assert ran.told(r"^✉ ana → ben  (.*)$") == answered
    plans = [mail["text"] for mail in boxes["ben"] if "plan_approval_response" in mail["text"]]
    assert [json.loads(plan)["approved"] for plan in plans] == [True]
    assert len(ran.told(r"^✉ lead → ben  your plan is approved$")) == 1
    ever = [json.loads(ran.typed("inbox", "show", name, "--all", "--json")) for name in boxes]
    assert ran.told(r"^mail +(\d+) messages: .*, 2 between teammates$") == [str(sum(map(len, ever)))]


def test_a_killed_process_is_noticed_and_another_one_goes_on_with_its_history(ran: Ran) -> None:
    (joined,) = ran.told(r"^● cleo +joins, in process (\d+)$")
    (killed,) = ran.told(r"^✗ kill -9 (\d+)   The demo kills the process of cleo")
    assert ran.told(r"^● cleo +died: (.*)$") == ["it was killed by signal 9"]
    ((again, task),) = ran.told(r"^● cleo +goes on in process (\d+) after .*, with its history and (.*)$")
    assert joined == killed != again
    assert task == "#3"
    starts = [event["resumed"] for event in ran.events("agent_started") if event["agent"] == "cleo@harbour"]
    assert starts == [False, True]
    conversations = [path.read_text() for path in ran.home.glob("projects/*/*/subagents/*.jsonl")]
    (hers,) = [said for said in conversations if "Your process ended while you were at work" in said]
    assert hers.index("Task #3 is yours") < hers.index("Your process ended while you were at work")
    assert len(ran.told("and 1 request cut off$")) == 1


def test_a_permission_is_asked_for_and_its_answer_is_told_as_the_demo_s(ran: Ran) -> None:
    (asker,) = ran.told(r"^\? Bash asks to run for (\w+): ")
    assert "allow? y  (the demo types this, in your place)" in ran.text
    (asked,), (answered,) = ran.events("asked"), ran.events("answered")
    assert asked["question"]["agent"] == f"{asker}@harbour"
    assert asked["question"]["input"]["command"].startswith("git commit")
    assert answered["answer"]["type"] == "allowed"


def test_the_cost_of_each_member_adds_up_to_the_whole(ran: Ran) -> None:
    rows = ran.told(r"^  (lead|ana|ben|cleo|in all) +(\d+) +\S+ +\$(\d+\.\d+)")
    assert [row[0] for row in rows] == ["lead", *MEMBERS, "in all"]
    *parts, whole = rows
    assert sum(int(row[1]) for row in parts) == int(whole[1]) == len(ran.events("request_settled"))
    assert abs(sum(float(row[2]) for row in parts) - float(whole[2])) < 0.001


def test_what_to_type_next_can_be_typed(ran: Ran) -> None:
    lines = ran.told(rf"^(?:next)? +SHOAL_HOME={ran.home} shoal (.*)$")
    board, mail, cost = (ran.typed(*line.split()) for line in lines)
    assert board.count("completed") == 5
    assert "fee() gets the bare length" in mail
    assert "cleo" in cost


def test_in_a_pipe_it_is_plain_text_and_leaves_nothing(place: Place, tmp_path: Path) -> None:
    """Nor do a signing key, a hook or another model of the person's reach it."""
    hooks = tmp_path / "hooks"
    hooks.mkdir()
    (hooks / "pre-commit").write_text("#!/bin/sh\nexit 1\n")
    (hooks / "pre-commit").chmod(0o755)
    config = tmp_path / "own" / ".gitconfig"
    config.parent.mkdir()
    config.write_text(f"[commit]\n gpgsign = true\n[core]\n hooksPath = {hooks}\n")
    tmp = tmp_path / "tmp"
    run = demo(
        tmp,
        SHOAL_HOME=str(place.home),
        HOME=str(config.parent),
        GIT_DIR=str(tmp_path / "nowhere"),
        SHOAL_SUBAGENT_MODEL="openai:nobody",
        SHOAL_TEAMMATE_MODE="in-process",
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert "\x1b" not in run.stdout
    assert "✗ kill -9 " in run.stdout
    assert list(tmp.iterdir()) == []
    assert list(place.home.iterdir()) == []
    assert left_running(tmp) == []


def test_a_narrow_terminal_without_colours_shows_whole_lines(place: Place, tmp_path: Path) -> None:
    env = environment(place.home, TMPDIR=str(tmp_path), NO_COLOR="1")
    with Terminal([*SHOAL, "demo", "team", "--fast"], cwd=place.project, env=env, columns=60) as terminal:
        assert terminal.wait_for_end(bound=BOUND) == 0, terminal.screen.text
        assert max(map(len, terminal.screen.lines)) <= 59
        assert "m" not in terminal.screen.codes


def test_each_member_has_a_row_and_ctrl_c_leaves_nothing(place: Place, tmp_path: Path) -> None:
    tmp = tmp_path / "tmp"
    tmp.mkdir()
    terminal = place.shoal_at_terminal("demo", "--home", str(place.home), TMPDIR=str(tmp))
    terminal.wait_for("takes #3 Repair the tides")
    terminal.wait_for("● cleo  works     #3 Repair the tides")
    rows = re.findall(r"^  ● (\w+) +(?:works|idle|waits) .*\$\d", terminal.screen.text, re.MULTILINE)
    assert rows == ["lead", *MEMBERS]
    assert left_running(tmp) != []
    terminal.type("\x03")
    assert terminal.wait_for_end() == 130
    assert list(tmp.iterdir()) == []
    assert left_running(tmp) == []


def test_it_clears_up_when_it_is_ended_from_outside(place: Place, tmp_path: Path) -> None:
    tmp = tmp_path / "tmp"
    tmp.mkdir()
    env = os.environ | {"TMPDIR": str(tmp), "SHOAL_HOME": str(place.home)}
    with subprocess.Popen([*SHOAL, "demo"], env=env, stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        for line in run.stdout:
            if "joins, in process" in line:
                break
        run.send_signal(signal.SIGTERM)
        run.communicate(timeout=20)
    assert run.returncode == 143
    assert list(tmp.iterdir()) == []
    assert left_running(tmp) == []


def test_a_demo_that_goes_wrong_fails(place: Place, tmp_path: Path) -> None:
    broken = tmp_path / "bin" / "python3"
    broken.parent.mkdir()
    broken.write_text("#!/bin/sh\necho nothing works today >&2\nexit 9\n")
    broken.chmod(0o755)
    path = f"{broken.parent}{os.pathsep}{os.environ['PATH']}"
    run = demo(tmp_path / "tmp", PATH=path, SHOAL_HOME=str(place.home))
    assert run.returncode == 1, run.stdout + run.stderr
    assert "✗ #1 Repair the berths" in run.stdout
    assert "The demo failed" in run.stdout
