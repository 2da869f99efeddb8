"""Table of the files in which Shoal stores state: where they are, and what a damaged one means."""

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec import Struct

StateFileShape: TypeAlias = Literal["lines", "object", "text", "number", "words", "entry", "reader"]
"""Content of a file. `lines` and `object` are JSON, `words` are lines of text. The content of an `entry` does
not matter, only that it is a file. A `reader` reports damage itself when it reads the file."""


class StateFileKind(Struct, frozen=True, kw_only=True):
    """Files of one kind. Paths start at the home and may contain {session}, {team} and {board}."""

    name: str
    directory: str
    file: str
    """Pattern for the names of the files."""
    shape: StateFileShape
    used: str = "Shoal creates a new one."
    """Sentence about the replacement of a damaged file."""
    lost: str = "Nothing is lost."
    start: bytes = b""
    """First bytes of each file."""
    size: int | None = None
    """Size of each file, if it never changes."""
    is_set_aside: bool = False
    """True if a damaged file is renamed even if it is a regular file: it has no further use."""


_RUN = "shoal/runs/{session}"
_OWN_TEAM = "shoal/teams/{team}"
STATE_FILE_KINDS = (
    StateFileKind(name="lock file", directory=_RUN, file="lock", shape="entry"),
    StateFileKind(
        name="conversation",
        directory="projects/*",
        file="{session}.jsonl",
        shape="lines",
        used="Shoal uses the lines that it can read.",
        lost="The rest of the conversation is lost.",
    ),
    StateFileKind(
        name="conversation",
        directory="projects/*/{session}/subagents",
        file="agent-*.jsonl",
        shape="lines",
        used="Shoal uses the lines that it can read.",
        lost="The rest of the conversation is lost.",
    ),
    StateFileKind(
        name="description of an agent",
        directory="projects/*/{session}/subagents",
        file="agent-*.meta.json",
        shape="object",
        used="Nothing replaces it.",
        lost="The agent cannot be resumed until the file is repaired.",
    ),
    StateFileKind(
        name="journal",
        directory=_RUN,
        file="journal.jsonl",
        shape="lines",
        used="Shoal uses the events that it can read. Transcripts, mail and tasks do not need the journal.",
        lost="The other events are lost, along with their costs and schedules.",
    ),
    StateFileKind(
        name="snapshot",
        directory=_RUN,
        file="snapshot-*",
        shape="entry",
        used="Shoal reads the journal or the conversation itself instead.",
    ),
    StateFileKind(
        name="list of file checkpoints",
        directory=f"{_RUN}/checkpoints",
        file="index.jsonl",
        shape="lines",
        used="Shoal uses the entries that it can read.",
        lost="The other changes cannot be undone.",
    ),
    StateFileKind(
        name="file checkpoint",
        directory=f"{_RUN}/checkpoints/blobs/*",
        file="*",
        shape="entry",
        used="Nothing replaces it.",
        lost="The change to this file cannot be undone.",
    ),
    StateFileKind(
        name="definition of a Python program's team",
        directory=_RUN,
        file="team.json",
        shape="object",
        used="Nothing replaces it.",
        lost="The program cannot resume its team until the file is repaired.",
    ),
    StateFileKind(
        name="memory of the session",
        directory=_RUN,
        file="memory.md",
        shape="text",
        lost="The notes for the next compaction are lost.",
        is_set_aside=True,
    ),
    StateFileKind(
        name="log of a server", directory=f"{_RUN}/mcp", file="*.log", shape="entry", lost="The log is lost."
    ),
    StateFileKind(
        name="log of a member's server",
        directory=f"{_RUN}/mcp/*",
        file="*.log",
        shape="entry",
        lost="The log is lost.",
    ),
    StateFileKind(
        name="list of results",
        directory=f"{_RUN}/results",
        file=".sizes",
        shape="words",
        used="Shoal uses the lines that it can read.",
        lost="Shoal cannot tell whether the other results are complete.",
    ),
    StateFileKind(
        name="result",
        directory=f"{_RUN}/results",
        file="*",
        shape="text",
        used="Shoal uses the excerpt in the conversation.",
        lost="The full text is lost.",
    ),
    StateFileKind(
        name="question",
        directory=f"{_RUN}/questions",
        file="*.json",
        shape="object",
        used="The agent asks its question again.",
        lost="The question, or the answer to it, is lost.",
        is_set_aside=True,
    ),
    StateFileKind(
        name="work of an agent on another machine",
        directory=f"{_RUN}/agent-work/*",
        file="*.work",
        shape="entry",
        used="Nothing replaces it.",
        lost="The work is lost unless a repository has its ref, refs/shoal/cluster/SESSION/AGENT.",
    ),
    StateFileKind(
        name="output of an agent or a shell",
        directory=f"{_RUN}/tasks",
        file="*.output",
        shape="entry",
        lost="The output that this file held is lost. An agent's output is still in its conversation.",
    ),
    StateFileKind(
        name="log of a process",
        directory=f"{_RUN}/members",
        file="*.log",
        shape="entry",
        lost="The log is lost.",
    ),
    StateFileKind(name="signing key", directory="shoal/keys", file="{team}", shape="reader"),
    StateFileKind(name="roster", directory="teams/{team}", file="config.json", shape="reader"),
    StateFileKind(name="inbox", directory="teams/{team}/inboxes", file="*.json", shape="reader"),
    StateFileKind(name="lock file", directory="teams/{team}/inboxes", file=".lock", shape="entry"),
    StateFileKind(
        name="copy of the roster",
        directory=_OWN_TEAM,
        file="roster.copy",
        shape="object",
        used="Shoal uses the roster itself.",
        is_set_aside=True,
    ),
    StateFileKind(name="working copy of a roster", directory=_OWN_TEAM, file="roster.staged", shape="entry"),
    StateFileKind(name="lock file", directory=_OWN_TEAM, file="roster.lock", shape="entry"),
    StateFileKind(
        name="number of started members",
        directory=_OWN_TEAM,
        file="spawned",
        shape="number",
        size=18,
        used="Shoal uses the number of members in the roster.",
        lost="A color may be used twice.",
        is_set_aside=True,
    ),
    StateFileKind(
        name="list of the members that Shoal added",
        directory=_OWN_TEAM,
        file="members",
        shape="words",
        start=b"# members",
        used="Shoal uses all members in the roster.",
        is_set_aside=True,
    ),
    StateFileKind(
        name="working copy of a list of members", directory=_OWN_TEAM, file="members.staged", shape="entry"
    ),
    StateFileKind(
        name="record of the team's creator",
        directory=_OWN_TEAM,
        file="creator",
        shape="text",
        used="The run's directory also shows that Shoal leads the team.",
        is_set_aside=True,
    ),
    StateFileKind(
        name="record of Shoal's own changes",
        directory=_OWN_TEAM,
        file="own-writes",
        shape="words",
        used="Recent changes to the team count as changes by another program.",
        is_set_aside=True,
    ),
    StateFileKind(name="marker of a team operation", directory=_OWN_TEAM, file="making", shape="entry"),
    StateFileKind(name="marker of a team operation", directory=_OWN_TEAM, file="deleting", shape="entry"),
    StateFileKind(name="lock file", directory=f"{_OWN_TEAM}/locks", file="*", shape="entry"),
    StateFileKind(name="working copy of an inbox", directory=f"{_OWN_TEAM}/staging", file="*", shape="entry"),
    StateFileKind(
        name="marker of a member run by another program",
        directory=f"{_OWN_TEAM}/foreign",
        file="*",
        shape="entry",
        lost="Shoal refuses unsigned mail from this member until the lead writes to it.",
    ),
    StateFileKind(
        name="mail that is waiting for space",
        directory=f"{_OWN_TEAM}/overflow",
        file="*.jsonl",
        shape="lines",
        used="Shoal uses the messages that it can read.",
        lost="The other messages are lost.",
    ),
    StateFileKind(
        name="position in the waiting mail",
        directory=f"{_OWN_TEAM}/overflow",
        file="*.state",
        shape="number",
        size=96,
        used="Shoal reads the waiting mail from its start and skips messages that were already delivered.",
        is_set_aside=True,
    ),
    StateFileKind(
        name="archive of read mail",
        directory=f"{_OWN_TEAM}/archive",
        file="*.jsonl",
        shape="lines",
        used="Shoal uses the messages that it can read.",
        lost="Other messages, which were delivered long ago, are lost.",
    ),
    StateFileKind(name="task", directory="tasks/{board}", file="[0-9]*.json", shape="reader"),
    StateFileKind(name="lock file", directory="tasks/{board}", file=".lock", shape="entry"),
    StateFileKind(
        name="highest task number",
        directory="tasks/{board}",
        file=".highwatermark",
        shape="number",
        used="Shoal uses the highest number of an existing task.",
        lost="The number of a deleted task may be used again.",
        is_set_aside=True,
    ),
    StateFileKind(name="lock file", directory="shoal/tasks/{board}", file="*", shape="entry"),
    StateFileKind(
        name="working copy of a task", directory="shoal/tasks/{board}/staging", file="*", shape="entry"
    ),
    StateFileKind(
        name="record of a worktree",
        directory="worktrees/*",
        file="agent-*.json",
        shape="object",
        used="Nothing replaces it. The worktree stays where it is.",
        lost="Shoal no longer lists this worktree and does not remove it.",
        is_set_aside=True,
    ),
    StateFileKind(name="marker of a live process", directory="worktrees/*/.owners", file="*", shape="entry"),
    StateFileKind(name="marker of a live process", directory="shoal/leases", file="*", shape="entry"),
    StateFileKind(
        name="list of a guardian's programs",
        directory="shoal/guardians",
        file="*",
        shape="entry",
        used="Nothing replaces it.",
        lost="Shoal cannot find that run's programs if they are still running.",
    ),
    StateFileKind(name="lock file", directory="shoal", file="teams.lock", shape="entry"),
    StateFileKind(name="marker of the last cleanup", directory="shoal", file="swept", shape="entry"),
)
FOLLOWED_DIRECTORIES = ("projects/*/{session}", "projects/*/{session}/subagents")
"""Directories of transcripts, which people may move to another place with a link."""
STATE_DIRECTORIES = (
    *(
        f"{_RUN}/{name}"
        for name in ("checkpoints", "checkpoints/blobs", "results", "questions", "tasks", "agent-work")
    ),
    *("shoal/keys", "shoal/leases", "shoal/guardians", "shoal/teams", "shoal/tasks"),
    *("teams/{team}", "teams/{team}/inboxes", "tasks/{board}", "shoal/tasks/{board}"),
    *(_OWN_TEAM, *(f"{_OWN_TEAM}/{name}" for name in ("locks", "staging", "foreign", "overflow", "archive"))),
    "shoal/tasks/{board}/staging",
)
"""Directories that contain these files."""
