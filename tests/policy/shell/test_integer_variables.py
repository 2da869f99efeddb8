"""Variables of the real bash that evaluate what they are set to."""

from __future__ import annotations

import subprocess

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
