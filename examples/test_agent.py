"""Tests a program with agents, without a key. Try it: python -m pytest examples/test_agent.py"""

from pathlib import Path

import shoal
from shoal.testing import make_tool_call


def test_the_agent_reads_the_file_before_it_answers(tmp_path: Path) -> None:
    (tmp_path / "poem.txt").write_text("Roses are red\nViolets are blue\n")
    model = shoal.ScriptedModel([make_tool_call("Read", file_path="poem.txt"), "It has 2 lines."])
    result = shoal.run_sync("Count the lines of poem.txt", cwd=tmp_path, model=model)
    assert (result.text, result.requests) == ("It has 2 lines.", 2)
