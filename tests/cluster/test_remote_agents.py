"""Agents with `isolation: remote`: one job on a machine of a real Ray cluster, reported through the queue."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from cluster_helpers import (
    PATIENCE,
    assert_no_member_process_is_left,
    open_cluster_session,
    restore_machine,
    run_git,
    run_turns,
    wait_for_file,
    wait_for_name,
)

import shoal
from agent_scripts import call_tool
from ray_machines import RayMachines
from server_scripts import join_text, run_provider
from shoal.app.settings.settings import load_settings
from shoal.app.settings.settings_trust import save_project_trust_decision
from shoal.core.events import AgentEnded, AgentStarted, Event, NoteAdded, ToolFinished, ToolOutputReturned
from shoal.testing.mock_replies import ReplyLike, RequestBody
from team_scripts import get_home, send_message

pytestmark = [pytest.mark.exhaustive, pytest.mark.needs("ray", "postgres", "asyncpg")]
JOB = "This is the far job."


class Minds:
    """Replies of the lead and of the agent, which is known by its prompt."""

    def __init__(self, lead: list[Any], far: list[Any]) -> None:
        self._lead, self._far = lead, far

    def reply(self, body: RequestBody) -> ReplyLike:
        is_far = JOB in join_text(body["messages"][0]["content"])
        reply: Any = (self._far if is_far else self._lead).pop(0)
        found: ReplyLike = reply(body) if callable(reply) else reply
        return found


class Seen:
    """Events of a session."""

    def __init__(self, session: shoal.Session) -> None:
        self.events: list[Event] = []
        self._changed = asyncio.Event()
        session.subscribe(self._note_event)

    def _note_event(self, event: Event) -> None:
        self.events.append(event)
        self._changed.set()

    def list_events(self, kind: type[Any]) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]

    async def wait_for_note(self, text: str) -> None:
        async with asyncio.timeout(PATIENCE):
            while not any(text in note.text for note in self.list_events(NoteAdded)):
                self._changed.clear()
                await self._changed.wait()


def start_far_agent(**more: Any) -> Any:
    return call_tool("Agent", "go", description="far job", prompt=JOB, isolation="remote", **more)


def create_project(directory: Path) -> Path:
    project = directory / "project"
    project.mkdir()
    (project / "notes.txt").write_text("by the lead\n")
    for arguments in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "first"]):
        run_git(project, *arguments)
    return project


@pytest.mark.spec("ISO-04", "BCK-07", "AGT-09", "AGT-12", "QUE-03")
@pytest.mark.parametrize("members_per_process", [1, 10])
async def test_an_agent_runs_where_its_resources_are_and_reports_through_the_queue(
    tmp_path: Path,
    machines: RayMachines,
    cluster_database: str,
    monkeypatch: pytest.MonkeyPatch,
    members_per_process: int,
) -> None:
    project = create_project(tmp_path)
    resources = {"resources": {"labels": {"n": "1"}}} if members_per_process == 1 else {}
    minds = Minds(
        [start_far_agent(**resources), "It runs.", "Heard."],
        [call_tool("Bash", "b", command="echo far >> notes.txt"), "All is done."],
    )
    async with run_provider(monkeypatch, lead=[minds.reply]) as server:
        machines.use_provider(server.url)
        settings = machines.build_settings(files="git", members_per_process=members_per_process)
        async with open_cluster_session(project, machines, cluster_database, settings=settings) as session:
            seen = Seen(session)
            await run_turns(session)
            usage = session.spending.usage
        (launched,) = [e for e in seen.list_events(ToolOutputReturned) if e.call == "go"]
        (started,), (ended,) = seen.list_events(AgentStarted), seen.list_events(AgentEnded)
        ref = f"refs/shoal/cluster/{session.id}/{started.agent}"
        assert launched.data == {
            "status": "remote_launched",
            "taskId": started.agent,
            "sessionUrl": f"shoal://{session.id}/{started.agent}",
            "outputFile": ended.completion.output,
            "description": "far job",
        }
        assert started.isolation == "remote"
        # The answer did not wait for the agent's process.
        assert seen.events.index(launched) < min(
            seen.events.index(e) for e in seen.list_events(ToolFinished) if e.agent == started.agent
        )
        assert (ended.completion.status, ended.completion.text) == ("completed", "All is done.")
        assert (ended.completion.requests, ended.completion.evidence.tool_calls) == (2, 1)
        assert ref in ended.completion.detail
        notice = join_text(server.requests[-1].body["messages"][-1]["content"])
        assert "<status>completed</status>" in notice
        assert "<result>All is done.</result>" in notice
        keys = [each.headers["x-api-key"] for each in server.requests if JOB in str(each.body["messages"][0])]
        assert set(keys) == {"key-2"} if resources else set(keys) <= {"key-1", "key-2"}
        assert usage.total_tokens >= ended.completion.usage.total_tokens > 0
    assert run_git(project, "show", f"{ref}:notes.txt").split("\n") == ["by the lead", "far"]
    assert (project / "notes.txt").read_text() == "by the lead\n"
    assert "All is done." in Path(ended.completion.output).read_text()
    await assert_no_member_process_is_left(machines)


async def test_what_the_settings_of_the_lead_forbid_is_forbidden_on_other_machines(
    tmp_path: Path, machines: RayMachines, cluster_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = create_project(tmp_path)
    (get_home() / "settings.json").write_text('{"permissions": {"deny": ["Bash(touch:*)"]}}')
    minds = Minds(
        [start_far_agent(), "It runs.", "Heard."],
        [call_tool("Bash", "b", command=f"touch {tmp_path}/made"), "It is forbidden."],
    )
    async with run_provider(monkeypatch, lead=[minds.reply]) as server:
        machines.use_provider(server.url)
        settings = machines.build_settings(files="git")
        async with open_cluster_session(project, machines, cluster_database, settings=settings) as session:
            seen = Seen(session)
            await run_turns(session)
        (ended,) = seen.list_events(AgentEnded)
        assert ended.completion.text == "It is forbidden."
        far = [each.body for each in server.requests if JOB in str(each.body["messages"][0])]
        assert "the rule Bash(touch:*) (--settings:1) forbids it" in str(far[-1]["messages"][-1])
    assert not (tmp_path / "made").exists()


async def test_trusted_hooks_and_rules_of_the_project_apply_on_other_machines(
    tmp_path: Path, machines: RayMachines, cluster_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = create_project(tmp_path)
    (project / ".claude").mkdir()
    hook = {"type": "command", "command": 'grep -q forbidden && echo "not that" >&2 && exit 2 || exit 0'}
    own = {
        "hooks": {"PreToolUse": [{"matcher": "Bash", "hooks": [hook]}]},
        "permissions": {"allow": ["Bash(mkdir:*)"]},
    }
    (project / ".claude" / "settings.json").write_text(json.dumps(own))
    run_git(project, "add", "-A")
    run_git(project, "commit", "-qm", "settings")
    save_project_trust_decision(load_settings(cwd=project), project, trusted=True)
    minds = Minds(
        [start_far_agent(), "It runs.", "Heard."],
        [
            call_tool("Bash", "b1", command="mkdir forbidden"),
            call_tool("Bash", "b2", command="mkdir made"),
            "Done.",
        ],
    )
    async with run_provider(monkeypatch, lead=[minds.reply]) as server:
        machines.use_provider(server.url)
        settings = machines.build_settings(files="git")
        async with open_cluster_session(
            project, machines, cluster_database, settings=settings, skip_permissions=False
        ) as session:
            await run_turns(session)
        far = [each.body for each in server.requests if JOB in str(each.body["messages"][0])]
    assert "not that" in str(far[-1]["messages"][2])
    assert "is_error': True" not in str(far[-1]["messages"][4])
    await assert_no_member_process_is_left(machines)
    assert not [
        path for each in machines.machines for path in each.home.glob("shoal/cluster/checkouts/.*.trust")
    ]


@pytest.mark.spec("ISO-04", "BCK-07")
async def test_an_agent_of_a_killed_machine_continues_on_another_with_its_work(
    tmp_path: Path, machines: RayMachines, cluster_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    project, place = create_project(tmp_path), tmp_path / "place"
    minds = Minds(
        [start_far_agent(), "It runs.", "Heard."],
        [
            call_tool("Bash", "b1", command="echo half >> notes.txt"),
            call_tool("Bash", "b2", command=f"pwd > {place}.new; mv {place}.new {place}; sleep 600"),
            call_tool("Bash", "b3", command="echo done >> notes.txt"),
            "I moved.",
        ],
    )
    async with run_provider(monkeypatch, lead=[minds.reply]) as server:
        machines.use_provider(server.url)
        settings = machines.build_settings(files="git")
        async with open_cluster_session(project, machines, cluster_database, settings=settings) as session:
            seen = Seen(session)
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(run_turns(session))
                await wait_for_file(place)
                await seen.wait_for_note("is stored as refs/shoal/cluster")
                before = next(each for each in machines.nodes if str(each.home) in place.read_text())
                before.kill()
        (started,), (ended,) = seen.list_events(AgentStarted), seen.list_events(AgentEnded)
        assert (ended.completion.status, ended.completion.text) == ("completed", "I moved.")
        ref = f"refs/shoal/cluster/{session.id}/{started.agent}"
        told = join_text([m["content"] for m in server.requests[-2].body["messages"]])
        assert "The machine on which you worked was lost." in told
    assert run_git(project, "show", f"{ref}:notes.txt").split("\n") == ["by the lead", "half", "done"]
    restore_machine(before)


@pytest.mark.spec("ISO-04")
async def test_an_agent_on_another_machine_asks_and_is_stopped_by_its_lead(
    tmp_path: Path, machines: RayMachines, cluster_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = asyncio.Event()

    async def answer(question: Any) -> Any:
        asked.set()
        return question.allow()

    minds = Minds(
        [start_far_agent(name="far"), "It runs.", "Heard."],
        [call_tool("Bash", "b", command="touch reached; sleep 600"), "never"],
    )
    async with run_provider(monkeypatch, lead=[minds.reply]) as server:
        machines.use_provider(server.url)
        async with open_cluster_session(
            tmp_path, machines, cluster_database, skip_permissions=False, on_question=answer
        ) as session:
            seen = Seen(session)
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(run_turns(session))
                await wait_for_file(tmp_path / "reached")
                assert asked.is_set()
                await session.send("far", "Hello?")
                await session.stop_task("far")
            (ended,) = seen.list_events(AgentEnded)
            assert ended.completion.status == "killed"
            # It was still in its first call.
            assert "1 message to it is undelivered" in ended.completion.detail
            with pytest.raises(shoal.ShoalError, match="has ended, so it cannot be resumed"):
                await session.send("far", "Hello?")
    await assert_no_member_process_is_left(machines)


@pytest.mark.spec("ISO-04", "CTL-01")
@pytest.mark.parametrize("members_per_process", [1, 10])
async def test_messages_reach_an_agent_on_another_machine_after_its_tool_round(
    tmp_path: Path,
    machines: RayMachines,
    cluster_database: str,
    monkeypatch: pytest.MonkeyPatch,
    members_per_process: int,
) -> None:
    minds = Minds(
        # The first message is sent before the process of the agent exists.
        [start_far_agent(name="far"), send_message("far", "From the lead."), "It runs.", "Heard.", "Heard."],
        [
            wait_for_name(f"{tmp_path}/go", f"{tmp_path}/reached"),
            send_message("lead", "From far away."),
            "I have read both.",
        ],
    )
    async with run_provider(monkeypatch, lead=[minds.reply]) as server:
        machines.use_provider(server.url)
        settings = machines.build_settings(members_per_process=members_per_process)
        async with open_cluster_session(tmp_path, machines, cluster_database, settings=settings) as session:
            seen = Seen(session)
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(run_turns(session))
                await wait_for_file(tmp_path / "reached")
                await session.send("far", "From the person.")
                (tmp_path / "go").touch()
            (ended,) = seen.list_events(AgentEnded)
        far = [each.body for each in server.requests if JOB in str(each.body["messages"][0])]
    assert (ended.completion.status, ended.completion.text) == ("completed", "I have read both.")
    assert ended.completion.detail == ""
    told = str(far[-1]["messages"])
    assert (told.count("From the lead."), told.count("From the person.")) == (1, 1)
    assert "From the person." not in str(far[0]["messages"])
    # With the results of the round, or right after them.
    assert "From the person." in str(far[1]["messages"][2:])
    lead = [each.body for each in server.requests if JOB not in str(each.body["messages"][0])]
    assert str(lead[-1]["messages"]).count("From far away.") == 1
    await assert_no_member_process_is_left(machines)


@pytest.mark.spec("ISO-04", "CTL-01")
async def test_a_message_that_a_lost_machine_had_not_read_reaches_the_agent_on_another(
    tmp_path: Path, machines: RayMachines, cluster_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    project, place = create_project(tmp_path), tmp_path / "place"
    stay = f"pwd > {place}.new; mv {place}.new {place}; sleep 600"
    minds = Minds(
        [start_far_agent(name="far"), "It runs.", "Heard."],
        [
            wait_for_name(f"{tmp_path}/go", f"{tmp_path}/reached"),
            call_tool("Bash", "b2", command=stay),
            call_tool("Bash", "b3", command="echo again"),
            "I have read both.",
        ],
    )
    async with run_provider(monkeypatch, lead=[minds.reply]) as server:
        machines.use_provider(server.url)
        settings = machines.build_settings(files="git")
        async with open_cluster_session(project, machines, cluster_database, settings=settings) as session:
            seen = Seen(session)
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(run_turns(session))
                await wait_for_file(tmp_path / "reached")
                await session.send("far", "The first text.")
                (tmp_path / "go").touch()
                await wait_for_file(place)
                await session.send("far", "The second text.")
                before = next(each for each in machines.nodes if str(each.home) in place.read_text())
                before.kill()
            (ended,) = seen.list_events(AgentEnded)
        far = [each.body for each in server.requests if JOB in str(each.body["messages"][0])]
    assert (ended.completion.status, ended.completion.text) == ("completed", "I have read both.")
    told = str(far[-1]["messages"])
    assert (told.count("The first text."), told.count("The second text.")) == (1, 1)
    restore_machine(before)


class Verdict(msgspec.Struct):
    is_good: bool
    reason: str


@pytest.mark.spec("ISO-04")
async def test_a_program_starts_an_agent_on_another_machine_and_gets_its_typed_answer(
    tmp_path: Path, machines: RayMachines, cluster_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    judge = shoal.Agent("judge", prompt="You judge well.", isolation="remote", output=Verdict)
    answer = call_tool("StructuredOutput", "s", is_good=True, reason="It works.")
    minds = Minds([], [call_tool("Bash", "b", command="hostname"), answer, "Done.", "I am here, too."])
    async with run_provider(monkeypatch, lead=[minds.reply]) as server:
        machines.use_provider(server.url)
        async with open_cluster_session(tmp_path, machines, cluster_database) as session:
            seen = Seen(session)
            verdict = await (await session.spawn(judge, JOB))
            plain = await (await session.spawn("general-purpose", JOB, isolation="remote"))
            with pytest.raises(shoal.ShoalError, match="cannot be combined"):
                await session.spawn("general-purpose", JOB, isolation="remote", cwd="sub")
        requests = [each for each in server.requests if JOB in str(each.body["messages"][0])]
    assert verdict.output == Verdict(is_good=True, reason="It works.")
    assert plain.text == "I am here, too."
    assert "You judge well." in str(requests[0].body["system"])
    assert {each.headers["x-api-key"] for each in requests} <= {"key-1", "key-2"}
    assert [each.isolation for each in seen.list_events(AgentStarted)] == ["remote", "remote"]
    assert len(requests) == len(server.requests)  # the lead's model was not asked
    await assert_no_member_process_is_left(machines)


@pytest.mark.spec("ISO-04")
async def test_the_lead_is_answered_before_the_agent_has_a_machine(
    tmp_path: Path, machines: RayMachines, cluster_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = {"resources": {"cpus": 2, "labels": {"n": "1"}}}
    first = start_far_agent(**whole)
    second = call_tool("Agent", "go2", description="far job", prompt=JOB, isolation="remote", **whole)
    minds = Minds(
        [first, "It runs.", second, "Both run.", "Heard.", "Heard."],
        [wait_for_name(f"{tmp_path}/go", f"{tmp_path}/reached"), "The first is done.", "The second is done."],
    )
    async with run_provider(monkeypatch, lead=[minds.reply]) as server:
        machines.use_provider(server.url)
        async with open_cluster_session(tmp_path, machines, cluster_database) as session:
            seen = Seen(session)
            async with asyncio.timeout(PATIENCE):
                await session.run("Go.")
                await wait_for_file(tmp_path / "reached")
                await session.run("Start another one.")
                await seen.wait_for_note("is not running yet")
            answers = [each.data["status"] for each in seen.list_events(ToolOutputReturned)]
            assert answers == ["remote_launched", "remote_launched"]
            # The machine is taken: the second agent has no process, and will get one only now.
            assert not seen.list_events(AgentEnded)
            assert sum(JOB in str(each.body["messages"][0]) for each in server.requests) == 1
            (tmp_path / "go").touch()
            async with asyncio.timeout(PATIENCE):
                while (turn := await session.next_turn()) is not None:
                    await turn
        texts = [each.completion.text for each in seen.list_events(AgentEnded)]
    assert texts == ["The first is done.", "The second is done."]
    await assert_no_member_process_is_left(machines)


@pytest.mark.spec("ISO-04")
async def test_an_agent_that_no_machine_can_run_fails_with_the_reason(
    tmp_path: Path, machines: RayMachines, cluster_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    minds = Minds([start_far_agent(resources={"gpus": 8}), "It runs.", "Heard."], [])
    async with run_provider(monkeypatch, lead=[minds.reply]) as server:
        machines.use_provider(server.url)
        async with open_cluster_session(tmp_path, machines, cluster_database) as session:
            seen = Seen(session)
            await run_turns(session)
        (ended,) = seen.list_events(AgentEnded)
        assert ended.completion.status == "failed"
        assert "no machine in the cluster has the requested resources" in ended.completion.detail
