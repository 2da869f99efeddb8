"""Rules with stars say what trying every way there is would say."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from shoal.policy.command_rules import ShellCommandRule
from shoal.policy.path_patterns import InvalidPathPatternError, convert_path_pattern_to_regex
from shoal.policy.permission_rules import parse_permission_rule
from shoal.policy.shell.command_analysis import SimpleShellCommand

from .fuzz_inputs import limit_examples

_PLAIN = {"**/": "(?:.*/)?", "/**": "(?:/.*)?", "**": ".*", "*": "[^/]*", "?": "[^/]", "/": "/"}
_pieces = st.lists(
    st.sampled_from(["a", "b", "*", "**", "/", "**/", "?", "*a", "a*"]), min_size=1, max_size=7
)
_paths = st.text(alphabet="aab/", max_size=9)


def _in_every_way(pattern: str) -> str:
    """An expression that goes back wherever it can."""
    if not pattern.strip("/"):
        return "/p(?:/.*)?"
    depth = "" if "/" in pattern.rstrip("/") else "(?:.*/)?"
    pattern = pattern.removeprefix("/").rstrip("/")
    body = re.sub(r"\*\*/|/\*\*$|\*\*|\*|\?|/", lambda found: _PLAIN[found[0]], pattern)
    return f"/p/{depth}{body}(?:/.*)?"


@limit_examples(200)
@given(
    _pieces.map("".join).filter(lambda text: not text.startswith("//")),
    st.lists(_paths, min_size=1, max_size=8),
)
def test_a_glob_pattern_matches_like_an_exhaustive_search(pattern: str, paths: list[str]) -> None:
    try:
        expression = convert_path_pattern_to_regex(pattern, "/p", "/home/x")
    except InvalidPathPatternError as refusal:
        assert "more than once" in str(refusal)  # noqa: PT017 - it is the only reason here
        return
    for path in paths:
        wanted = re.fullmatch(_in_every_way(pattern), f"/p/{path}", re.DOTALL) is not None
        assert (re.fullmatch(expression, f"/p/{path}", re.DOTALL) is not None) == wanted, path


def _fits(pattern: list[str], words: list[str]) -> bool:
    if not pattern:
        return not words
    if pattern[0] == "*":
        return pattern[1:] == [] or any(_fits(pattern[1:], words[at:]) for at in range(len(words)))
    return bool(words) and words[0] == pattern[0] and _fits(pattern[1:], words[1:])


_words = st.lists(st.sampled_from(["a", "b", "c"]), max_size=6)


@limit_examples(100)
@given(st.lists(st.sampled_from(["a", "b", "*", "*"]), max_size=5), _words)
def test_a_rule_pattern_matches_like_an_exhaustive_search(pattern: list[str], words: list[str]) -> None:
    rule = ShellCommandRule(parse_permission_rule(f"Bash({' '.join(['x', *pattern, '*'])})"))
    part = SimpleShellCommand(text="", argv=("x", *words))
    assert rule.covers_command(part) == _fits(["x", *pattern, "*"], ["x", *words])
