"""Variables of the real bash that evaluate what they are set to."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from shoal.policy.shell.command_analysis import analyze_shell_command

_LIST_EVALUATING_VARIABLES = r"""
for name in $(compgen -v); do
    if (eval "$name='x[\$(echo ran >&3)]'; :") 3>&1 >/dev/null 2>&1 | grep -q ran; then echo "$name"; fi
done
"""


def test_every_variable_that_bash_evaluates_on_assignment_is_known_to_the_analysis() -> None:
    listed = subprocess.run(
        ["bash", "-c", _LIST_EVALUATING_VARIABLES], capture_output=True, text=True, check=True
    )
    names = listed.stdout.split()
    assert "RANDOM" in names
    for name in names:
        analysis = analyze_shell_command(f"{name}='x[$(rm y)]'")
        # A command that is known only at run time, so a rule may forbid it.
        assert any(part.words == (None,) for part in analysis.parts), name
        assert analysis.trouble is not None


_VALUE_FROM_FILE = r"""
read n < f; echo $((n))
n=$(cat f); echo $((1 + n))
n=1; read n < f; (( n > 3 ))
read n < f; n=1; for i in 1 2; do echo $((n)); n=$m; done
x=n; read n < f; echo $((x))
x=n+1; n=$(cat f); echo $((x))
n=1; mapfile -t n < f; echo $((n))
n=1; printf -v n %s "$(cat f)"; echo $((n))
for n in $(cat f); do echo $((n)); done
for ((i=0; i<1; i++)); do read i < f; echo $((i)); done
read n < f; [[ $n -gt 3 ]]
n=1; while [[ $n -lt 3 ]]; do n=$(cat f); [[ $n -lt 3 ]]; n=3; done
"""


def test_no_expression_with_a_value_from_a_file_is_called_harmless(tmp_path: Path) -> None:
    """Bash runs the substitution that the file holds; the analysis asks."""
    commands = _VALUE_FROM_FILE.strip().splitlines()
    (tmp_path / "f").write_text("a[$(touch${IFS}ran)]\n")
    ran = []
    for command in commands:
        subprocess.run(["bash", "-c", command], cwd=tmp_path, capture_output=True, timeout=20, check=False)
        ran.append((tmp_path / "ran").exists())
        (tmp_path / "ran").unlink(missing_ok=True)
    assert sum(ran) >= 10
    assert [command for command in commands if analyze_shell_command(command).trouble is None] == []


@pytest.mark.parametrize(
    "command",
    ["echo $((n + 1))", "n=1; echo $((n + m))", "n=m; echo $((n))", "x=1; echo $((PATH=5)); ls",
     "((IFS=1))", "n=1; echo $((a[n]))", "n=1; echo $(( ${!n} ))", "n=x[1]; echo $((n))", "[ $n -lt 3 ]",
     "f() { echo $(($1)); }; f 1", "n=1; [[ -v $n ]]", "n=1; [[ n -lt m ]]", "n=$(grep -rc x); echo $((n))"],
)  # fmt: skip
def test_an_expression_with_another_variable_or_a_subscript_is_asked(command: str) -> None:
    assert analyze_shell_command(command).trouble is not None


@pytest.mark.parametrize(
    "command",
    ["for i in 1 2; do echo $((i * 2)); done", "n=0; echo $(( $n + ${n} ))", "i=0; ((i++)); echo $i",
     "for ((i=0; i<3; i++)); do echo $i; done", "n=$(wc -l < f); [[ $n -gt 3 ]] && echo many",
     "i=0; while [ \"$i\" -lt 3 ]; do i=$((i+1)); done", "echo $((0xff)) $((2 ** 10))"],
)  # fmt: skip
def test_an_expression_with_numbers_and_counted_variables_is_harmless(command: str) -> None:
    analysis = analyze_shell_command(command)
    assert analysis.trouble is None
    assert all(part.read_only for part in analysis.parts)
