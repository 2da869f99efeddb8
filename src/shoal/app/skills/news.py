"""Changes of the agent and skill lists, reported once, after the cached prefix of the prompt."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from shoal.app.definitions.definitions import Definitions
from shoal.app.skills.skills import Skills
from shoal.core.definitions import Definition
from shoal.core.neutral import neutral
from shoal.core.skills import Skill
from shoal.wire.notices import reminder

_LONGEST = 400
"""Maximum characters of one description."""
_MOST = 40
_TOOLS = {"agents": "Agent", "skills": "Skill"}


class News:
    """Reports changes against the lists in the tool descriptions, which stay fixed for caching."""

    def __init__(self, definitions: Definitions, skills: Skills) -> None:
        self._agents = _List(definitions.all)
        self._agents_seen = definitions.seen
        self._skills = _List(skills.skills.all)
        self._first = self._now()
        self._told = self._first

    def fresh(self, tools: Collection[str]) -> str:
        """Return the changes since the last call for an agent with these tools; empty if there are none."""
        before, self._told = self._told, self._now()
        of_use = {what: there for what, there in self._told.items() if _TOOLS[what] in tools}
        return _said(before, of_use)

    def since_start(self) -> str:
        """Return the changes for a new agent, which has read the lists of the session start.

        Its own definition was just looked up, so the agent list is current.
        """
        now = {"agents": self._agents.of(self._agents_seen()), "skills": self._skills.now()}
        return _said(self._first, now)

    def _now(self) -> dict[str, Mapping[str, str]]:
        return {"agents": self._agents.now(), "skills": self._skills.now()}


class _List:
    """Names and descriptions; the same object while nothing changes."""

    def __init__(self, look: Callable[[], tuple[Definition | Skill, ...]]) -> None:
        self._look = look
        self._seen: tuple[Definition | Skill, ...] | None = None
        self._described: Mapping[str, str] = {}

    def now(self) -> Mapping[str, str]:
        return self.of(self._look())

    def of(self, seen: tuple[Definition | Skill, ...]) -> Mapping[str, str]:
        if seen is not self._seen:
            offered = (each for each in seen if not isinstance(each, Skill) or each.for_model)
            self._seen, self._described = seen, {each.name: each.description for each in offered}
        return self._described


def _said(before: Mapping[str, Mapping[str, str]], now: Mapping[str, Mapping[str, str]]) -> str:
    lines: list[str] = []
    for what, there in now.items():
        was = before[what]
        if there is was:
            continue
        new = [f"- {name}: {_short(text)}" for name, text in there.items() if was.get(name) != text]
        gone = [f"- {name}" for name in was if name not in there]
        if new:
            lines += [f"These {what} are new, or are described otherwise now:", *_some(new)]
        if gone:
            lines += [f"These {what} are not there any more:", *_some(gone)]
    if not lines:
        return ""
    return reminder(neutral("\n".join(lines)))


def _some(lines: list[str]) -> list[str]:
    return lines if len(lines) <= _MOST else [*lines[:_MOST], f"… and {len(lines) - _MOST} more"]


def _short(text: str) -> str:
    words = " ".join(text.split())
    return words if len(words) <= _LONGEST else f"{words[: _LONGEST - 1]}…"
