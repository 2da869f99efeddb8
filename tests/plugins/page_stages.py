"""Environments that documentation pages assume: models, providers, a team."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import mkdtemp

from msgspec import Struct

from shoal.testing import chat_server, in_thread, messages_server
from shoal.testing.script import ServerStep, mind_of
from shoal.wire.script import read_script

SCRIPTS = Path(__file__).parents[1] / "pages"
"""Model scripts, by page. A page without a script brings its own model, or has a setup below."""


class Stage(Struct, frozen=True, kw_only=True):
    env: dict[str, str]
    stand_ins: dict[str, str] = {}
    """Real text, by the text that the page shows."""


@contextmanager
def staged(page: Path, person: Path) -> Iterator[Stage]:
    """Prepare the environment of a new user who has what the page takes for granted."""
    with ExitStack() as stack:
        env, more = _surroundings(person), _MORE.get(page.stem)
        script = SCRIPTS / f"{page.stem}.toml"
        if more is not None:
            yield more(stack, person, env)
        else:
            named = {"SHOAL_MODEL": f"scripted:{script}"} if script.exists() else {}
            yield Stage(env={**env, **named})


def _surroundings(person: Path) -> dict[str, str]:
    programs = person / ".local" / "bin"
    programs.mkdir(parents=True)
    for name, words in (("shoal", "-m shoal"), ("python", ""), ("python3", "")):
        (programs / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" {words} "$@"\n')
        (programs / name).chmod(0o755)
    who = ("GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "GIT_COMMITTER_NAME", "GIT_COMMITTER_EMAIL")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("GIT_", "TMUX"))}
    return {
        **kept,
        **dict.fromkeys(who, "you@example.org"),
        "GIT_CONFIG_GLOBAL": os.devnull,
        "HOME": str(person),
        "SHOAL_HOME": str(person / ".claude"),
        "PATH": f"{programs}:{kept.get('PATH', os.defpath)}",
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "PYTHON_COLORS": "0",
        "TERM": "dumb",
    }


def _one_server(stack: ExitStack, person: Path, env: dict[str, str]) -> Stage:
    mind = mind_of(read_script(SCRIPTS / "use-another-provider.toml", ServerStep))
    server = stack.enter_context(in_thread(chat_server(mind, models=["my-model"])))
    return Stage(env=env, stand_ins={"http://localhost:8000/v1": server.url})


def _two_providers(stack: ExitStack, person: Path, env: dict[str, str]) -> Stage:
    script = read_script(SCRIPTS / "mix-providers.toml", ServerStep)
    messages = stack.enter_context(in_thread(messages_server(mind_of(script), models=["claude-sonnet-4-5"])))
    chat = stack.enter_context(in_thread(chat_server(mind_of(script), models=["gpt-5.1"])))
    return Stage(
        env=env, stand_ins={"http://localhost:8001": messages.url, "http://localhost:8000/v1": chat.url}
    )


def _weak_guard(stack: ExitStack, person: Path, env: dict[str, str]) -> Stage:
    """Use the weak guard: a container may forbid the sandbox that confines an agent to its worktree."""
    home = person / ".claude"
    home.mkdir()
    (home / "settings.json").write_text('{"shoal": {"worktree_guard": "weak"}}')
    return Stage(env={**env, "SHOAL_MODEL": f"scripted:{SCRIPTS / 'work-in-worktrees.toml'}"})


def _a_team(stack: ExitStack, person: Path, env: dict[str, str]) -> Stage:
    templates = person / ".claude" / "teams"
    templates.mkdir(parents=True)
    shutil.copy(SCRIPTS / "keep-records.md", templates / "pair.md")
    return Stage(env={**env, "SHOAL_MODEL": f"scripted:{SCRIPTS / 'keep-records.toml'}"})


def _tmux(stack: ExitStack, person: Path, env: dict[str, str]) -> Stage:
    # A socket path must be short, and the directory of a test is long.
    directory = mkdtemp(prefix="tmux-")
    script = SCRIPTS / "see-teammates-in-tmux.toml"
    own = {**env, "TMUX_TMPDIR": directory, "TERM": "xterm-256color", "SHOAL_MODEL": f"scripted:{script}"}

    def end() -> None:
        for server in ((), ("-L", "shoal")):
            subprocess.run(["tmux", *server, "kill-server"], env=own, capture_output=True, check=False)
        shutil.rmtree(directory, ignore_errors=True)

    stack.callback(end)
    return Stage(env=own)


_MORE: dict[str, Callable[[ExitStack, Path, dict[str, str]], Stage]] = {
    "use-another-provider": _one_server,
    "mix-providers": _two_providers,
    "work-in-worktrees": _weak_guard,
    "keep-records": _a_team,
    "see-teammates-in-tmux": _tmux,
}
