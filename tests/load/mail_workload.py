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

from shoal.agent.agent_texts import load_prompt
from shoal.agent.compaction import SUMMARY_OPENING
from shoal.core.budgets.usage import ModelCard, TokenPrice, Usage
from shoal.core.conversation.messages import Message, TextBlock, ToolUseBlock
from shoal.core.conversation.model_requests import (
    DeltaListener,
    ModelAttemptStartedDelta,
    ModelReply,
    ModelRequest,
)

TEAM = "crowd"
HOLD_SECONDS = 1.0
"""Seconds for which a ball is held."""
WINDOW = 7_300
"""Tokens: so few that conversations are compacted again and again."""
_TOOL_TOKENS = 5_200
_MEMBER = re.compile(r"^- You are ([\w-]+), a member of the team", re.MULTILINE)
_BALL = re.compile(r"<ball (\d+) throw (\d+)>")
_TASK = re.compile(r"Task #(\d+) is yours now")
_TASK_EVERY, _LEAD_EVERY = 10, 50
"""Throws after which a member creates a task, or sends a message to the lead."""
_COMPACTION_PROMPT = load_prompt("compact")[:60]
_WARM_UP_THROWS = 2
"""Throws per member before anything is measured."""
ReplyBlock = TextBlock | ToolUseBlock


class MailWorkload:
    def __init__(self, members: int, balls: int) -> None:
        self.names = [f"m{number}" for number in range(members)]
        self.balls = balls
        self.is_stopping = False
        self.all_held = asyncio.Event()
        self.is_warm = asyncio.Event()
        """Set when every member has had something to do."""
        self.held: set[int] = set()
        self.thrown = self.caught = self.duplicates = 0
        self.latencies: list[float] = []
        """Seconds from the answer that throws to the request that contains it, since they were last read."""
        self._in_flight: dict[int, tuple[int, float]] = {}
        self._last_throws: Counter[int] = Counter()
        self._busy: set[str] = set()
        self._done: set[int] = set()
        self._random = random.Random(1)
        self._calls = self._lead_steps = 0

    @property
    def lost(self) -> int:
        """Number of balls that nobody holds, once all should be held."""
        return self.balls - len(self.held)

    @property
    def tasks(self) -> int:
        """Number of completed tasks."""
        return len(self._done)

    async def choose_reply(self, request: ModelRequest) -> Sequence[ReplyBlock]:
        heard = _get_new_text(request.messages)
        if _COMPACTION_PROMPT in heard:
            return [TextBlock(text="Balls came, and were thrown again.")]
        found = _MEMBER.search(request.system)
        return (
            self._reply_as_lead(heard)
            if found is None
            else await self._reply_as_member(found.group(1), heard)
        )

    def _reply_as_lead(self, heard: str) -> list[ReplyBlock]:
        """Take each step once, however often the text is repeated."""
        if "Make the team." in heard and not self._lead_steps:
            self._lead_steps += 1
            return [self._make_tool_use("TeamCreate", team_name=TEAM)]
        if " lead the team" in heard and self._lead_steps == 1:
            self._lead_steps += 1
            return [
                self._make_tool_use("Agent", description="juggles", prompt="Wait for a ball.", name=name)
                for name in self.names
            ]
        if "Throw the balls." in heard and not self.thrown:
            return [self._throw_ball(ball, self.names[ball % len(self.names)]) for ball in range(self.balls)]
        return [TextBlock(text="Good.")]

    async def _reply_as_member(self, me: str, heard: str) -> list[ReplyBlock]:
        # Balls that arrived when the conversation was full are in its summary, along with older ones.
        summed_up = SUMMARY_OPENING in heard
        came = [
            ball
            for ball, number in _BALL.findall(heard)
            if self._catch_ball(int(ball), int(number), compacted=summed_up)
        ]
        tasks = {int(task) for task in _TASK.findall(heard)} - self._done
        calls: list[ReplyBlock] = [
            self._make_tool_use("TaskUpdate", taskId=str(task), status="completed") for task in sorted(tasks)
        ]
        self._done |= tasks
        if came:
            self._busy.add(me)
            await asyncio.sleep(HOLD_SECONDS)
        for ball in map(int, came):
            if self.is_stopping:
                self._hold_ball(ball)
                continue
            calls.append(self._throw_ball(ball, self._choose_receiver(me)))
            if self.thrown % _TASK_EVERY == 0:
                calls.append(
                    self._make_tool_use("TaskCreate", subject=f"after {self.thrown}", description="as always")
                )
            if self.thrown % _LEAD_EVERY == 0:
                calls.append(
                    self._make_tool_use("SendMessage", to="team-lead", message="All is well.", summary="well")
                )
        self._busy.discard(me)
        return calls or [TextBlock(text="Ready.")]

    def _choose_receiver(self, me: str) -> str:
        """Choose a member without a ball, if any: mail for a busy member waits for its turn to end."""
        if self.thrown > _WARM_UP_THROWS * len(self.names):
            self.is_warm.set()
        elif (next_one := self.names[self.thrown % len(self.names)]) != me:
            return next_one
        for _ in self.names:
            if (name := self._random.choice(self.names)) not in self._busy:
                return name
        return self._random.choice([name for name in self.names if name != me])

    def _throw_ball(self, ball: int, to: str) -> ToolUseBlock:
        self.thrown += 1
        number = self._last_throws[ball] + 1
        self._in_flight[ball] = number, time.monotonic()
        return self._make_tool_use(
            "SendMessage", to=to, message=f"<ball {ball} throw {number}>", summary="a ball"
        )

    def _catch_ball(self, ball: int, number: int, *, compacted: bool) -> bool:
        expected, since = self._in_flight.get(ball, (0, 0.0))
        if number != expected:
            self.duplicates += not compacted
            return False
        del self._in_flight[ball]
        self._last_throws[ball] = number
        self.latencies.append(time.monotonic() - since)
        self.caught += 1
        return True

    def _hold_ball(self, ball: int) -> None:
        self.held.add(ball)
        if len(self.held) == self.balls:
            self.all_held.set()

    def _make_tool_use(self, tool: str, /, **arguments: str) -> ToolUseBlock:
        self._calls += 1
        return ToolUseBlock(id=f"call-{self._calls}", name=tool, input=arguments)


def _get_new_text(messages: Sequence[Message]) -> str:
    """Return the text since the speaker's last reply."""
    texts: list[str] = []
    for message in reversed(messages):
        if message.role == "assistant":
            break
        for block in reversed(message.content):
            if isinstance(block, TextBlock):
                texts.append(block.text)
            else:
                texts.append(str(getattr(block, "content", "")))
    return "\n".join(reversed(texts))


def estimate_usage(request: ModelRequest) -> Usage:
    """Estimate what a provider would count: most of it are the tools."""
    size = sum(
        len(block.text) for m in request.messages for block in m.content if isinstance(block, TextBlock)
    )
    return Usage(input_tokens=_TOOL_TOKENS + len(request.messages) * 50 + size // 4, output_tokens=10)


class MailWorkloadModel:
    """The workload as a model in this process."""

    card = ModelCard(
        id="instant", provider="load", price=TokenPrice(input=3.0, output=15.0), window=WINDOW, max_output=500
    )

    def __init__(self, workload: MailWorkload) -> None:
        self._workload = workload

    async def generate_reply(self, request: ModelRequest, on_delta: DeltaListener) -> ModelReply:
        await on_delta(ModelAttemptStartedDelta())
        content = tuple(await self._workload.choose_reply(request))
        calls = any(isinstance(block, ToolUseBlock) for block in content)
        return ModelReply(
            message=Message(role="assistant", content=content),
            usage=estimate_usage(request),
            stop_reason="tool_use" if calls else "end_turn",
            model="instant",
            id="m",
        )

    async def aclose(self) -> None: ...
