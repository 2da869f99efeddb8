"""Plain lines mean the same read with and without the parser."""

from __future__ import annotations

import re

import pytest
from corpora import bypasses, harmless
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from real_bash import told, unseen
from shoal.policy.shell.analysis import analysed
from shoal.policy.shell.plain import plain_line

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

_LEADS_AWAY = re.compile(r"(?:^| |>)/|exec|\.\./")

_STUMBLES = re.compile(r"does not parse|holds text between")


@st.composite
def _plain(draw: st.DrawFn) -> str:
    line = ""
    for at, words in enumerate(
        draw(st.lists(st.lists(_WORDS, min_size=1, max_size=5), min_size=1, max_size=4))
    ):
        line += (draw(_SEPARATORS) if at else "") + " ".join(words) + draw(_ERRORS)
    return line + draw(_OUTPUTS)


def _by_the_parser(line):
    """With a blank at its end a line means the same and is not plain."""
    assert plain_line(f"{line} ") is None
    return analysed(f"{line} ")


@pytest.mark.spec("PRM-05")
@settings(max_examples=600, deadline=None)
@given(_plain())
def test_a_plain_line_means_what_the_parser_finds_in_it(line):
    found, parsed = analysed(line), _by_the_parser(line)
    # Its grammar stumbles over lines that bash takes, such as `true declare x` and `curl export -`.
    assume(parsed.trouble is None or not _STUMBLES.search(parsed.trouble))
    assert found == parsed


@pytest.mark.needs("bash")
@pytest.mark.spec("PRM-05")
@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(_plain().filter(lambda line: not _LEADS_AWAY.search(line)), min_size=40, max_size=60))
def test_bash_runs_nothing_in_a_plain_line_that_was_not_seen(tmp_path, lines):
    judged = [(line, found) for line in lines if (found := analysed(line)).trouble is None]
    bash = told([line for line, _ in judged], tmp_path)
    assert [(line, unseen(found, ran)) for (line, found), ran in zip(judged, bash.ran, strict=True)] == [
        (line, []) for line, _ in judged
    ]
    writes = {path for _, found in judged for part in found.parts for path in part.writes}
    assert bash.written <= {path.rpartition("/")[2] for path in writes}


@pytest.mark.spec("PRM-05")
def test_the_plain_lines_of_the_corpora_mean_what_the_parser_finds_in_them():
    lines = [line for line in (*harmless(), *(line for _, line in bypasses())) if plain_line(line)]
    assert len(lines) > 200
    assert [line for line in lines if analysed(line) != _by_the_parser(line)] == []


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
    assert plain_line(line.translate(signs)) is None
