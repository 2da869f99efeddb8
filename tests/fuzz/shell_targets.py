"""Shell commands for the permission engine: any text is judged, and none bypasses the rules."""

from __future__ import annotations

import re
import tempfile
from functools import cache
from pathlib import Path

from shoal.core.agents.identity import AgentIdentity
from shoal.core.conversation.messages import ToolUseBlock
from shoal.core.ids import SessionId
from shoal.core.permissions.permission_decisions import AllowDecision
from shoal.policy.permission_engine import PermissionEngine
from shoal.policy.permission_rules import PermissionRuleSet, parse_permission_rule
from shoal.policy.shell.command_analysis import ShellCommandAnalysis, analyze_shell_command
from shoal.policy.shell.plain_lines import parse_plain_command_line
from shoal.policy.shell.shell_syntax import UnjudgeableCommandError
from shoal.policy.shell.syntax_walker import ShellSyntaxWalker
from shoal.workspaces.local_workspace import LocalWorkspace

from .fuzz_target import FuzzTarget, decode_text

ALLOWED_RULE = "Bash(aa:*)"
"""The only rule in force. No program has this name, nor `zz`, which no rule covers."""
_AGENT = AgentIdentity(session=SessionId("s"))
_CONTINUES = re.compile(r"\\\s*\Z")
_DEFINES = re.compile(r"\s*\(")
_PREFIXES = (
    "zz\n",
    "zz;",
    "zz x && ",
    "zz | ",
    "zz & ",
    'aa "$(zz x)"; ',
    "aa $(zz x) ",
    "aa `zz x`; ",
    "(zz); ",
)
_WRAPPERS = (
    *(
        "aa; zz x @",
        "aa | zz x @",
        "aa $(zz x @)",
        'aa "$(zz x @)"',
        "aa <(zz x @)",
        "aa `zz x @`",
        "{ zz x @\n}",
    ),
    *("X=$(zz x @) aa", "if zz x @; then aa; fi", "aa <<E\n$(zz x @)\nE", "env A=1 zz x @", "eval 'zz x' @"),
    *("bash -c 'zz x' @", "for i in 1; do zz x @; done", "aa && ! zz x @", "(zz x @)", "aa > >(zz x @)"),
)


@cache
def create_engine() -> PermissionEngine:
    # An empty directory, removed at the end of the process.
    _DIRECTORIES.append(tempfile.TemporaryDirectory(prefix="shoal-fuzz-"))
    rules = PermissionRuleSet(allow=(parse_permission_rule(ALLOWED_RULE, "a test"),))
    return PermissionEngine(LocalWorkspace(Path(_DIRECTORIES[0].name)), rules=rules)


_DIRECTORIES: list[tempfile.TemporaryDirectory[str]] = []


def is_allowed(command: str) -> bool:
    call = ToolUseBlock(id="c", name="Bash", input={"command": command})
    return isinstance(create_engine().decide_tool_call(call, None, _AGENT), AllowDecision)


def _check_judgement(data: bytes) -> None:
    command = decode_text(data)
    analysis = analyze_shell_command(command)
    assert not (analysis.trouble or "").startswith("the analysis failed"), analysis.trouble
    is_allowed(command)
    create_engine().decide_command_parts(command)
    if "\0" not in command and parse_plain_command_line(command) is not None:
        assert _parse_command(command) == analysis


def _parse_command(command: str) -> ShellCommandAnalysis:
    """Analyze with the parser alone, which must agree on plain lines."""
    walk, trouble = ShellSyntaxWalker(), None
    walk.text = command
    try:
        walk._walk_parsed_script(command)
    except UnjudgeableCommandError as reason:
        trouble = str(reason)
    return ShellCommandAnalysis(parts=tuple(walk.parts), trouble=trouble)


def _check_no_escape(data: bytes) -> None:
    text = decode_text(data)
    for before in _PREFIXES:
        assert not is_allowed(f"{before}{text}"), before
    if _DEFINES.match(text) is None:
        for around in _WRAPPERS:
            assert not is_allowed(around.replace("@", text)), around
    if analyze_shell_command(text).trouble is None and not _CONTINUES.search(text):
        for after in ("\nzz", "\nzz x\n", "\n(zz)"):
            assert not is_allowed(f"{text}{after}"), after


_SEEDS = (
    b"aa -x 'q r' \"s $x\" | aa && aa; aa > o 2>&1",
    b"cat <<'E' | grep a\n$(x)\nE\n",
    b'for f in *.py; do git log -- "$f"; done',
    b"if [ -f a ]; then aa `b`; else [[ a == b ]] && aa; fi",
    b"f() { aa; }; f $((1 + 2)) ${x:-y} $'\\n' {a,b}",
    b"find . -name '*.c' -exec grep -l x {} + | xargs -I{} env A=1 timeout 3 bash -c 'aa \"$1\"' _ {}",
    b"case $x in (a|b) aa;; *) aa & esac 2>/dev/null <<<x",
    b"aa # c\n\\\naa \\\n  -x",
)
TARGETS = (
    FuzzTarget("shell", _check_judgement, (), _SEEDS),
    FuzzTarget("shell-escape", _check_no_escape, (), _SEEDS),
)
