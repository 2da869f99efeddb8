"""Sessions with their own environment: nothing of the process's environment reaches them."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

import shoal
from shoal.core.conversation.model_requests import ModelRequest
from shoal.models.scripted_model import ReplyLike
from shoal.testing import make_tool_call

POISON = "poison-of-the-process"
_VARIABLES = (
    *("HOME", "XDG_CONFIG_HOME", "XDG_RUNTIME_DIR", "XDG_CACHE_HOME", "TMPDIR", "TEMP", "TMP"),
    *("SHOAL_HOME", "CLAUDE_CONFIG_DIR", "CLAUDE_ENV_FILE"),
)


class Tenant:
    """A user with a home, a temporary directory, settings and a repository."""

    def __init__(self, root: Path, name: str) -> None:
        self.name, self.root = name, root / name
        self.home, self.temporary = self.root / "person", self.root / "tmp"
        self.project = self.root / "project"
        for directory in (self.home / "notes", self.temporary, self.project):
            directory.mkdir(parents=True)
        (self.home / "notes" / "a").write_text(f"notes of {name}")
        (self.home / ".gitconfig").write_text(f"[user]\n\tname = {name}\n\temail = {name}@localhost\n")
        settings = self.home / ".claude" / "settings.json"
        settings.parent.mkdir()
        log = self.root / "hook.log"
        hook = {"type": "command", "command": f"env > {log}; mktemp --dry-run >> {log}; echo ~ >> {log}"}
        settings.write_text(
            json.dumps(
                {
                    "permissions": {"deny": ["Read(~/private/**)"], "allow": ["Bash", "Read(~/notes/**)"]},
                    "hooks": {"PreToolUse": [{"matcher": "Bash", "hooks": [hook]}]},
                    "env": {"FROM_SETTINGS": name},
                }
            )
        )
        for arguments in (["init", "-q"], ["commit", "-q", "--allow-empty", "-m", "first"]):
            subprocess.run(["git", *arguments], cwd=self.project, env=self.environ, check=True)

    @property
    def environ(self) -> dict[str, str]:
        return {
            "HOME": str(self.home),
            "TMPDIR": str(self.temporary),
            "PATH": os.environ["PATH"],
            "IS_SANDBOX": "1",
            "TENANT": self.name,
        }


class Recorder:
    def __init__(self, *calls: dict[str, Any]) -> None:
        self.outputs: list[str] = []
        self._calls = calls

    def on_event(self, event: shoal.Event) -> None:
        if isinstance(event, shoal.events.ToolOutputReturned):
            self.outputs.append(str(event.result.content))

    def reply(self, request: ModelRequest) -> ReplyLike:
        done = sum(message.role == "assistant" for message in request.messages)
        if done < len(self._calls):
            call = dict(self._calls[done])
            return [make_tool_call(call.pop("tool"), **call)]
        return "done"


SHOW = 'echo "$HOME:$TMPDIR:$FROM_SETTINGS:$(git config user.name)"; mktemp --dry-run; echo ~; env'


async def use_tenant(tenant: Tenant, **options: Any) -> list[str]:
    recorder = Recorder(
        {"tool": "Bash", "command": SHOW, "description": "Show"},
        {"tool": "Read", "file_path": "~/notes/a"},
        {"tool": "Read", "file_path": str(tenant.home / "notes" / "a")},
        {"tool": "Read", "file_path": "~/private/a"},
        {"tool": "Bash", "command": "cat ~/private/a", "description": "x"},
        {"tool": "Grep", "pattern": "notes", "path": "~/notes", "output_mode": "content"},
    )
    editor = shoal.Agent("editor", prompt="Edit.", tools=["Bash"])
    commit = "touch made; git add made; git commit -qm made; echo ~"
    worker = Recorder({"tool": "Bash", "command": commit, "description": "x"})

    def reply(request: ModelRequest) -> ReplyLike:
        is_worker = "made-by-agent" in str(request.messages[0])
        return (worker if is_worker else recorder).reply(request)

    async with asyncio.timeout(60):
        async with shoal.open(
            cwd=tenant.project,
            environ=tenant.environ,
            model=shoal.ScriptedModel(reply),
            agents=[editor],
            **options,
        ) as session:
            session.subscribe(recorder.on_event)
            await session.run("go")
            handle = await session.spawn(editor, "made-by-agent", isolation="worktree")
            await handle
    return recorder.outputs


def check_tenant(tenant: Tenant, outputs: list[str]) -> None:
    shown, by_tilde, by_path, private, private_command, found, committed = outputs[:7]
    lines = shown.splitlines()
    assert f"{tenant.home}:{tenant.temporary}:{tenant.name}:{tenant.name}" in lines[0]
    assert str(tenant.temporary) in lines[1]
    assert lines[2] == str(tenant.home)
    assert f"notes of {tenant.name}" in by_tilde
    assert f"notes of {tenant.name}" in by_path
    assert "~/private" in private
    assert "~/private" in private_command
    assert f"notes of {tenant.name}" in found
    assert str(tenant.home) in committed
    hook = (tenant.root / "hook.log").read_text()
    assert f"TENANT={tenant.name}" in hook
    assert hook.splitlines()[-1] == str(tenant.home)
    assert str(tenant.temporary) in hook.splitlines()[-2]
    authors = subprocess.run(
        ["git", "log", "--all", "--format=%an"],
        cwd=tenant.project,
        env=tenant.environ,
        check=True,
        capture_output=True,
        text=True,
    ).stdout.split()
    assert authors == [tenant.name] * 2
    assert [*(tenant.home / ".claude").rglob("journal.jsonl")]
    assert not [*tenant.temporary.iterdir()]


@pytest.mark.spec("API-09")
@pytest.mark.needs("git")
async def test_two_tenants_with_different_homes_work_at_once(tmp_path: Path) -> None:
    tenants = [Tenant(tmp_path, "ana"), Tenant(tmp_path, "ben")]
    results = await asyncio.gather(*map(use_tenant, tenants))
    for tenant, outputs in zip(tenants, results, strict=True):
        check_tenant(tenant, outputs)


def poison_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Let every variable that Shoal may read name what would change the session, and return the directory."""
    poison = tmp_path / POISON
    for name in _VARIABLES:
        (poison / name).mkdir(parents=True)
        monkeypatch.setenv(name, str(poison / name))
    bad_hook = {"type": "command", "command": f"touch {poison}/hook-ran; exit 2"}
    bad_settings = {
        "permissions": {"deny": ["Bash", "Read"]},
        "hooks": {"PreToolUse": [{"matcher": "", "hooks": [bad_hook]}]},
        "env": {"FROM_SETTINGS": POISON},
    }
    for directory in (poison / "HOME" / ".claude", poison / "SHOAL_HOME", poison / "CLAUDE_CONFIG_DIR"):
        directory.mkdir(exist_ok=True)
        (directory / "settings.json").write_text(json.dumps(bad_settings))
        (directory / "CLAUDE.md").write_text(POISON)
    git = f"[user]\n\tname = {POISON}\n[core]\n\thooksPath = {poison}/hooks\n"
    for path in (poison / "HOME" / ".gitconfig", poison / "XDG_CONFIG_HOME" / "git" / "config"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(git)
    for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_MODEL", "ANTHROPIC_BASE_URL", "OPENAI_API_KEY", "SHELL"):
        monkeypatch.setenv(name, POISON)
    for name in ("SHOAL_MODEL", "SHOAL_STORE", "GIT_AUTHOR_NAME", "GIT_DIR", "HTTPS_PROXY", "BASH_ENV"):
        monkeypatch.setenv(name, f"/{POISON}")
    return poison


@pytest.mark.spec("API-09")
@pytest.mark.needs("git")
@pytest.mark.parametrize("options", [{}, {"persist": False}], ids=["stored", "in memory"])
async def test_nothing_of_a_poisoned_environment_arrives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]
) -> None:
    tenant = Tenant(tmp_path, "ana")
    poison = poison_environment(tmp_path, monkeypatch)
    monkeypatch.setattr("tempfile.tempdir", None)
    before = sorted(str(path) for path in poison.rglob("*"))
    outputs = await use_tenant(tenant, **options)
    if not options:
        check_tenant(tenant, outputs)
    assert outputs
    assert POISON not in "".join(outputs)
    assert POISON not in (tenant.root / "hook.log").read_text()
    assert sorted(str(path) for path in poison.rglob("*")) == before
    assert not [path for path in tenant.home.rglob("*") if POISON in path.name]
    for path in (tenant.home / ".claude").rglob("*.jsonl"):
        assert POISON not in path.read_text(), path
