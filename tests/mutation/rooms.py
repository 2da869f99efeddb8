"""The parts of the program that are mutated."""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct

ROOT = Path(__file__).parents[2]


class Room(Struct, frozen=True):
    """Modules of one subject."""

    name: str
    sources: tuple[str, ...]
    """Patterns of paths under src/shoal."""

    def list_modules(self, root: Path = ROOT) -> list[Path]:
        """List the room's modules relative to the root, in order."""
        base = root / "src" / "shoal"
        found = {path for pattern in self.sources for path in base.glob(pattern) if path.suffix == ".py"}
        return sorted(path.relative_to(root) for path in found)


ROOMS = (
    Room("authority", ("policy/*.py", "policy/shell/*.py", "app/agent_permissions.py")),
    Room("stores", ("stores/files/*.py", "stores/files/[!l]*/*.py", "stores/memory/*.py")),
    Room("leases", ("stores/files/locks/*.py", "core/flock_queue.py")),
    Room(
        "supervisors",
        ("team/*.py", "team/*/*.py", "app/agents/*.py", "runs/agent_*.py", "runs/running_agents.py"),
    ),
    Room("budget", ("core/budgets/*.py",)),
    Room(
        "recovery",
        ("app/session/*.py", "runs/late_answers.py", "runs/stored_report.py", "runs/inbox_queue.py"),
    ),
    Room(
        "control",
        ("app/run_access/*.py", "runs/control_*.py", "runs/question_broker.py", "wire/control_codec.py"),
    ),
    Room("mcp", ("tools/mcp/*.py", "app/mcp/*.py", "surfaces/mcp/*.py")),
    Room("hooks", ("policy/hooks/*.py", "app/hooks/*.py", "wire/hook_*.py")),
    Room("terminal", ("surfaces/terminal/*.py", "surfaces/cli/plain/*.py")),
)
