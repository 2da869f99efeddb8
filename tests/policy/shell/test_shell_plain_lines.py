"""Plain lines give the same analysis with and without the parser."""

from __future__ import annotations

import re

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from bash_trace import find_unanalyzed, trace_commands
from command_corpora import load_bypasses, load_harmless
from shoal.policy.shell.command_analysis import analyze_shell_command
from shoal.policy.shell.plain_lines import parse_plain_command_line
from shoal.policy.shell.readonly_table import load_readonly_command_table

_BARE = """
    cat grep sort tee rm git log cd find xargs env sudo time timeout sh bash eval exec nohup command test set
    if then fi for in do done while case esac select function coproc time export declare local unset readonly
    typeset let alias source . - -- -c -n -x -exec -la --version --help --y=z a a.txt src/x /etc/passwd ../x
    x=1 a+=b X=Y 2 10 % @ ^ , : + a:b /bin/cat /usr/bin/git ./run awk sed -i -e s/a/b/ p true end repeat
    noglob /dev/tcp/h/1 /dev/null HEAD^ v1@2 100% a=b=c SHOAL_HEREDOC_BODY dd of=x if=y -2 --output=o -o curl
    printf read
"""
_QUOTED = r"""
"a b"⏎'x | y'⏎'; rm x'⏎"; rm"⏎''⏎""⏎"*"⏎'$x'⏎'`a`'⏎"~"⏎'~/x'⏎"-n"⏎'-exec'⏎'"'⏎"it's"⏎"a=b"⏎"a > b"⏎' 2>&1'
'{print}'⏎'p;q'⏎"a && b || c"⏎"#"⏎'rm x'⏎'\'⏎"{a,b}"⏎'s/a/b/w x'⏎"!x"
""".strip().replace("\n", "⏎")
_WORDS = st.sampled_from([*_BARE.split(), *_QUOTED.split("⏎")])
_SEPARATORS = st.sampled_from([" | ", " && ", " || ", "; ", " | "])
_ERRORS = st.sampled_from(["", "", "", " 2>&1", " 2>/dev/null"])
_OUTPUTS = st.sampled_from(["", "", " > o", " >> o", " >o", " > /dev/null 2>&1", " > /dev/tcp/h/1", " > x/2"])

_LEAVES_DIRECTORY = re.compile(r"(?:^| |>)/|exec|\.\./")

_PARSER_LIMITS = re.compile(r"does not parse|holds text between")


@st.composite
def _plain_lines(draw: st.DrawFn) -> str:
    line = ""
    for at, words in enumerate(
        draw(st.lists(st.lists(_WORDS, min_size=1, max_size=5), min_size=1, max_size=4))
    ):
        line += (draw(_SEPARATORS) if at else "") + " ".join(words) + draw(_ERRORS)
    return line + draw(_OUTPUTS)


def _analyze_with_parser(line):
    """Analyze with the parser: a line with a trailing blank means the same and is not plain."""
    assert parse_plain_command_line(f"{line} ") is None
    return analyze_shell_command(f"{line} ")


@pytest.mark.slow
@pytest.mark.spec("PRM-05")
@settings(max_examples=600, deadline=None)
@given(_plain_lines())
def test_the_fast_path_agrees_with_the_parser_on_plain_lines(line):
    found, parsed = analyze_shell_command(line), _analyze_with_parser(line)
    # The grammar rejects some lines that bash accepts, such as `true declare x` and `curl export -`.
    assume(parsed.trouble is None or not _PARSER_LIMITS.search(parsed.trouble))
    assert found == parsed


@pytest.mark.slow
@pytest.mark.needs("bash")
@pytest.mark.spec("PRM-05")
@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.lists(_plain_lines().filter(lambda line: not _LEAVES_DIRECTORY.search(line)), min_size=40, max_size=60)
)
def test_bash_runs_only_analyzed_commands_in_plain_lines(tmp_path, lines):
    analyzed = [(line, found) for line in lines if (found := analyze_shell_command(line)).trouble is None]
    bash = trace_commands([line for line, _ in analyzed], tmp_path)
    assert [
        (line, find_unanalyzed(found, ran))
        for (line, found), ran in zip(analyzed, bash.commands, strict=True)
    ] == [(line, []) for line, _ in analyzed]
    writes = {path for _, found in analyzed for part in found.parts for path in part.writes}
    assert bash.files <= {path.rpartition("/")[2] for path in writes}


@pytest.mark.spec("PRM-05")
def test_the_fast_path_agrees_with_the_parser_on_the_corpora():
    lines = [
        line
        for line in (*load_harmless(), *(line for _, line in load_bypasses()))
        if parse_plain_command_line(line)
    ]
    assert len(lines) > 200
    assert [line for line in lines if analyze_shell_command(line) != _analyze_with_parser(line)] == []


@pytest.mark.spec("PRM-05")
def test_the_fast_path_agrees_with_the_parser_on_commands_of_git():
    names = {name: usage for name, usage in load_readonly_command_table()["git"].subs.items() if usage.flags}
    lines = [f"git {name}" for name in names] + [
        f"git {name} {words}"
        for name, usage in names.items()
        for flag in dict.fromkeys(each.rstrip(":?") for each in usage.flags.split())
        for words in (flag, f"{flag} -20", f"-3 {flag} main^", f"{flag}=x", f"{flag} -p", f"src/x {flag}")
    ]
    assert [line for line in lines if parse_plain_command_line(line) is None] == []
    assert [line for line in lines if analyze_shell_command(line) != _analyze_with_parser(line)] == []


@pytest.mark.parametrize(
    "line",
    r"""
    a  b|a $b|a⇥b|a b⏎|a;b|a > b > c|a & b|a {b,c}|a ~|a *|é|x=1 a|if a|export x|! a|a # b|a\b|(a)|a < b|'a' b
    a 3> b|=a|a =b|a ¦& b||a ¦ |a; b > c|a 2>&1 b|a "$b"|a "`b`"|a "b\"|a 'b'c|a b'c'|a 'é'|a "⏎"|a > "b"
    """.strip()
    .replace("\n    ", "|")
    .split("|"),
)
def test_every_other_line_is_left_to_the_parser(line):
    signs = str.maketrans({"⏎": "\n", "⇥": "\t", "¦": "|"})
    assert parse_plain_command_line(line.translate(signs)) is None


@pytest.mark.spec("PRM-05")
@pytest.mark.parametrize(
    "rest",
    ["", " a1", " a1 src/b a1", " ./a1 .hidden 5", " +5 a1", " @a1", " :a1", " -n a1", " a1 -o b1",
     " version", ' "a 1" b1', " ../a1", " /etc/passwd", " a1 2>/dev/null"],
)  # fmt: skip
def test_every_program_of_the_table_is_judged_alike_with_and_without_the_parser(rest: str) -> None:
    for name in (*load_readonly_command_table(), "tee", "nohup", "env", "sh", "eval", "cd", "newtool"):
        for line in (f"{name}{rest}", f"{name}{rest} | {name}{rest} > o1"):
            found, parsed = analyze_shell_command(line), _analyze_with_parser(line)
            assert (found.trouble, found.is_complete) == (parsed.trouble, parsed.is_complete), line
            assert [replace(part, text="") for part in found.parts] == [
                replace(part, text="") for part in parsed.parts
            ], line
