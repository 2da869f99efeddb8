"""Continuous work of a large team: members throw balls to each other, by mail, and do tasks.

A ball is thrown again a while after it arrived, so the number of balls limits the load. Each throw has a
number, which shows whether it arrived, how often, and how long it took.
"""

from __future__ import annotations

import asyncio
import random
import re
import time
from collections import Counter
from collections.abc import Sequence

from shoal.agent.compaction import OPENING, PROMPT
from shoal.core.messages import Message, Text, ToolUse
from shoal.core.requests import Hear, Reply, Request, Sent
from shoal.core.usage import ModelCard, Price, Usage

TEAM = "crowd"
HOLD = 1.0
"""Seconds for which a ball is held."""
WINDOW = 7_300
"""Tokens: so few that conversations are compacted again and again."""
_TOOLS = 5_200
_MEMBER = re.compile(r"^- You are ([\w-]+), a member of the team", re.MULTILINE)
_BALL = re.compile(r"<ball (\d+) throw (\d+)>")
_TASK = re.compile(r"Task #(\d+) is yours now")
_TASK_EVERY, _LEAD_EVERY = 10, 50
"""Throws after which a member creates a task, or sends a message to the lead."""
_ASKED = PROMPT[:60]
_WARM_UP = 2
"""Throws per member before anything is measured."""
Block = Text | ToolUse


class Juggling:
    def __init__(self, members: int, balls: int) -> None:
        self.names = [f"m{number}" for number in range(members)]
        self.balls = balls
        self.stopping = False
        self.all_held = asyncio.Event()
        self.warm = asyncio.Event()
        """Set when every member has had something to do."""
        self.held: set[int] = set()
        self.thrown = self.caught = self.again = 0
        self.latencies: list[float] = []
        """Seconds from the answer that throws to the request that contains it, since they were last read."""
        self._in_the_air: dict[int, tuple[int, float]] = {}
        self._last: Counter[int] = Counter()
        self._busy: set[str] = set()
        self._done: set[int] = set()
        self._random = random.Random(1)
        self._calls = self._acts = 0

    @property
    def lost(self) -> int:
        """Number of balls that nobody holds, once all should be held."""
        return self.balls - len(self.held)

    @property
    def tasks(self) -> int:
        """Number of completed tasks."""
        return len(self._done)

    async def think(self, request: Request) -> Sequence[Block]:
        heard = _new(request.messages)
        if _ASKED in heard:
            return [Text(text="Balls came, and were thrown again.")]
        found = _MEMBER.search(request.system)
        return self._lead(heard) if found is None else await self._member(found.group(1), heard)

    def _lead(self, heard: str) -> list[Block]:
        """Take each step once, however often the text is repeated."""
        if "Make the team." in heard and not self._acts:
            self._acts += 1
            return [self._use("TeamCreate", team_name=TEAM)]
        if "You lead the team" in heard and self._acts == 1:
            self._acts += 1
            return [
                self._use("Agent", description="juggles", prompt="Wait for a ball.", name=name)
                for name in self.names
            ]
        if "Throw the balls." in heard and not self.thrown:
            return [self._throw(ball, self.names[ball % len(self.names)]) for ball in range(self.balls)]
        return [Text(text="Good.")]

    async def _member(self, me: str, heard: str) -> list[Block]:
        # Balls that arrived when the conversation was full are in its summary, along with older ones.
        summed_up = OPENING in heard
        came = [
            ball
            for ball, number in _BALL.findall(heard)
            if self._catch(int(ball), int(number), summed_up=summed_up)
        ]
        tasks = {int(task) for task in _TASK.findall(heard)} - self._done
        calls: list[Block] = [
            self._use("TaskUpdate", taskId=str(task), status="completed") for task in sorted(tasks)
        ]
        self._done |= tasks
        if came:
            self._busy.add(me)
            await asyncio.sleep(HOLD)
        for ball in map(int, came):
            if self.stopping:
                self._hold(ball)
                continue
            calls.append(self._throw(ball, self._somebody(me)))
            if self.thrown % _TASK_EVERY == 0:
                calls.append(self._use("TaskCreate", subject=f"after {self.thrown}", description="as always"))
            if self.thrown % _LEAD_EVERY == 0:
                calls.append(self._use("SendMessage", to="team-lead", message="All is well.", summary="well"))
        self._busy.discard(me)
        return calls or [Text(text="Ready.")]

    def _somebody(self, me: str) -> str:
        """Choose a member without a ball, if any: mail for a busy member waits for its turn to end."""
        if self.thrown > _WARM_UP * len(self.names):
            self.warm.set()
        elif (next_one := self.names[self.thrown % len(self.names)]) != me:
            return next_one
        for _ in self.names:
            if (name := self._random.choice(self.names)) not in self._busy:
                return name
        return self._random.choice([name for name in self.names if name != me])

    def _throw(self, ball: int, to: str) -> ToolUse:
        self.thrown += 1
        number = self._last[ball] + 1
        self._in_the_air[ball] = number, time.monotonic()
        return self._use("SendMessage", to=to, message=f"<ball {ball} throw {number}>", summary="a ball")

    def _catch(self, ball: int, number: int, *, summed_up: bool) -> bool:
        expected, since = self._in_the_air.get(ball, (0, 0.0))
        if number != expected:
            self.again += not summed_up
            return False
        del self._in_the_air[ball]
        self._last[ball] = number
        self.latencies.append(time.monotonic() - since)
        self.caught += 1
        return True

    def _hold(self, ball: int) -> None:
        self.held.add(ball)
        if len(self.held) == self.balls:
            self.all_held.set()

    def _use(self, tool: str, /, **given: str) -> ToolUse:
        self._calls += 1
        return ToolUse(id=f"call-{self._calls}", name=tool, input=given)


def _new(messages: Sequence[Message]) -> str:
    """Return the text since the speaker's last reply."""
    texts: list[str] = []
    for message in reversed(messages):
        if message.role == "assistant":
            break
        for block in reversed(message.content):
            if isinstance(block, Text):
                texts.append(block.text)
            else:
                texts.append(str(getattr(block, "content", "")))
    return "\n".join(reversed(texts))


def usage_of(request: Request) -> Usage:
    """Estimate what a provider would count: most of it are the tools."""
    size = sum(len(block.text) for m in request.messages for block in m.content if isinstance(block, Text))
    return Usage(input_tokens=_TOOLS + len(request.messages) * 50 + size // 4, output_tokens=10)


class JugglingModel:
    """The workload as a model in this process."""

    card = ModelCard(
        id="instant", provider="load", price=Price(input=3.0, output=15.0), window=WINDOW, max_output=500
    )

    def __init__(self, juggling: Juggling) -> None:
        self._juggling = juggling

    async def reply(self, request: Request, hear: Hear) -> Reply:
        await hear(Sent())
        content = tuple(await self._juggling.think(request))
        calls = any(isinstance(block, ToolUse) for block in content)
        return Reply(
            message=Message(role="assistant", content=content),
            usage=usage_of(request),
            stop_reason="tool_use" if calls else "end_turn",
            model="instant",
            id="m",
        )

    async def aclose(self) -> None: ...
