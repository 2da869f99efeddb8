"""Teammates on a cluster that the settings do not allow: refused with the reason, never started elsewhere."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

import shoal
from agent_scripts import call_tool, run_all_turns
from server_scripts import join_conversation, run_provider
from shoal.app.agents import backend_launcher
from shoal.app.clusters.cluster_report import _build_machine, check_head_address, check_this_machine
from shoal.app.settings.settings import load_settings
from shoal.backends.sandbox.landlock import LandlockSandboxDriver
from team_scripts import get_home, spawn_member

CREATE = call_tool("TeamCreate", team_name="crew")


@pytest.mark.parametrize(
    ("own", "told"),
    [
        ({}, "no Ray cluster is configured"),
        ({"cluster": {"address": "127.0.0.1:1"}}, "need a store that all machines can reach"),
    ],
)
async def test_a_member_is_refused_with_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own: dict[str, object], told: str
) -> None:
    settings = json.dumps({"shoal": {"teammate_mode": "ray", **own}})
    async with (
        run_provider(monkeypatch, lead=[CREATE, spawn_member("ann"), "Over."]) as server,
        shoal.open(
            cwd=tmp_path, model="anthropic:claude-sonnet-4-5", skip_permissions=True, settings=settings
        ) as session,
    ):
        await run_all_turns(session, "Go.")
        assert session.teams.list_members() == ()
    assert told in join_conversation(server.requests[-1].body)


@pytest.mark.needs("postgres", "asyncpg")
async def test_keys_are_not_sent_over_connections_that_are_not_encrypted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, database: str
) -> None:
    own = {"teammate_mode": "ray", "cluster": {"address": "127.0.0.1:1", "send_keys": True}}
    async with (
        run_provider(monkeypatch, lead=[CREATE, spawn_member("ann"), "Over."]) as server,
        shoal.open(
            cwd=tmp_path,
            model="anthropic:claude-sonnet-4-5",
            skip_permissions=True,
            settings=json.dumps({"shoal": own}),
            store=database,
        ) as session,
    ):
        await run_all_turns(session, "Go.")
        assert session.teams.list_members() == ()
    told = join_conversation(server.requests[-1].body)
    assert "not encrypted, so no key is sent" in told


@pytest.mark.needs("postgres", "asyncpg")
@pytest.mark.parametrize("is_accepted", [False, True])
async def test_a_member_without_the_hooks_that_decide_about_its_calls_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, database: str, is_accepted: bool
) -> None:
    hook = {"matcher": "Bash", "hooks": [{"type": "command", "command": "true"}]}
    (get_home() / "settings.json").write_text(json.dumps({"hooks": {"PreToolUse": [hook]}}))
    cluster = {"address": "127.0.0.1:1", "without_own_hooks": is_accepted}
    async with (
        run_provider(monkeypatch, lead=[CREATE, spawn_member("ann"), "Over."]) as server,
        shoal.open(
            cwd=tmp_path,
            model="anthropic:claude-sonnet-4-5",
            skip_permissions=True,
            settings=json.dumps({"shoal": {"teammate_mode": "ray", "cluster": cluster}}),
            store=database,
        ) as session,
    ):
        await run_all_turns(session, "Go.")
        assert session.teams.list_members() == ()
    told = join_conversation(server.requests[-1].body)
    assert ("do not run on other machines" in told) is not is_accepted
    # With the setting, the next obstacle is that there is no cluster at this address.
    assert ("settings.json:1" in told) is not is_accepted


def test_a_member_gets_the_keys_of_its_lead_only_if_the_settings_ask_for_it(tmp_path: Path) -> None:
    (get_home() / "settings.json").write_text(
        json.dumps({"env": {"ANTHROPIC_API_KEY": "sk-lead", "OTHER_TOKEN": "private"}})
    )
    settings = load_settings(cwd=tmp_path)
    assert json.loads(backend_launcher.add_provider_keys(settings))["env"]["ANTHROPIC_API_KEY"] == "sk-lead"
    assert "private" not in backend_launcher.add_provider_keys(settings)


@pytest.mark.parametrize(
    ("own", "keys"),
    [
        ({}, []),
        ({"env": {"ANTHROPIC_API_KEY": "sk-own"}}, ["ANTHROPIC_API_KEY"]),
        ({"env": {"OPENAI_BASE_URL": "http://127.0.0.1:1"}}, []),
        ({"apiKeyHelper": "echo sk-own"}, ["apiKeyHelper"]),
    ],
)
def test_the_check_of_a_machine_finds_the_keys_of_its_settings(
    own: dict[str, object], keys: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "OPENAI_API_KEY", "OPENROUTER_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    (get_home() / "settings.json").write_text(json.dumps(own))
    assert check_this_machine("")["keys"] == keys


def describe_machine(check: dict[str, object]) -> str:
    node = {"address": "192.0.2.1", "hostname": "h", "is_alive": True, "is_head": False, "cpus": 2.0}
    rest = {"gpus": 0.0, "memory": 1, "labels": {}, "members": [], "check": check}
    return "\n".join(_build_machine({**node, **rest}).problems)


def test_each_problem_of_a_machine_is_named_with_its_fix() -> None:
    own = {
        **check_this_machine(""),
        "programs": ["git", "rg"],
        "sandbox": "",
        "keys": ["ANTHROPIC_API_KEY"],
    }
    assert describe_machine(own) == ""
    other = {
        "shoal": "0.0.1",
        "python": "3.9",
        "programs": [],
        "sandbox": "bubblewrap cannot create namespaces",
        "keys": [],
        "store": "Cannot reach the store.",
    }
    assert [line.partition(":")[0] for line in describe_machine(other).split("\n")] == [
        f"Shoal 0.0.1, but this machine has {shoal.__version__}",
        f"Python 3.9, but this machine has {own['python']}",
        "no git",
        "no rg",
        "no sandbox (bubblewrap cannot create namespaces), so teammates with a checkout do not start",
        "no model key",
        "it cannot use the store",
    ]
    broken = describe_machine({"problem": "No module named 'shoal'"})
    assert "No module named 'shoal'" in broken
    assert "pip install" in broken


def test_a_machine_without_bubblewrap_has_a_sandbox_if_its_kernel_has_landlock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if problem := LandlockSandboxDriver().explain_unavailable():
        pytest.skip(problem)
    monkeypatch.setenv("PATH", str(tmp_path))
    check = check_this_machine("")
    assert check["sandbox"] == ""
    assert "sandbox" not in describe_machine(check)


def test_the_check_of_a_machine_tells_whether_a_sandbox_works(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "freebsd14")
    assert "no sandbox (none for this system)" in describe_machine(check_this_machine(""))
    (get_home() / "settings.json").write_text('{"shoal": {"worktree_guard": "weak"}}')
    assert "sandbox" not in describe_machine(check_this_machine(""))


def test_a_project_cannot_name_a_cluster(tmp_path: Path) -> None:
    project = tmp_path / ".claude"
    project.mkdir()
    named = json.dumps({"shoal": {"cluster": {"address": "192.0.2.66:6379"}}})
    for name in ("settings.json", "settings.local.json"):
        (project / name).write_text(named)
    assert load_settings(cwd=tmp_path).own.cluster.address is None
    (get_home() / "settings.json").write_text(named)
    assert load_settings(cwd=tmp_path).own.cluster.address == "192.0.2.66:6379"


async def test_resources_of_a_call_need_a_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = spawn_member("ann", resources={"gpus": 1})
    async with (
        run_provider(monkeypatch, lead=[CREATE, asked, "Over."]) as server,
        shoal.open(cwd=tmp_path, model="anthropic:claude-sonnet-4-5", skip_permissions=True) as session,
    ):
        await run_all_turns(session, "Go.")
        assert session.teams.list_members() == ()
    assert "Leave out resources." in join_conversation(server.requests[-1].body)


async def test_invalid_resources_of_a_call_are_explained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = spawn_member("ann", resources={"gpu": 1})
    async with (
        run_provider(monkeypatch, lead=[CREATE, asked, "Over."]) as server,
        shoal.open(cwd=tmp_path, model="anthropic:claude-sonnet-4-5", skip_permissions=True) as session,
    ):
        await run_all_turns(session, "Go.")
    assert "did you mean gpus?" in join_conversation(server.requests[-1].body)


@pytest.mark.parametrize(
    "address", ["192.0.2.10", "192.0.2.10:", ":6379", "::", "head:0", "head:65536", "head:²"]
)
@pytest.mark.parametrize("command", [("join",), ("status", "--address"), ("doctor", "--address")])
def test_an_address_without_host_or_port_is_refused_at_once(address: str, command: tuple[str, ...]) -> None:
    from click.testing import CliRunner

    from shoal.core.errors import SettingsError
    from shoal.surfaces.cli.cluster_commands import cluster_commands

    result = CliRunner().invoke(cluster_commands, [*command, address])
    assert isinstance(result.exception, SettingsError)
    assert f"{address!r} is not the address of a head. Use HOST:PORT" in str(result.exception)


@pytest.mark.parametrize("address", ["192.0.2.10:6379", "head.example.org:1", "[2001:db8::1]:65535"])
def test_an_address_with_host_and_port_is_accepted(address: str) -> None:
    assert check_head_address(address) == address
