"""Counts the lines of the programs: without blank lines, comments, docstrings and imports."""

from __future__ import annotations

import ast
import io
import json
import sys
import tokenize
from pathlib import Path

HERE = Path(__file__).parent
EXAMPLES = HERE.parents[1] / "examples"
JOBS = {
    "service": "service with streaming",
    "typed_output": "typed output",
    "fan_out": "fan-out with a budget",
    "team": "team with tasks in order",
    "own_model": "own model",
    "hooks": "hooks",
    "notebook": "notebook",
    "test_agent": "pytest",
}
LIBRARIES = ("claude_agent_sdk", "openai_agents", "pydantic_ai")


def count_lines(source: str) -> int:
    """Return the number of lines that have code other than imports and docstrings."""
    tree = ast.parse(source)
    skipped: set[int] = set()
    for node in ast.walk(tree):
        is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if isinstance(node, ast.Import | ast.ImportFrom) or (is_text and isinstance(node.value.value, str)):
            skipped.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    used: set[int] = set()
    ignored = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT)
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in (*ignored, tokenize.ENDMARKER):
            used.update(range(token.start[0], token.end[0] + 1))
    return len(used - skipped)


def read_own_program(job: str) -> str:
    if job != "notebook":
        return (EXAMPLES / f"{job}.py").read_text()
    cells = json.loads((EXAMPLES / "notebook.ipynb").read_text())["cells"]
    lines = [line for cell in cells if cell["cell_type"] == "code" for line in [*cell["source"], "\n"]]
    # In a function, like those of the others: `await` outside one is no Python.
    return "async def run_cells():\n" + "".join(f"    {line}" for line in lines)


def count_programs() -> dict[str, dict[str, int | None]]:
    """Return the lines of each job and library; None if the library cannot do the job."""
    counts: dict[str, dict[str, int | None]] = {}
    for job in JOBS:
        counts[job] = {"shoal": count_lines(read_own_program(job))}
        for library in LIBRARIES:
            path = HERE / library / f"{job}.py"
            counts[job][library] = count_lines(path.read_text()) if path.exists() else None
    return counts


def format_table() -> str:
    """Return the table of the documentation."""
    rows = ["| job | Shoal | claude-agent-sdk | openai-agents | pydantic-ai |", "|---|---|---|---|---|"]
    for job, counts in count_programs().items():
        cells = ["–" if count is None else str(count) for count in counts.values()]
        rows.append(f"| {JOBS[job]} | {' | '.join(cells)} |")
    return "\n".join(rows) + "\n"


if __name__ == "__main__":
    sys.stdout.write(format_table())
