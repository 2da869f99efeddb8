"""Registry of the sub-commands of `shoal`: the module and help line of each, without importing it."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import click


class LazySubCommandEntry(NamedTuple):
    module: str
    """Module that defines the click command."""
    help: str
    """Line in the command list; it can be shown without an import."""
    examples: tuple[str, ...]


COMMANDS = {
    "agents": LazySubCommandEntry(
        "shoal.surfaces.cli.agent_commands",
        "List, show, check and add agents.",
        (
            "shoal agents ls",
            "shoal agents show Explore",
            "shoal agents show lead --permissions",
            "shoal agents validate .claude/agents",
            "shoal agents new reviewer --user",
        ),
    ),
    "ask": LazySubCommandEntry(
        "shoal.surfaces.cli.question_commands",
        "List and answer the agents' questions.",
        (
            "shoal ask",
            "shoal ask ls --json | jq -r '.[].id'",
            "shoal ask show 3f",
            "shoal ask answer 3f yes",
            'shoal ask answer 3f no --reason "use the other branch"',
        ),
    ),
    "attach": LazySubCommandEntry(
        "shoal.surfaces.cli.attach_command",
        "Open a run that was started in another terminal.",
        ("shoal attach", "shoal attach 3f2a"),
    ),
    "cluster": LazySubCommandEntry(
        "shoal.surfaces.cli.cluster_commands",
        "Run teammates on several machines.",
        (
            "shoal cluster try",
            "shoal cluster head --port 6379",
            "shoal cluster join 192.0.2.10:6379 --label disk=fast",
            "shoal cluster status",
            "shoal cluster doctor --json | jq '.[].problems'",
        ),
    ),
    "config": LazySubCommandEntry(
        "shoal.surfaces.cli.config_commands",
        "Show the settings in effect here.",
        (
            "shoal config show",
            "shoal config show --origin",
            "shoal config show --json | jq .settings.model",
            "shoal config list --origin",
            "shoal config ls",
            "shoal config get permissions.allow",
        ),
    ),
    "cost": LazySubCommandEntry(
        "shoal.surfaces.cli.cost_command",
        "Show the cost of a session.",
        ("shoal cost", "shoal cost 3f2a", "shoal cost --json | jq .total.usd"),
    ),
    "demo": LazySubCommandEntry(
        "shoal.surfaces.cli.demo.demo_command",
        "Watch a team repair a small project, offline.",
        ("shoal demo", "shoal demo --keep", "shoal demo agents", "shoal demo tutorial"),
    ),
    "doctor": LazySubCommandEntry(
        "shoal.surfaces.cli.doctor_command",
        "Check the setup and suggest fixes.",
        (
            "shoal doctor",
            "shoal doctor wait-does-not-end",
            "shoal doctor --json | jq '.facts[] | select(.state != \"ok\")'",
        ),
    ),
    "export": LazySubCommandEntry(
        "shoal.surfaces.cli.export_command",
        "Export a run as one HTML page with a replay, or as JSON.",
        ("shoal export --html", "shoal export 3f2a --html -o run.html"),
    ),
    "hooks": LazySubCommandEntry(
        "shoal.surfaces.cli.hook_commands",
        "List the hooks.",
        ("shoal hooks ls", "shoal hooks ls --json | jq '.hooks[] | select(.trusted | not)'"),
    ),
    "inbox": LazySubCommandEntry(
        "shoal.surfaces.cli.inbox_commands",
        "Read an agent's mail, or send mail.",
        (
            "shoal inbox show team-lead --all",
            'shoal inbox send alice "The build is green again."',
            "git log -1 | shoal inbox send alice - --team roof",
        ),
    ),
    "mcp": LazySubCommandEntry(
        "shoal.surfaces.cli.mcp_commands",
        "List, test, add and remove MCP servers, or run Shoal as one.",
        (
            "shoal mcp ls",
            "shoal mcp list",
            "shoal mcp show docs",
            "shoal mcp get docs",
            "shoal mcp test docs",
            "shoal mcp add docs -- npx -y docs-server",
            "shoal mcp add -H 'Authorization: Bearer ${TOKEN}' issues https://example.org/mcp",
            """shoal mcp add-json docs '{"command": "docs-server"}'""",
            "shoal mcp remove docs",
            "shoal mcp login issues",
            "shoal mcp logout issues",
            "shoal mcp reset-project-choices",
            "shoal mcp test --json | jq -r '.[].status'",
            "shoal mcp serve --team roof --as codex --max-budget-usd 2",
        ),
    ),
    "models": LazySubCommandEntry(
        "shoal.surfaces.cli.model_commands",
        "List the available models, and test one.",
        (
            "shoal models ls",
            "shoal models ls --json | jq -r '.models[] | select(.configured).id'",
            "shoal models test",
            "shoal models test openai:gpt-6-luna",
        ),
    ),
    "permissions": LazySubCommandEntry(
        "shoal.surfaces.cli.permission_commands",
        "Show and explain the permission rules.",
        (
            "shoal permissions ls",
            """shoal permissions explain Bash '{"command": "git push && rm -r build"}'""",
            """shoal permissions explain --mode plan --json Edit '{"file_path": "src/a.py"}'""",
        ),
    ),
    "plugin": LazySubCommandEntry(
        "shoal.surfaces.cli.plugin_commands",
        "List and check plug-ins.",
        (
            "shoal plugin ls",
            "shoal plugin list",
            "shoal plugin ls --json | jq -r '.[].name'",
            "shoal plugin enable harbour@docks",
            "shoal plugin disable harbour@docks",
            "shoal plugin install harbour@docks",
            "shoal plugin uninstall harbour@docks",
            "shoal plugin remove harbour@docks",
            "shoal plugin update harbour@docks",
            "shoal plugin marketplace add example/docks",
            "shoal plugin validate",
            "shoal plugin validate plugins/harbour --json",
        ),
    ),
    "ps": LazySubCommandEntry(
        "shoal.surfaces.cli.ps_command",
        "List the agents in live runs.",
        ("shoal ps", "shoal ps 3f2a", "shoal ps --json | jq '.[] | select(.question != null)'"),
    ),
    "send": LazySubCommandEntry(
        "shoal.surfaces.cli.send_command",
        "Send a message to an agent in a live run.",
        ('shoal send 3f2a lead "Leave the tests alone."', "git diff | shoal send 3f2a plumber -"),
    ),
    "sessions": LazySubCommandEntry(
        "shoal.surfaces.cli.session_command",
        "List the sessions in this directory.",
        ("shoal sessions", "shoal sessions --all --json | jq -r '.[0].session'"),
    ),
    "setup": LazySubCommandEntry(
        "shoal.surfaces.cli.setup_command",
        "Store an API key and choose a model.",
        (
            "shoal setup",
            "pass show openai | shoal setup --provider openai --key-stdin",
            "shoal setup --provider server --base-url http://localhost:8000/v1 --model my-model",
            "shoal setup --remove openai",
        ),
    ),
    "skills": LazySubCommandEntry(
        "shoal.surfaces.cli.skill_commands",
        "List, show and check skills and commands.",
        (
            "shoal skills ls",
            "shoal skills show pdf",
            "shoal skills validate .claude/skills",
            "shoal skills ls --json | jq -r '.[].name'",
        ),
    ),
    "stop": LazySubCommandEntry(
        "shoal.surfaces.cli.stop_command",
        "Stop a live run, or one of its agents.",
        ("shoal stop 3f2a", "shoal stop 3f2a plumber", "shoal stop 3f2a all"),
    ),
    "store": LazySubCommandEntry(
        "shoal.surfaces.cli.store_commands",
        "Manage a PostgreSQL store.",
        (
            "shoal store status",
            "shoal store migrate",
            "shoal store check --json | jq -r '.problems[]'",
            "shoal store import 3f2a",
            "shoal store export 3f2a --to ~/.claude",
        ),
    ),
    "task": LazySubCommandEntry(
        "shoal.surfaces.cli.task_commands",
        "List, show, add and update tasks.",
        (
            "shoal task ls",
            "shoal task show 4",
            'shoal task add "Fix the login test" --blocked-by 3',
            "shoal task update 4 --status completed",
            "shoal task ls --team roof --json | jq -r '.[] | select(.status == \"pending\").id'",
        ),
    ),
    "team": LazySubCommandEntry(
        "shoal.surfaces.cli.teams.team_commands",
        "Show, start, message, stop and resume teams.",
        (
            "shoal team ls",
            "shoal team show roof --json | jq '.members[] | {name, state}'",
            'shoal team start review "the last commit"',
            'shoal team start feature "dark mode" --dry-run',
            'shoal team start bug-hunt "the nightly job fails" -p --max-budget-usd 5',
            "shoal team templates",
            "shoal team template show review",
            "shoal team template validate .claude/teams/audit.md",
            "shoal team template new audit",
            'shoal team send roof alice "Leave the tests alone."',
            "shoal team attach roof",
            "shoal team stop roof alice",
            'shoal team resume roof -p "continue"',
            "shoal team restart roof alice",
            "shoal team export roof --format md -o roof.md",
            "shoal team rm roof --yes",
        ),
    ),
    "trust": LazySubCommandEntry(
        "shoal.surfaces.cli.trust_command",
        "Trust a project's settings.",
        ("shoal trust --show", "shoal trust", "shoal trust --revoke"),
    ),
    "undo": LazySubCommandEntry(
        "shoal.surfaces.cli.undo_command",
        "Restore the files that a turn changed.",
        ("shoal undo", "shoal undo 3 --conversation", "shoal undo --list"),
    ),
    "view": LazySubCommandEntry(
        "shoal.surfaces.cli.view_command",
        "Follow one agent in a run, and talk to it.",
        ("shoal view 3f2a alice",),
    ),
    "watch": LazySubCommandEntry(
        "shoal.surfaces.cli.watch_command",
        "Follow a running session from another terminal.",
        ("shoal watch", "shoal watch 3f2a", "shoal watch --json | jq .type"),
    ),
    "web": LazySubCommandEntry(
        "shoal.surfaces.cli.web_command",
        "See and control every run in a browser.",
        ("shoal web", "shoal web --open", "shoal web --port 8765 --json | jq -r .url"),
    ),
    "workflow": LazySubCommandEntry(
        "shoal.surfaces.cli.workflow_commands",
        "Run Python workflows that survive a crash.",
        (
            "shoal workflow ls",
            'shoal workflow run migrate.py \'files=["a.py", "b.py"]\'',
            "shoal workflow show 3f2a",
            "shoal workflow resume 3f2a",
            "shoal workflow resume 3f2a --from 12",
            "shoal workflow stop 3f2a",
        ),
    ),
    "worktree": LazySubCommandEntry(
        "shoal.surfaces.cli.worktree_commands",
        "Merge or remove agents' worktrees.",
        (
            "shoal worktree ls",
            "shoal worktree show agent-a1b2c3d4",
            "shoal worktree merge agent-a1b2c3d4",
            "shoal worktree rm agent-a1b2c3d4 --force",
            "shoal worktree reap",
            "shoal worktree ls --json | jq -r '.[] | select(.merged | not).name'",
        ),
    ),
}


def load_subcommand(module: str) -> click.Command:
    """Import a module of the registry and return its click command."""
    command: click.Command = getattr(import_module(module), module.rpartition(".")[2])
    return command
