"""Team templates: what is created before the lead's first turn, task order, and refusals."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from agent_scripts import call_tool, read_events, run_all_turns
from git_repository import GitRepository, run_git
from shoal.app.definitions.agent_catalog import load_agent_catalog
from shoal.app.session.team_start import (
    build_lead_team_prompt,
    preview_template_tasks,
    start_team_from_template,
)
from shoal.app.teams.team_templates import (
    TeamTemplateCatalog,
    UserLimitsForTeamTemplate,
    check_team_template,
    load_team_templates,
    read_team_template_file,
)
from shoal.core.conversation.model_requests import ModelRequest
from shoal.core.errors import AgentRequestRefused, InvalidTeamTemplate, SettingsError
from shoal.core.events import AgentStarted, TurnStarted
from shoal.core.teams.team_templates import TeamTemplate
from team_scripts import get_home, get_last_text, open_session, read_team_config, script_team, send_message

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


def write_file(directory: Path, name: str, text: str) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / name
    path.write_text(text)
    return path


def write_template(directory: Path, text: str, name: str = "build.md") -> TeamTemplate:
    found = read_team_template_file(write_file(directory, name, text))
    assert found.template is not None, found.problem
    return found.template


def load_project_templates(project: Path) -> TeamTemplateCatalog:
    return load_team_templates(cwd=project, home=get_home())


async def test_no_member_of_a_template_starts_before_all_have_joined(tmp_path: Path) -> None:
    begun = asyncio.Event()
    member_names: list[list[str]] = []

    def digger(request: ModelRequest) -> str:
        member_names.append([each["name"] for each in read_team_config("build")["members"]])
        begun.set()
        return "I wait."

    async def delay_start(fields: dict[str, Any]) -> None:
        """Members after the first are delayed, so that the first one could start early."""
        if not fields["agent_id"].startswith("digger"):
            with suppress(TimeoutError):
                async with asyncio.timeout(0.3):
                    await begun.wait()

    parts = {"lead": ["done"], "digger": [digger], "layer-1": ["I wait."], "layer-2": ["I wait."]}
    template = write_template(tmp_path, THREE_STEPS)
    async with open_session(
        tmp_path, script_team(**parts), hooks={"SubagentStart": [delay_start]}
    ) as session:
        await start_team_from_template(session, template, "the roof")
        async with asyncio.timeout(10):
            await begun.wait()
    assert member_names[0] == ["team-lead", "digger", "layer-1", "layer-2"]


@pytest.mark.parametrize(
    ("field", "is_made"), [("mode: plan", False), ("isolation: worktree", False), ("count: 1", True)]
)
async def test_a_field_of_a_role_narrows_its_member(field: str, is_made: bool, tmp_path: Path) -> None:
    run_git(tmp_path, "init", "-q", "-b", "main")
    run_git(
        tmp_path, "-c", "user.name=A", "-c", "user.email=a@b.c", "commit", "-q", "--allow-empty", "-m", "x"
    )
    finished = asyncio.Event()

    def finish(request: ModelRequest) -> str:
        finished.set()
        return "I wait."

    text = f"---\ndescription: Digs.\nroles:\n  - name: digger\n    prompt: Dig\n    {field}\n---\nLead.\n"
    parts = {"lead": ["done"], "digger": [call_tool("Bash", "touch", command="touch made"), finish]}
    async with open_session(tmp_path, script_team(**parts), skip_permissions=True) as session:
        await start_team_from_template(session, write_template(tmp_path, text), "the roof")
        async with asyncio.timeout(30):
            await finished.wait()
    assert (tmp_path / "made").exists() is is_made


@pytest.mark.spec("TSK-06")
async def test_a_template_team_completes_its_tasks_in_dependency_order(tmp_path: Path) -> None:
    done: list[str] = []
    prompts: dict[str, str] = {}

    def complete_assigned_tasks(who: str) -> Callable[[ModelRequest], Any]:
        """Complete each assigned task once."""

        def choose_reply(request: ModelRequest) -> Any:
            prompts.setdefault(who, request.messages[0].text)
            conversation_text = "\n".join(message.text for message in request.messages)
            for task in re.findall(r"Task #(\d+) is yours now", conversation_text):
                if f"{who} {task}" not in done:
                    done.append(f"{who} {task}")
                    return call_tool("TaskUpdate", f"{who}-{task}", taskId=task, status="completed")
            return "I wait."

        return choose_reply

    def lead(request: ModelRequest) -> str:
        prompts.setdefault("lead", request.messages[0].text)
        return f"{len(done)} are done"

    parts = {
        "lead": [lead],
        "digger": [complete_assigned_tasks("digger")],
        "layer-1": [complete_assigned_tasks("layer-1")],
        "layer-2": [complete_assigned_tasks("layer-2")],
    }
    template = write_template(tmp_path, THREE_STEPS)
    async with open_session(tmp_path, script_team(**parts)) as session:
        started = await start_team_from_template(session, template, "the roof")
        before = [type(event) for event in read_events(session)]
        made = read_team_config("build")
        tasks = {task.id: task for task in started.tasks}
        assert await run_all_turns(session, started.prompt) == "3 are done"
        board = await session.runtime.team_store.open_board("build").list_tasks()
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
    for conversation_text in ("- layer-2", "#3 Paint it (after #2)", "The goal\nthe roof"):
        assert conversation_text in prompts["lead"]


@pytest.mark.slow
@pytest.mark.needs("git", "bwrap")
@pytest.mark.spec("PLN-01", "ISO-02")
async def test_the_shipped_feature_team_plans_builds_and_reworks_until_accepted(tmp_path: Path) -> None:
    repository = GitRepository(tmp_path)
    log: list[str] = []

    def play_when_assigned(
        task: str, *steps: Any, otherwise: str = "I wait."
    ) -> Callable[[ModelRequest], Any]:
        """Play the steps once the task is assigned; wait until then."""
        left = list(steps)

        def choose_reply(request: ModelRequest) -> Any:
            if f"Task #{task} is yours now" not in "\n".join(m.text for m in request.messages):
                return otherwise
            step = left.pop(0) if left else "I am done."
            log.append(f"{task}:{step if isinstance(step, str) else step.name}")
            return step

        return choose_reply

    write = call_tool("Write", file_path="feature.py", content="works = False\n")
    mend = call_tool("Write", "mend", file_path="feature.py", content="works = True\n")
    commit = call_tool("Bash", command="git add -A && git commit -qm feature && git log --oneline | head -1")
    again = call_tool("Bash", "again", command="git commit -qam mended && git log --oneline | head -1")
    model = script_team(
        lead=["I wait for the plan.", "It goes on.", get_last_text],
        planner=[
            play_when_assigned(
                "1",
                call_tool("ExitPlanMode", plan="One file that works."),
                send_message("builder", "The plan: one file that works."),
                call_tool("TaskUpdate", taskId="1", status="completed"),
            )
        ],
        builder=[
            play_when_assigned(
                "2",
                write,
                commit,
                call_tool("TaskUpdate", taskId="2", status="completed"),
                "Built.",
                mend,
                again,
                send_message("verifier", "It is mended.", "mended"),
            )
        ],
        verifier=[
            play_when_assigned(
                "3",
                send_message("builder", "works is False, True was planned", "sent back"),
                "I wait for the builder.",
                call_tool("TaskUpdate", taskId="3", status="completed"),
                send_message("team-lead", "verified: works is True", "verified"),
            )
        ],
    )
    template = load_project_templates(repository.top).find("feature")
    settings = json.dumps({"shoal": {"plan_approver": "auto"}})
    async with open_session(repository.top, model, settings=settings) as session:
        started = await start_team_from_template(session, template, "a file that works")
        modes = {event.name: event.mode for event in read_events(session) if isinstance(event, AgentStarted)}
        members = {each.name: each.resolved for each in started.members}
        await run_all_turns(session, started.prompt)
        board = await session.runtime.team_store.open_board(started.name).list_tasks()
    assert modes["planner"] == "plan"
    assert [task.status for task in board] == ["completed"] * 3, log
    steps = [log.index(first) for first in ("1:ExitPlanMode", "2:Write", "3:SendMessage")]
    assert steps == sorted(steps)
    tree = Path(members["builder"].worktree)
    assert (tree / "feature.py").read_text() == "works = True\n"
    assert not (repository.top / "feature.py").exists()
    assert run_git(tree, "log", "--format=%s", "-2").splitlines() == ["mended", "feature"]


def test_the_first_prompt_describes_each_member_and_task(tmp_path: Path) -> None:
    text = """---
description: Digs.
roles:
  - name: digger
    type: Explore
    model: haiku
    mode: plan
    isolation: worktree
    prompt: Dig
  - name: layer
    mode: acceptEdits
    prompt: Lay
    count: 2
  - name: guest
    prompt: Look
tasks:
  - key: dig
    subject: Dig the hole
    owner: digger
  - key: lay
    subject: Lay the pipe
    blockedBy: [dig]
---
Lead {goal}.
"""
    template = write_template(tmp_path, text).fill_goal("the roof")
    tasks = preview_template_tasks(template)
    prompt = build_lead_team_prompt("crew", template, "the roof", tasks)
    assert prompt.startswith("Lead the roof.\n\n")
    assert [line for line in prompt.splitlines() if line.startswith("- ")] == [
        "- digger (Explore, only reads until its plan is approved, in its own worktree, haiku)",
        "- layer-1 (acceptEdits)",
        "- layer-2 (acceptEdits)",
        "- guest",
        "- #1 Dig the hole [digger]",
        "- #2 Lay the pipe (after #1)",
    ]


def test_every_shipped_template_is_valid_and_needs_no_trust(tmp_path: Path) -> None:
    found = load_project_templates(tmp_path)
    definitions = load_agent_catalog(cwd=tmp_path, home=get_home())
    allowed = UserLimitsForTeamTemplate(mode="default", max_usd=0.01, max_tokens=1)
    assert [each.name for each in found.effective] == ["bug-hunt", "feature", "review"]
    for each in found.effective:
        assert each.template is not None, each.problem
        assert check_team_template(each.template, definitions, allowed).needs_goal
        assert each.template.budget_usd is None
        assert all(role.mode in (None, "plan", "dontAsk") for role in each.template.roles)
        goal = each.template.fill_goal("a goal of {goal} things")
        assert "a goal of {goal} things" in goal.roles[0].prompt


async def test_a_team_that_cannot_be_created_completely_leaves_nothing(tmp_path: Path) -> None:
    text = THREE_STEPS.replace("    count: 2\n", "    count: 2\n    isolation: remote\n")
    async with open_session(tmp_path, script_team(lead=["alone"], digger=["I dig."])) as session:
        with pytest.raises(AgentRequestRefused):
            await start_team_from_template(session, write_template(tmp_path, text), "the roof")
        assert list((get_home() / "teams").glob("*/config.json")) == []
        assert not list((get_home() / "tasks").glob("build/*.json"))
        # And the session can lead another.
        started = await start_team_from_template(
            session, write_template(tmp_path, THREE_STEPS), "x", name="second"
        )
        assert started.name == "second"


async def test_members_of_a_team_that_cannot_be_created_keep_no_place(tmp_path: Path) -> None:
    """The first two join before the third is refused; there is room for three in all."""
    text = THREE_STEPS.replace(
        "    count: 2\n", "  - name: roofer\n    prompt: Roof\n    isolation: remote\n"
    )
    text = text.replace("layer-2", "layer")
    settings = json.dumps({"shoal": {"max_agents": 3, "max_concurrent": 3, "teammate_mode": "in-process"}})
    model = script_team(**{who: ["I wait."] for who in ("lead", "digger", "layer", "layer-1", "layer-2")})
    async with open_session(tmp_path, model, settings=settings) as session:
        with pytest.raises(AgentRequestRefused, match="remote"):
            await start_team_from_template(session, write_template(tmp_path, text), "the roof")
        await start_team_from_template(session, write_template(tmp_path, THREE_STEPS), "x", name="second")
        members = [member["name"] for member in read_team_config("second")["members"]]
    assert members == ["team-lead", "digger", "layer-1", "layer-2"]


def test_an_unreadable_template_directory_is_reported(tmp_path: Path) -> None:
    place = write_file(tmp_path / ".claude", "teams", "not a directory")
    flaws = [str(each.problem) for each in load_project_templates(tmp_path).all if each.problem is not None]
    assert flaws == [f"{place}: cannot be read: Not a directory"]


def test_project_templates_override_user_templates_and_those_the_shipped_ones(tmp_path: Path) -> None:
    project = tmp_path / "project"
    (project / "src").mkdir(parents=True)
    (project / ".git").mkdir()
    (project / ".git/HEAD").touch()
    text = "---\ndescription: {}\nroles:\n  - name: a\n    prompt: p\n---\n"
    mine = write_file(get_home() / "teams", "review.md", text.format("mine"))
    (get_home() / "teams" / "running").mkdir()
    theirs = write_file(project / ".claude" / "teams", "review.md", text.format("theirs"))
    toml = 'description = "in TOML"\nprompt = "Lead."\n[[roles]]\nname = "a"\nprompt = "p"\n'
    write_file(project / "src" / ".claude" / "teams", "near.toml", toml)
    found = load_project_templates(project / "src")
    assert found.find("review").description == "theirs"
    assert found.find("near").prompt == "Lead."
    hidden = {each.origin.path: each.hidden_by for each in found.all if each.hidden_by is not None}
    assert hidden[mine] is not None
    assert hidden[mine].path == theirs
    theirs.unlink()
    assert load_project_templates(project / "src").find("review").description == "mine"
    with pytest.raises(SettingsError, match="Did you mean near"):
        load_project_templates(project / "src").find("naer")


HEAD = "---\ndescription: d\n"
ROLE = "roles:\n  - name: a\n    prompt: p\n"
BAD = {
    "no front matter": ("Just text.", 1, "no front matter"),
    "front matter without an end": ("---\ndescription: d\n", 1, "does not end"),
    "YAML that cannot be read": (HEAD + "roles: [\n---\n", 3, "roles"),
    "no description": ("---\n" + ROLE + "---\n", 1, "`description` is missing"),
    "no roles": (HEAD + "---\n", 1, "there are no roles"),
    "an unknown key": (HEAD + ROLE + "rolls: 1\n---\n", 6, "rolls: unknown key; did you mean roles?"),
    "an unknown key of a role": (HEAD + ROLE + "    colour: red\n---\n", 6, "colour"),
    "a role without a prompt": (HEAD + "roles:\n  - name: a\n---\n", 4, "`prompt` is missing"),
    "a role that is no mapping": (HEAD + "roles:\n  - a\n---\n", 4, "expected a mapping"),
    "two roles of one name": (
        HEAD + ROLE + "  - name: a\n    prompt: q\n---\n",
        6,
        "two members have the name 'a', first on line 4",
    ),
    "a role and one of several that are named alike": (
        HEAD + "roles:\n  - name: a\n    count: 2\n    prompt: p\n  - name: a-2\n    prompt: q\n---\n",
        7,
        "two members have the name 'a-2'",
    ),
    "a name the program's own": (HEAD + "roles:\n  - name: user\n    prompt: p\n---\n", 4, "is reserved"),
    "a name that is a path": (
        HEAD + "roles:\n  - name: ../up\n    prompt: p\n---\n",
        4,
        "is not a valid name",
    ),
    "a mode nobody knows": (HEAD + ROLE + "    mode: yolo\n---\n", 6, "not one of default, acceptEdits"),
    "a count of none": (HEAD + ROLE + "    count: 0\n---\n", 6, "expected an integer greater than 0"),
    "too many": (HEAD + ROLE + "    count: 33\n---\n", 3, "at most 32"),
    "more than any memory holds": (HEAD + ROLE + "    count: 100000000000\n---\n", 3, "at most 32"),
    "a budget in words": (
        HEAD + ROLE + "budget:\n  usd: much\n---\n",
        7,
        "expected a dollar amount greater than 0, got 'much'",
    ),
    "a budget of nothing": (HEAD + ROLE + "budget: {usd: 0}\n---\n", 6, "a dollar amount greater than 0"),
    "an owner that is no role": (
        HEAD + ROLE + "tasks:\n  - subject: s\n    owner: b\n---\n",
        8,
        "there is no role 'b'; known roles: a",
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
        "there is no task with the key 'z'; known keys: k",
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
def test_a_template_error_is_reported_with_its_line_and_a_remedy(case: str, tmp_path: Path) -> None:
    text, line, words = BAD[case]
    flaw = read_team_template_file(write_file(tmp_path, "bad.md", text)).problem
    assert flaw is not None
    assert flaw.line == line
    assert str(flaw).startswith(f"{tmp_path / 'bad.md'}:{line}: ")
    assert words in str(flaw)


def test_a_toml_template_error_is_reported_with_its_line(tmp_path: Path) -> None:
    text = 'description = "d"\nprompt = """\nx = 1\n[[roles]]\n"""\n[[roles]]\nname = "a"\nprompt = "p"\n'
    flaw = read_team_template_file(write_file(tmp_path, "a.toml", f'{text}mode = "yolo"\n')).problem
    assert flaw is not None
    assert (flaw.line, flaw.field) == (9, "roles[1].mode")
    flaw = read_team_template_file(write_file(tmp_path, "b.toml", f"{text}mode yolo\n")).problem
    assert flaw is not None
    assert (flaw.line, "it is not valid TOML" in flaw.what) == (9, True)


def test_an_unreadable_template_is_a_problem_and_no_crash(tmp_path: Path) -> None:
    path = tmp_path / "bad.md"
    path.write_bytes(b"---\n\xff\n---\n")
    assert "not UTF-8" in str(read_team_template_file(path).problem)
    assert "cannot be read" in str(read_team_template_file(tmp_path / "none.md").problem)


def test_an_unknown_agent_type_is_reported_with_its_line(tmp_path: Path) -> None:
    template = write_template(tmp_path, HEAD + ROLE + "    type: general-purpos\n---\n")
    with pytest.raises(InvalidTeamTemplate, match="Did you mean general-purpose") as refused:
        check_team_template(template, load_agent_catalog(cwd=tmp_path, home=get_home()))
    assert refused.value.problem.line == 6


@pytest.mark.spec("USR-05")
@pytest.mark.parametrize(
    ("more", "words"),
    [
        ("    mode: bypassPermissions\n", "cannot use bypassPermissions"),
        ("    mode: acceptEdits\n", "cannot use acceptEdits if the session uses default"),
        ("budget: {usd: 6}\n", "6 exceeds the limit of 5 in your settings"),
        ("budget: {tokens: 1001}\n", "1001 exceeds the limit of 1000 in your settings"),
    ],
)
def test_a_project_template_cannot_widen_permissions(more: str, words: str, tmp_path: Path) -> None:
    text = f"{HEAD}{ROLE}{more}---\n"
    definitions = load_agent_catalog(cwd=tmp_path, home=get_home())
    allowed = UserLimitsForTeamTemplate(mode="default", max_usd=5, max_tokens=1000)
    with pytest.raises(InvalidTeamTemplate, match=words) as refused:
        check_team_template(write_template(tmp_path / "project", text), definitions, allowed)
    assert refused.value.problem.line == 6
    own = read_team_template_file(write_file(get_home() / "teams", "own.md", text), "user").template
    assert own is not None
    assert check_team_template(own, definitions, allowed) is own
