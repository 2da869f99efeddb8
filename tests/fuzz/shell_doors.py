"""Shell commands for the permission engine: any text is judged, and none bypasses the rules."""

from __future__ import annotations

import re
import tempfile
from functools import cache
from pathlib import Path

from shoal.core.decisions import Allow
from shoal.core.identity import Identity
from shoal.core.ids import SessionId
from shoal.core.messages import ToolUse
from shoal.policy.permissions import RulePermissions
from shoal.policy.rules import Standing, parse_rule
from shoal.policy.shell.analysis import Analysis, analysed
from shoal.policy.shell.plain import plain_line
from shoal.policy.shell.syntax import Unjudgeable
from shoal.policy.shell.walk import Walk
from shoal.workspaces.local import LocalWorkspace

from .door import Door, text_of

ALLOWED = "Bash(aa:*)"
"""The only rule in force. No program has this name, nor `zz`, which no rule covers."""
_ME = Identity(session=SessionId("s"))
_GOES_ON = re.compile(r"\\\s*\Z")
_DEFINES = re.compile(r"\s*\(")
_NOT_AT_ONCE = (
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
_AROUND = (
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
def engine() -> RulePermissions:
    # An empty directory, removed at the end of the process.
    _KEPT.append(tempfile.TemporaryDirectory(prefix="shoal-fuzz-"))
    rules = Standing(allow=(parse_rule(ALLOWED, "a test"),))
    return RulePermissions(LocalWorkspace(Path(_KEPT[0].name)), standing=rules)


_KEPT: list[tempfile.TemporaryDirectory[str]] = []


def is_allowed(command: str) -> bool:
    call = ToolUse(id="c", name="Bash", input={"command": command})
    return isinstance(engine().decide(call, None, _ME), Allow)


def _judged(data: bytes) -> None:
    command = text_of(data)
    analysis = analysed(command)
    assert not (analysis.trouble or "").startswith("the analysis failed"), analysis.trouble
    is_allowed(command)
    engine().judged_parts(command)
    if "\0" not in command and plain_line(command) is not None:
        assert _parsed(command) == analysis


def _parsed(command: str) -> Analysis:
    """Analyze with the parser alone, which must agree on plain lines."""
    walk, trouble = Walk(), None
    try:
        walk._parsed(command)
    except Unjudgeable as reason:
        trouble = str(reason)
    return Analysis(parts=tuple(walk.parts), trouble=trouble)


def _nothing_escapes(data: bytes) -> None:
    text = text_of(data)
    for before in _NOT_AT_ONCE:
        assert not is_allowed(f"{before}{text}"), before
    if _DEFINES.match(text) is None:
        for around in _AROUND:
            assert not is_allowed(around.replace("@", text)), around
    if analysed(text).trouble is None and not _GOES_ON.search(text):
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
DOORS = (
    Door("shell", _judged, (), _SEEDS),
    Door("shell-escape", _nothing_escapes, (), _SEEDS),
)
