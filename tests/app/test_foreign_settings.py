"""Settings of other programs in the same files: what narrows holds, or the start fails with file and line."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

import shoal
from shoal.app.hooks.hook_sources import load_configured_hooks
from shoal.app.isolation.machine_checks import check_permission_bypass
from shoal.app.settings.configured_rules import add_permission_flag_rules
from shoal.app.settings.mcp_files import load_mcp_servers
from shoal.app.settings.settings import Settings, load_settings
from shoal.core.errors import SettingsError
from shoal.core.extensions.hooks import Hook, HttpPostHookAction, ShellCommandHookAction
from shoal.core.user_environment import UserEnvironment
from shoal.models.scripted_model import ScriptedModel
from shoal.policy.hooks.hook_matcher import is_hook_matcher_match, match_hook_condition, select_matching_hooks
from shoal.policy.permission_rules import PermissionRuleSet
from shoal.wire.hook_codec import is_usable_hook
from shoal.wire.hook_output_codec import parse_hook_output_json


def write_settings(path: Path, content: dict[str, Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=1))
    return path


def load(cwd: Path, *, managed: dict[str, Any] | None = None, **files: dict[str, Any]) -> Settings:
    """Load the settings of a project with these files: user, project, managed."""
    home = cwd.parent / "home"
    places = {"user": home / "settings.json", "project": cwd / ".claude/settings.json"}
    for kind, content in files.items():
        write_settings(places[kind], content)
    path = cwd.parent / "etc/managed-settings.json"
    if managed is not None:
        write_settings(path, managed)
    return load_settings(cwd=cwd, environ={"SHOAL_HOME": str(home)}, managed=(path,))


@pytest.mark.spec("CMP-013")
@pytest.mark.parametrize("kind", ["user", "project", "managed"])
def test_any_file_can_forbid_to_skip_permissions(project: Path, kind: str) -> None:
    settings = load(project, **{kind: {"permissions": {"disableBypassPermissionsMode": "disable"}}})
    assert settings.permissions.bypass_ban is not None
    assert settings.permissions.bypass_ban.endswith(":3")
    with pytest.raises(SettingsError, match=r"settings\.json:3 sets permissions\.disableBypass"):
        check_permission_bypass(settings)
    with pytest.raises(SettingsError, match='expected "disable"'):
        load(project, **{kind: {"permissions": {"disableBypassPermissionsMode": "no"}}})


@pytest.mark.spec("CMP-013")
async def test_a_session_that_skips_permissions_is_refused_where_a_file_forbids_it(project: Path) -> None:
    write_settings(
        project / ".claude/settings.json", {"permissions": {"disableBypassPermissionsMode": "disable"}}
    )
    for options in ({"skip_permissions": True}, {"mode": "bypassPermissions"}):
        with pytest.raises(SettingsError, match="Permissions cannot be skipped"):
            async with shoal.open(cwd=project, model=ScriptedModel(["done"]), **options):
                pass
    async with shoal.open(cwd=project, model=ScriptedModel(["done"])) as session:
        assert session.id


@pytest.mark.spec("CMP-025")
@pytest.mark.skipif(os.geteuid() != 0, reason="only root is refused")
def test_root_skips_permissions_only_in_a_container_or_sandbox(project: Path, tmp_path: Path) -> None:
    settings = load(project)
    mark = tmp_path / "mark"
    with pytest.raises(SettingsError, match="as root outside a container"):
        check_permission_bypass(settings, container_files=[mark])
    mark.touch()
    check_permission_bypass(settings, container_files=[mark])
    mark.unlink()
    home = str(tmp_path / "home")
    for variables in ({"container": "podman"}, {"IS_SANDBOX": "1"}):
        environ = {"SHOAL_HOME": home, **variables}
        check_permission_bypass(load_settings(cwd=project, environ=environ), container_files=[mark])
    sandboxed = load(project, user={"shoal": {"sandbox": {"enabled": True}}})
    check_permission_bypass(sandboxed, container_files=[mark])


@pytest.mark.spec("CMP-016")
def test_a_star_in_an_allow_list_approves_nothing(project: Path) -> None:
    settings = load(project, user={"permissions": {"allow": ["*", "Read"]}})
    assert [str(rule) for rule in settings.permissions.rules.allow] == ["Read"]
    assert [item.name for item in settings.findings.unused_items] == ["permissions.allow '*'"]
    assert add_permission_flag_rules(PermissionRuleSet(), allow=["*"], deny=[]).allow == ()
    assert load(project, user={"permissions": {"deny": ["*"]}}).permissions.rules.deny


@pytest.mark.spec("CMP-027")
def test_the_sandbox_key_restricts_and_only_user_files_open_it(project: Path) -> None:
    files = {"denyRead": ["~/.kube", "//srv/x"], "allowWrite": ["/srv/out"]}
    raw = {"sandbox": {"enabled": True, "filesystem": files, "network": {"allowedDomains": ["a.com"]}}}
    own = load(project, user=raw).own.sandbox
    assert (own.enabled, own.network) == (True, False)
    assert (own.hidden, own.writable) == (("~/.kube", "/srv/x"), ("/srv/out",))
    (project.parent / "home/settings.json").unlink()
    own = load(project, project=raw).own.sandbox
    assert (own.enabled, own.network, own.writable) == (True, False, ())
    required = {"sandbox": {"enabled": True, "failIfUnavailable": True}}
    assert load(project, project=required).own.sandbox.enabled is True
    assert load(project, project={"sandbox": {"enabled": True}}).own.sandbox.enabled is True


@pytest.mark.spec("CMP-027")
def test_the_enabled_sandbox_has_no_network_unless_the_user_opens_it(project: Path) -> None:
    enabled, opened = {"sandbox": {"enabled": True}}, {"shoal": {"sandbox": {"network": True}}}
    for parts in ({"user": enabled}, {"project": enabled}, {"managed": enabled}):
        own = load(project, **{"user": {}, "project": {}, "managed": {}} | parts).own.sandbox
        assert (own.enabled, own.network, own.private_temp) == (True, False, True)
    none: dict[str, Any] = {"project": {}, "managed": {}}
    assert load(project, user=enabled | opened, **none).own.sandbox.network
    assert load(project, user=opened, project=enabled, managed={}).own.sandbox.network
    # Neither a project nor a list of domains leaves it open, and a managed file wins.
    assert not load(project, user=enabled, project=opened, managed={}).own.sandbox.network
    assert not load(project, user=opened, managed=enabled, project={}).own.sandbox.network
    assert load(project, user={}, managed=enabled | opened, project={}).own.sandbox.network
    listed = {"sandbox": {"enabled": True, "network": {"allowedDomains": ["a.com"]}}}
    assert not load(project, user=listed | opened, **none).own.sandbox.network


@pytest.mark.spec("CMP-027")
def test_only_the_user_turns_the_sandbox_off(project: Path) -> None:
    off, on = {"sandbox": {"enabled": False}}, {"sandbox": {"enabled": True}}
    own_off: dict[str, Any] = {"shoal": {"sandbox": {"enabled": False}}}

    def find_state(**parts: Any) -> bool | str:
        return load(project, **{"user": {}, "project": {}, "managed": {}} | parts).own.sandbox.enabled

    assert find_state() == "auto"
    assert find_state(user=off) == "worktrees"
    assert find_state(project=off) == "auto"
    assert find_state(user=off, project=on) is True
    assert find_state(user=off, managed=on) is True
    assert find_state(user=on, managed=off) == "worktrees"
    # The settings under `shoal` win, but not over a managed file.
    assert find_state(user=off | {"shoal": {"sandbox": {"enabled": "auto"}}}) == "auto"
    for needed in ({"network": False}, {"hidden": ["x"]}, {"readOnly": ["x"]}, {"autoAllow": True}):
        assert find_state(user=off | {"shoal": {"sandbox": needed}}) == "auto"
    assert find_state(user=on | own_off) is False
    assert find_state(user=own_off, project=on) is False
    assert find_state(user=own_off, managed=on) is True
    assert find_state(user=off, project={"shoal": {"sandbox": {"network": False}}}) == "auto"
    assert find_state(project={"shoal": {"sandbox": {"enabled": "worktrees"}}}) == "auto"


@pytest.mark.spec("CMP-027")
def test_the_sandbox_lists_of_all_files_are_joined(project: Path) -> None:
    restrictions = {"filesystem": {"denyRead": ["a"], "denyWrite": ["b"]}, "credentials": {"envVars": ["C"]}}
    parts = {
        "project": {"sandbox": restrictions},
        "managed": {"sandbox": {"filesystem": {"denyRead": ["d"]}}},
    }
    own = load(project, user={"sandbox": {"enabled": True}}, **parts).own.sandbox
    assert (own.hidden, own.read_only, own.withheld_variables) == (("a", "d"), ("b",), ("C",))
    # Without the sandbox, its lists have no effect.
    own = load(project, user={"sandbox": {"enabled": False}}, **parts).own.sandbox
    assert (own.hidden, own.read_only, own.withheld_variables) == ((), (), ())
    # A project can turn it on, but not off.
    own = load(
        project, user={}, **parts | {"project": {"sandbox": {"enabled": True} | restrictions}}
    ).own.sandbox
    assert own.hidden == ("a", "d")
    disabled = {"sandbox": {"enabled": False} | restrictions}
    own = load(project, user={"sandbox": {"enabled": True}}, **parts | {"project": disabled}).own.sandbox
    assert own.hidden == ("a", "d")


@pytest.mark.spec("CMP-027")
def test_credentials_of_the_sandbox_are_withheld_in_either_mode(project: Path) -> None:
    credentials = {
        "files": [{"path": "~/.aws", "mode": "deny"}, {"path": "//srv/key", "mode": "mask"}, "~/.kube"],
        "envVars": [
            {"name": "NPM_TOKEN", "mode": "deny"},
            {"name": "GH_TOKEN", "mode": "mask", "injectHosts": ["api.github.com"]},
            "OTHER",
        ],
    }
    own = load(project, user={"sandbox": {"enabled": True, "credentials": credentials}}).own.sandbox
    assert own.hidden == ("~/.aws", "/srv/key", "~/.kube")
    assert own.withheld_variables == ("NPM_TOKEN", "GH_TOKEN", "OTHER")


@pytest.mark.spec("CMP-027")
def test_relative_sandbox_paths_in_the_user_file_restrict_its_directory_too(project: Path) -> None:
    files = {"denyRead": ["./keys", "~/x", "/y"], "denyWrite": ["locked"], "allowWrite": ["out"]}
    raw = {"sandbox": {"enabled": True, "filesystem": files}}
    home = project.parent / "home"
    own = load(project, user=raw).own.sandbox
    assert own.hidden == ("./keys", str(home / "keys"), "~/x", "/y")
    assert own.read_only == ("locked", str(home / "locked"))
    assert own.writable == ("out",)
    own = load(project, user={}, project=raw).own.sandbox
    assert (own.hidden, own.read_only) == (("./keys", "~/x", "/y"), ("locked",))


@pytest.mark.spec("CMP-027")
@pytest.mark.parametrize(
    ("raw", "line"),
    [({"enabled": True, "filesystem": {"denyWrite": "x"}}, 5), ({"enabled": "yes"}, 3),
     ({"enabled": True, "credentials": {"envVars": [{}]}}, 5), ({"failIfUnavailable": 1}, 3),
     ({"enabled": True, "credentials": {"files": [{"mode": "deny"}]}}, 5),
     ({"enabled": True, "credentials": {"files": {"path": "x"}}}, 5),
     ({"enabled": True, "credentials": {"envVars": [{"name": ["A"]}]}}, 5),
     ({"enabled": True, "filesystem": {"denyRead": "x"}}, 5), ({"enabled": True, "network": ["x"]}, 4)],
)  # fmt: skip
def test_a_sandbox_restriction_that_cannot_hold_ends_the_start(
    project: Path, raw: dict[str, Any], line: int
) -> None:
    with pytest.raises(SettingsError, match=rf"settings\.json:{line}: sandbox\."):
        load(project, user={"sandbox": raw})


@pytest.mark.spec("CMP-088")
@pytest.mark.parametrize(
    ("lists", "expected"),
    [
        ({}, {"local", "remote"}),
        ({"allowedMcpServers": []}, set()),
        ({"allowedMcpServers": [{"serverName": "local"}]}, {"local"}),
        ({"allowedMcpServers": [{"serverCommand": ["prog", "-x"]}]}, {"local"}),
        ({"allowedMcpServers": [{"serverUrl": "https://*.example.org/*"}]}, {"remote"}),
        ({"deniedMcpServers": [{"serverName": "remote"}]}, {"local"}),
        (
            {"deniedMcpServers": [{"serverName": "local"}], "allowedMcpServers": [{"serverName": "local"}]},
            set(),
        ),
    ],
)
def test_lists_of_mcp_servers_decide_which_exist(
    project: Path, lists: dict[str, Any], expected: set[str]
) -> None:
    servers = {
        "local": {"command": "prog", "args": ["-x"]},
        "remote": {"type": "http", "url": "https://a.example.org/mcp"},
    }
    settings = load(project, user={"mcpServers": servers}, project=lists)
    found = load_mcp_servers(settings, cwd=project)
    assert {server.name for server in found.servers} == expected
    assert len(found.problems) == 2 - len(expected)


def test_a_list_of_mcp_servers_in_another_form_ends_the_start(project: Path) -> None:
    with pytest.raises(SettingsError, match=r"settings\.json:2: deniedMcpServers"):
        load(project, user={"deniedMcpServers": ["local"]})


@pytest.mark.spec("CMP-037", "CMP-038")
@pytest.mark.parametrize(
    ("matcher", "tool", "matches"),
    [("Task", "Agent", True), ("Agent", "Task", True), ("Edit, Write", "Write", True),
     ("Edit,Write", "Edit", True), ("Edit | Write", "Write", True), ("Edit", "NotebookEdit", False),
     ("Edit, Write", "Read", False), ("Edit.*", "NotebookEdit", True), ("^(Agent)$", "Task", True),
     ("mcp__.*", "mcp__a__b", True)],
)  # fmt: skip
def test_a_matcher_is_a_list_of_names_or_an_expression(matcher: str, tool: str, matches: bool) -> None:
    assert is_hook_matcher_match(matcher, tool) is matches


@pytest.mark.spec("CMP-036")
@pytest.mark.parametrize(
    ("condition", "tool", "arguments", "expected"),
    [
        ("Bash(git push:*)", "Bash", {"command": "git push origin"}, "yes"),
        ("Bash(git push:*)", "Bash", {"command": "ls && git push"}, "perhaps"),
        ("Bash(git push:*)", "Bash", {"command": "echo $(git push)"}, "perhaps"),
        ("Bash(git push:*)", "Bash", {"command": "ls '"}, "perhaps"),
        ("Bash(git push:*)", "Bash", {"command": "ls"}, "no"),
        ("Bash", "Bash", {"command": "ls"}, "yes"),
        ("Edit(*.ts)", "Write", {"file_path": "src/a.ts"}, "yes"),
        ("Edit(*.ts)", "Write", {"file_path": "src/a.py"}, "no"),
        ("Edit(*.ts)", "Bash", {"command": "ls"}, "no"),
        ("Read(~/notes/**)", "Read", {"file_path": "~/notes/a"}, "yes"),
        ("Read(~/notes/**)", "Read", {"file_path": "home/notes/a"}, "yes"),
        ("Read(~/notes/**)", "Read", {"file_path": "notes/a"}, "no"),
        ("Agent(Explore)", "Task", {"subagent_type": "Explore"}, "perhaps"),
        ("not a rule(", "Bash", {"command": "ls"}, "perhaps"),
    ],
)
def test_the_condition_of_a_hook_is_a_permission_rule(
    tmp_path: Path, condition: str, tool: str, arguments: dict[str, Any], expected: str
) -> None:
    fields = {"tool_name": tool, "tool_input": arguments, "cwd": str(tmp_path)}
    user = UserEnvironment({}, str(tmp_path / "home"))
    assert match_hook_condition(condition, "PreToolUse", fields, user) == expected
    assert match_hook_condition(condition, "Stop", fields, user) == "no"


def test_only_hooks_whose_condition_may_match_are_run(tmp_path: Path) -> None:
    conditions = ("", "Bash(git push:*)", "Bash(git:*)", "Bash(rm:*)", "Write")
    hooks = [
        Hook(event="PreToolUse", condition=each, action=ShellCommandHookAction(command=each), origin="a test")
        for each in conditions
    ]
    fields = {"tool_name": "Bash", "tool_input": {"command": "ls; git push"}, "cwd": str(tmp_path)}
    found = select_matching_hooks(hooks, "PreToolUse", fields, UserEnvironment({}, str(tmp_path)))
    assert [(hook.condition, hook.can_allow) for hook in found] == [
        ("", True),
        ("Bash(git push:*)", False),
        ("Bash(git:*)", False),
    ]


@pytest.mark.spec("CMP-050")
def test_a_deferred_call_is_denied_and_a_result_can_be_replaced() -> None:
    raw = {"hookSpecificOutput": {"permissionDecision": "defer"}}
    assert parse_hook_output_json("PreToolUse", raw).decision == "deny"
    replaced = {"hookSpecificOutput": {"updatedToolOutput": {"text": "[redacted]"}}}
    assert parse_hook_output_json("PostToolUse", replaced).updated_output == '{"text":"[redacted]"}'


@pytest.mark.spec("CMP-005")
def test_http_hooks_use_only_permitted_urls_and_variables(project: Path) -> None:
    headers = {"X-A": "$FIRST", "X-B": "$SECOND"}
    hooks = [
        {"type": "http", "url": url, "headers": headers, "allowedEnvVars": ["FIRST", "SECOND"]}
        for url in ("https://hooks.example/a/b", "https://other.example/a")
    ]
    limits = {"allowedHttpHookUrls": ["https://hooks.example/*"], "httpHookAllowedEnvVars": ["FIRST"]}
    settings = load(project, user={"hooks": {"PreToolUse": [{"hooks": hooks}]}, **limits})
    settings = replace(settings, environ={"FIRST": "1", "SECOND": "2"})
    parsed = load_configured_hooks(settings)
    assert [hook.action for hook in parsed.hooks if is_usable_hook(hook)] == [
        HttpPostHookAction(url="https://hooks.example/a/b", headers={"X-A": "1", "X-B": ""})
    ]
    (problem,) = parsed.problems
    assert "allowedHttpHookUrls does not permit this URL; PreToolUse is blocked" in problem


@pytest.mark.spec("CMP-005")
@pytest.mark.parametrize("key", ["allowedHttpHookUrls", "httpHookAllowedEnvVars"])
@pytest.mark.parametrize("kind", ["user", "project", "managed"])
def test_every_file_can_limit_http_hooks_and_a_broken_limit_ends_the_start(
    project: Path, kind: str, key: str
) -> None:
    hook = {"type": "http", "url": "https://x.example", "headers": {"A": "$B"}, "allowedEnvVars": ["B"]}
    hooks = {"hooks": {"Stop": [{"hooks": [hook]}]}}
    files: dict[str, Any] = {"user": hooks, "managed": {}} | {kind: {key: []}}
    files["user"] = files["user"] | hooks
    settings = replace(load(project, **files), environ={"B": "secret"})
    assert "secret" not in str(load_configured_hooks(settings).hooks)
    with pytest.raises(SettingsError, match=rf"settings\.json:2: {key}: expected a list of strings"):
        load(project, **{kind: {key: "x"}})
