"""Teams from templates: what is made before the lead's first turn, how the order is kept, what is refused."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from cast import all_turns, recorded, use
from git_rig import Repository, git
from shoal.app.definitions.definitions import definitions_for
from shoal.app.session.team_start import start_team
from shoal.app.teams.templates import Standing, Templates, checked, read_file, templates_for
from shoal.core.errors import AgentRefused, BadTemplate, SettingsError
from shoal.core.events import AgentStarted, TurnStarted
from shoal.core.requests import Request
from shoal.core.templates import Template
from troupe import config, home, last_words, opened, tell, troupe

THREE_STEPS = """\
---
description: Digs, lays and paints.
roles:
  - name: digger
    prompt: "Dig for {goal}"
  - name: layer
    prompt: "Lay for {goal}"
    count: 2
tasks:
  - key: paint
    subject: Paint it
    blockedBy: [lay]
  - key: dig
    subject: Dig it
    owner: digger
  - key: lay
    subject: Lay it
    blockedBy: dig
    owner: layer-2
budget:
  usd: 3
---
Lead the building of {goal}.
"""


def written(directory: Path, name: str, text: str) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / name
    path.write_text(text)
    return path


def template_in(directory: Path, text: str, name: str = "build.md") -> Template:
    found = read_file(written(directory, name, text))
    assert found.template is not None, found.flaw
    return found.template


def found_in(project: Path) -> Templates:
    return templates_for(cwd=project, home=home())


async def test_nobody_of_a_template_begins_before_all_have_joined(tmp_path: Path) -> None:
    begun = asyncio.Event()
    seen: list[list[str]] = []

    def digger(request: Request) -> str:
        seen.append([each["name"] for each in config("build")["members"]])
        begun.set()
        return "I wait."

    async def late(fields: dict[str, Any]) -> None:
        """Whoever joins after the first gives that one time to begin."""
        if not fields["agent_id"].startswith("digger"):
            with suppress(TimeoutError):
                async with asyncio.timeout(0.3):
                    await begun.wait()

    parts = {"lead": ["done"], "digger": [digger], "layer-1": ["I wait."], "layer-2": ["I wait."]}
    template = template_in(tmp_path, THREE_STEPS)
    async with opened(tmp_path, troupe(**parts), hooks={"SubagentStart": [late]}) as session:
        await start_team(session, template, "the roof")
        async with asyncio.timeout(10):
            await begun.wait()
    assert seen[0] == ["team-lead", "digger", "layer-1", "layer-2"]


@pytest.mark.spec("TSK-06")
async def test_a_template_runs_from_its_making_to_the_last_task_in_the_order_it_names(tmp_path: Path) -> None:
    done: list[str] = []
    prompts: dict[str, str] = {}

    def working(who: str) -> Callable[[Request], Any]:
        """Completes each task that it is told to be its own, once."""

        def say(request: Request) -> Any:
            prompts.setdefault(who, request.messages[0].text)
            told = "\n".join(message.text for message in request.messages)
            for task in re.findall(r"Task #(\d+) is yours now", told):
                if f"{who} {task}" not in done:
                    done.append(f"{who} {task}")
                    return use("TaskUpdate", f"{who}-{task}", taskId=task, status="completed")
            return "I wait."

        return say

    def lead(request: Request) -> str:
        prompts.setdefault("lead", request.messages[0].text)
        return f"{len(done)} are done"

    parts = {
        "lead": [lead],
        "digger": [working("digger")],
        "layer-1": [working("layer-1")],
        "layer-2": [working("layer-2")],
    }
    template = template_in(tmp_path, THREE_STEPS)
    async with opened(tmp_path, troupe(**parts)) as session:
        started = await start_team(session, template, "the roof")
        before = [type(event) for event in recorded(session)]
        made = config("build")
        tasks = {task.id: task for task in started.tasks}
        assert await all_turns(session, started.prompt) == "3 are done"
        board = await session.parts.between.board("build").list()
    assert TurnStarted not in before
    assert before.count(AgentStarted) == 3
    assert [each["name"] for each in made["members"]] == ["team-lead", "digger", "layer-1", "layer-2"]
    assert made["description"] == "build: the roof"
    assert [(tasks[i].subject, tasks[i].owner, tasks[i].blocked_by) for i in ("1", "2", "3")] == [
        ("Dig it", "digger", ()),
        ("Lay it", "layer-2", ("1",)),
        ("Paint it", None, ("2",)),
    ]
    assert [each.rsplit(" ", 1)[1] for each in done] == ["1", "2", "3"]
    assert done[:2] == ["digger 1", "layer-2 2"]
    assert all(task.status == "completed" for task in board)
    assert "Dig for the roof" in prompts["digger"]
    assert "#2 Lay it [layer-2] (after #1)" in prompts["layer-2"]
    assert prompts["lead"].startswith("Lead the building of the roof.")
    for told in ("- layer-2", "#3 Paint it (after #2)", "The goal\nthe roof"):
        assert told in prompts["lead"]


@pytest.mark.needs("git", "bwrap")
@pytest.mark.spec("PLN-01", "ISO-02")
async def test_the_shipped_feature_team_plans_builds_and_sends_back_until_it_holds(tmp_path: Path) -> None:
    repository = Repository(tmp_path)
    log: list[str] = []

    def when(task: str, *steps: Any, otherwise: str = "I wait.") -> Callable[[Request], Any]:
        """Its steps in order once the task is its own; until then it waits."""
        left = list(steps)

        def say(request: Request) -> Any:
            if f"Task #{task} is yours now" not in "\n".join(m.text for m in request.messages):
                return otherwise
            step = left.pop(0) if left else "I am done."
            log.append(f"{task}:{step if isinstance(step, str) else step.name}")
            return step

        return say

    write = use("Write", file_path="feature.py", content="works = False\n")
    mend = use("Write", "mend", file_path="feature.py", content="works = True\n")
    commit = use("Bash", command="git add -A && git commit -qm feature && git log --oneline | head -1")
    again = use("Bash", "again", command="git commit -qam mended && git log --oneline | head -1")
    model = troupe(
        lead=["I wait for the plan.", "It goes on.", last_words],
        planner=[
            when(
                "1",
                use("ExitPlanMode", plan="One file that works."),
                tell("builder", "The plan: one file that works."),
                use("TaskUpdate", taskId="1", status="completed"),
            )
        ],
        builder=[
            when(
                "2",
                write,
                commit,
                use("TaskUpdate", taskId="2", status="completed"),
                "Built.",
                mend,
                again,
                tell("verifier", "It is mended.", "mended"),
            )
        ],
        verifier=[
            when(
                "3",
                tell("builder", "works is False, True was planned", "sent back"),
                "I wait for the builder.",
                use("TaskUpdate", taskId="3", status="completed"),
                tell("team-lead", "verified: works is True", "verified"),
            )
        ],
    )
    template = found_in(repository.top).find("feature")
    settings = json.dumps({"shoal": {"plan_approver": "auto"}})
    async with opened(repository.top, model, settings=settings) as session:
        started = await start_team(session, template, "a file that works")
        modes = {event.name: event.mode for event in recorded(session) if isinstance(event, AgentStarted)}
        members = {each.name: each.resolved for each in started.members}
        await all_turns(session, started.prompt)
        board = await session.parts.between.board(started.name).list()
    assert modes["planner"] == "plan"
    assert [task.status for task in board] == ["completed"] * 3, log
    steps = [log.index(first) for first in ("1:ExitPlanMode", "2:Write", "3:SendMessage")]
    assert steps == sorted(steps)
    tree = Path(members["builder"].worktree)
    assert (tree / "feature.py").read_text() == "works = True\n"
    assert not (repository.top / "feature.py").exists()
    assert git(tree, "log", "--format=%s", "-2").splitlines() == ["mended", "feature"]


def test_every_shipped_template_is_good_and_asks_for_nothing_that_must_be_trusted(tmp_path: Path) -> None:
    found = found_in(tmp_path)
    definitions = definitions_for(cwd=tmp_path, home=home())
    allowed = Standing(mode="default", max_usd=0.01, max_tokens=1)
    assert [each.name for each in found.standing] == ["bug-hunt", "feature", "review"]
    for each in found.standing:
        assert each.template is not None, each.flaw
        assert checked(each.template, definitions, allowed).needs_goal
        assert each.template.budget_usd is None
        assert all(role.mode in (None, "plan", "dontAsk") for role in each.template.roles)
        goal = each.template.filled("a goal of {goal} things")
        assert "a goal of {goal} things" in goal.roles[0].prompt


async def test_nothing_is_left_of_a_team_that_could_not_be_made_whole(tmp_path: Path) -> None:
    text = THREE_STEPS.replace("    count: 2\n", "    count: 2\n    isolation: remote\n")
    async with opened(tmp_path, troupe(lead=["alone"], digger=["I dig."])) as session:
        with pytest.raises(AgentRefused):
            await start_team(session, template_in(tmp_path, text), "the roof")
        assert list((home() / "teams").glob("*/config.json")) == []
        assert not list((home() / "tasks").glob("build/*.json"))
        # And the session can lead another.
        started = await start_team(session, template_in(tmp_path, THREE_STEPS), "x", name="second")
        assert started.name == "second"


def test_a_directory_of_templates_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    place = written(tmp_path / ".claude", "teams", "not a directory")
    flaws = [str(each.flaw) for each in found_in(tmp_path).all if each.flaw is not None]
    assert flaws == [f"{place}: it cannot be read: Not a directory"]


def test_a_project_s_template_stands_before_the_person_s_and_that_before_the_shipped(tmp_path: Path) -> None:
    project = tmp_path / "project"
    (project / "src").mkdir(parents=True)
    (project / ".git").mkdir()
    text = "---\ndescription: {}\nroles:\n  - name: a\n    prompt: p\n---\n"
    mine = written(home() / "teams", "review.md", text.format("mine"))
    (home() / "teams" / "running").mkdir()
    theirs = written(project / ".claude" / "teams", "review.md", text.format("theirs"))
    toml = 'description = "in TOML"\nprompt = "Lead."\n[[roles]]\nname = "a"\nprompt = "p"\n'
    written(project / "src" / ".claude" / "teams", "near.toml", toml)
    found = found_in(project / "src")
    assert found.find("review").description == "theirs"
    assert found.find("near").prompt == "Lead."
    hidden = {each.origin.path: each.hidden_by for each in found.all if each.hidden_by is not None}
    assert hidden[mine] is not None
    assert hidden[mine].path == theirs
    theirs.unlink()
    assert found_in(project / "src").find("review").description == "mine"
    with pytest.raises(SettingsError, match="Is near meant"):
        found_in(project / "src").find("naer")


HEAD = "---\ndescription: d\n"
ROLE = "roles:\n  - name: a\n    prompt: p\n"
BAD = {
    "no front matter": ("Just text.", 1, "no front matter"),
    "front matter without an end": ("---\ndescription: d\n", 1, "does not end"),
    "YAML that cannot be read": (HEAD + "roles: [\n---\n", 3, "roles"),
    "no description": ("---\n" + ROLE + "---\n", 1, "`description` is missing"),
    "no roles": (HEAD + "---\n", 1, "there are no roles"),
    "an unknown key": (HEAD + ROLE + "rolls: 1\n---\n", 6, "rolls: this key is not known; is roles meant?"),
    "an unknown key of a role": (HEAD + ROLE + "    colour: red\n---\n", 6, "colour"),
    "a role without a prompt": (HEAD + "roles:\n  - name: a\n---\n", 4, "`prompt` is missing"),
    "a role that is no mapping": (HEAD + "roles:\n  - a\n---\n", 4, "keys with their values"),
    "two roles of one name": (
        HEAD + ROLE + "  - name: a\n    prompt: q\n---\n",
        6,
        "two members are named 'a', first on line 4",
    ),
    "a role and one of several that are named alike": (
        HEAD + "roles:\n  - name: a\n    count: 2\n    prompt: p\n  - name: a-2\n    prompt: q\n---\n",
        7,
        "two members are named 'a-2'",
    ),
    "a name of the program's own": (HEAD + "roles:\n  - name: user\n    prompt: p\n---\n", 4, "kept for"),
    "a name that is a path": (HEAD + "roles:\n  - name: ../up\n    prompt: p\n---\n", 4, "cannot be a name"),
    "a mode nobody knows": (HEAD + ROLE + "    mode: yolo\n---\n", 6, "not one of default, acceptEdits"),
    "a count of none": (HEAD + ROLE + "    count: 0\n---\n", 6, "a whole number from 1 on"),
    "too many": (HEAD + ROLE + "    count: 33\n---\n", 3, "at most 32"),
    "more than any memory holds": (HEAD + ROLE + "    count: 100000000000\n---\n", 3, "at most 32"),
    "a budget in words": (HEAD + ROLE + "budget:\n  usd: much\n---\n", 7, "a number of dollars"),
    "a budget of nothing": (HEAD + ROLE + "budget: {usd: 0}\n---\n", 6, "a number of dollars above 0"),
    "an owner that is no role": (
        HEAD + ROLE + "tasks:\n  - subject: s\n    owner: b\n---\n",
        8,
        "no role is named 'b'; there are: a",
    ),
    "an owner that is several": (
        HEAD + ROLE + "    count: 2\ntasks:\n  - subject: s\n    owner: a\n---\n",
        9,
        "name one of a-1, a-2",
    ),
    "two tasks of one key": (
        HEAD + ROLE + "tasks:\n  - key: k\n    subject: s\n  - key: k\n    subject: t\n---\n",
        9,
        "two tasks have the key 'k'",
    ),
    "a task that waits for nobody's": (
        HEAD + ROLE + "tasks:\n  - key: k\n    subject: s\n    blockedBy: [z]\n---\n",
        9,
        "there is no task with the key 'z'; there are: k",
    ),
    "tasks that wait for each other": (
        HEAD + ROLE + "tasks:\n  - key: k\n    subject: s\n    blockedBy: [m]\n"
        "  - key: m\n    subject: t\n    blockedBy: k\n---\n",
        9,
        "k → m → k",
    ),
    "a task that waits for itself": (
        HEAD + ROLE + "tasks:\n  - key: k\n    subject: s\n    blockedBy: [k]\n---\n",
        9,
        "k → k",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_what_is_wrong_is_told_with_its_line_and_what_to_do(case: str, tmp_path: Path) -> None:
    text, line, words = BAD[case]
    flaw = read_file(written(tmp_path, "bad.md", text)).flaw
    assert flaw is not None
    assert flaw.line == line
    assert str(flaw).startswith(f"{tmp_path / 'bad.md'}:{line}: ")
    assert words in str(flaw)


def test_what_is_wrong_in_toml_has_its_line_too(tmp_path: Path) -> None:
    text = 'description = "d"\nprompt = """\nx = 1\n[[roles]]\n"""\n[[roles]]\nname = "a"\nprompt = "p"\n'
    flaw = read_file(written(tmp_path, "a.toml", f'{text}mode = "yolo"\n')).flaw
    assert flaw is not None
    assert (flaw.line, flaw.field) == (9, "roles[1].mode")
    flaw = read_file(written(tmp_path, "b.toml", f"{text}mode yolo\n")).flaw
    assert flaw is not None
    assert (flaw.line, "it is not TOML" in flaw.what) == (9, True)


def test_a_file_that_cannot_be_read_is_a_problem_and_no_crash(tmp_path: Path) -> None:
    path = tmp_path / "bad.md"
    path.write_bytes(b"---\n\xff\n---\n")
    assert "not UTF-8" in str(read_file(path).flaw)
    assert "cannot be read" in str(read_file(tmp_path / "none.md").flaw)


def test_an_agent_that_nobody_has_is_named_with_its_line(tmp_path: Path) -> None:
    template = template_in(tmp_path, HEAD + ROLE + "    type: general-purpos\n---\n")
    with pytest.raises(BadTemplate, match="Is general-purpose meant") as refused:
        checked(template, definitions_for(cwd=tmp_path, home=home()))
    assert refused.value.flaw.line == 6


@pytest.mark.spec("USR-05")
@pytest.mark.parametrize(
    ("more", "words"),
    [
        ("    mode: bypassPermissions\n", "cannot ask for bypassPermissions"),
        ("    mode: acceptEdits\n", "cannot ask for acceptEdits where the session has default"),
        ("budget: {usd: 6}\n", "6 is more than the 5 of your settings"),
        ("budget: {tokens: 1001}\n", "1001 is more than the 1000 of your settings"),
    ],
)
def test_a_project_s_template_never_widens_what_the_person_allows(
    more: str, words: str, tmp_path: Path
) -> None:
    text = f"{HEAD}{ROLE}{more}---\n"
    definitions = definitions_for(cwd=tmp_path, home=home())
    allowed = Standing(mode="default", max_usd=5, max_tokens=1000)
    with pytest.raises(BadTemplate, match=words) as refused:
        checked(template_in(tmp_path / "project", text), definitions, allowed)
    assert refused.value.flaw.line == 6
    own = read_file(written(home() / "teams", "own.md", text), "user").template
    assert own is not None
    assert checked(own, definitions, allowed) is own
