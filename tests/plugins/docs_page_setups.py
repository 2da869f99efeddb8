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

from shoal.testing import chat_server, messages_server, run_in_thread
from shoal.testing.scripted_server import MockServerScriptStep, build_script_responder
from shoal.wire.model_script_codec import read_model_script

SCRIPTS = Path(__file__).parents[1] / "pages"
"""Model scripts, by page. A page without a script brings its own model, or has a setup below."""


class PageSetup(Struct, frozen=True, kw_only=True):
    env: dict[str, str]
    replacements: dict[str, str] = {}
    """Real text, by the text that the page shows."""


@contextmanager
def prepare_page(page: Path, user_home: Path) -> Iterator[PageSetup]:
    """Prepare the environment of a new user who has what the page takes for granted."""
    with ExitStack() as stack:
        env, more = _build_environment(user_home), _SETUPS.get(page.stem)
        script = SCRIPTS / f"{page.stem}.toml"
        if more is not None:
            yield more(stack, user_home, env)
        else:
            named = {"SHOAL_MODEL": f"scripted:{script}"} if script.exists() else {}
            yield PageSetup(env={**env, **named})


def _build_environment(user_home: Path) -> dict[str, str]:
    programs = user_home / ".local" / "bin"
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
        "HOME": str(user_home),
        "SHOAL_HOME": str(user_home / ".claude"),
        "PATH": f"{programs}:{kept.get('PATH', os.defpath)}",
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "PYTHON_COLORS": "0",
        "TERM": "dumb",
    }


def _set_up_one_server(stack: ExitStack, person: Path, env: dict[str, str]) -> PageSetup:
    mind = build_script_responder(
        read_model_script(SCRIPTS / "use-another-provider.toml", MockServerScriptStep)
    )
    server = stack.enter_context(run_in_thread(chat_server(mind, models=["my-model"])))
    return PageSetup(env=env, replacements={"http://localhost:8000/v1": server.url})


def _set_up_two_providers(stack: ExitStack, person: Path, env: dict[str, str]) -> PageSetup:
    script = read_model_script(SCRIPTS / "mix-providers.toml", MockServerScriptStep)
    messages = stack.enter_context(
        run_in_thread(messages_server(build_script_responder(script), models=["claude-sonnet-4-5"]))
    )
    chat = stack.enter_context(run_in_thread(chat_server(build_script_responder(script), models=["gpt-5.1"])))
    return PageSetup(
        env=env, replacements={"http://localhost:8001": messages.url, "http://localhost:8000/v1": chat.url}
    )


def _set_up_weak_guard(stack: ExitStack, person: Path, env: dict[str, str]) -> PageSetup:
    """Use the weak guard: a container may forbid the sandbox that confines an agent to its worktree."""
    home = person / ".claude"
    home.mkdir()
    (home / "settings.json").write_text('{"shoal": {"worktree_guard": "weak"}}')
    return PageSetup(env={**env, "SHOAL_MODEL": f"scripted:{SCRIPTS / 'work-in-worktrees.toml'}"})


def _set_up_team(stack: ExitStack, person: Path, env: dict[str, str]) -> PageSetup:
    templates = person / ".claude" / "teams"
    templates.mkdir(parents=True)
    shutil.copy(SCRIPTS / "keep-records.md", templates / "pair.md")
    return PageSetup(env={**env, "SHOAL_MODEL": f"scripted:{SCRIPTS / 'keep-records.toml'}"})


def _set_up_tmux(stack: ExitStack, person: Path, env: dict[str, str]) -> PageSetup:
    # A socket path must be short, and the directory of a test is long.
    directory = mkdtemp(prefix="tmux-")
    script = SCRIPTS / "see-teammates-in-tmux.toml"
    own = {**env, "TMUX_TMPDIR": directory, "TERM": "xterm-256color", "SHOAL_MODEL": f"scripted:{script}"}

    def stop_tmux() -> None:
        for server in ((), ("-L", "shoal")):
            subprocess.run(["tmux", *server, "kill-server"], env=own, capture_output=True, check=False)
        shutil.rmtree(directory, ignore_errors=True)

    stack.callback(stop_tmux)
    return PageSetup(env=own)


_SETUPS: dict[str, Callable[[ExitStack, Path, dict[str, str]], PageSetup]] = {
    "use-another-provider": _set_up_one_server,
    "mix-providers": _set_up_two_providers,
    "work-in-worktrees": _set_up_weak_guard,
    "keep-records": _set_up_team,
    "see-teammates-in-tmux": _set_up_tmux,
}
