"""Client of a run in another process: reads its journal and socket, sends commands to its control socket."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import get_args

from shoal.app.outside.watching import Run, Sighting, began_in, watch
from shoal.app.picture.picture import Picture
from shoal.app.session.helm import FarHelm
from shoal.core.clock import Clock
from shoal.core.errors import ShoalError
from shoal.core.events import Event
from shoal.core.ids import LEAD, AgentId
from shoal.core.messages import Message
from shoal.core.permissions import Mode
from shoal.core.wording import count, dollars, one_line
from shoal.surfaces.terminal import slash
from shoal.surfaces.terminal.paint import DIM, RED, YELLOW
from shoal.surfaces.tui.completing import Proposal
from shoal.surfaces.tui.modes import ModeRound
from shoal.surfaces.tui.own import Line
from shoal.surfaces.tui.stage import Stage
from shoal.wire.control import Background, Command, Interrupt, Send, SetDelegate, SetModel, SetPermissionMode

_BREATH = 500
"""Events that are processed before other tasks run."""
_COMMANDS = {
    "/model": "ask another model: /model NAME",
    "/permissions": "another permission mode: /permissions MODE",
    "/delegate": "let the lead only give work out: /delegate on|off",
    "/cost": "what the run has spent",
    "/help": "this list",
    "/exit": "leave; the run goes on",
}


class FarSeat:
    def __init__(self, run: Run, clock: Clock, line: Line) -> None:
        self.run = run
        self.viewed: AgentId = LEAD
        self.takes_images = False
        self.status = 0
        self.ended = False
        """True if the run has ended."""
        self._lost = False
        cwd = began_in(run)
        self.root = Path(cwd or ".")
        self.stage = Stage(Picture(), FarHelm(run), clock, cwd)
        self._line = line
        self._clock = clock
        self._since = clock.now()
        """Start time; earlier events are in the transcripts."""
        self._waiting: deque[Sighting] = deque()
        self._left = asyncio.Event()
        self._modes = ModeRound()
        self.open = False
        self.stage.conversation(LEAD)

    async def go(self) -> int:
        """Run until the person leaves; return the exit status."""
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            watching = tasks.create_task(self._watch())
            self.open = True
            self.stage.stir()
            await self._left.wait()
            self.open = False
            watching.cancel()
        return self.status

    async def _watch(self) -> None:
        number = 0
        async for sighting in watch(self.run, self._clock):
            self._waiting.append(sighting)
            self.stage.stir()
            number += 1
            if number % _BREATH == 0:
                await asyncio.sleep(0)
        self.ended = True
        self._note(f"The run has ended. Go on with it: shoal --resume {self.run.session}", YELLOW)

    def catch_up(self) -> None:
        past = False
        while self._waiting:
            sighting = self._waiting.popleft()
            if isinstance(sighting.event, Event):
                self.stage.picture.hear(sighting.event, sighting.at)
                if sighting.at >= self._since:
                    self.stage.show(sighting.event)
                else:
                    past = True
        if self.ended and not self._lost:
            # No agent runs any more, and nobody receives an answer.
            self._lost = True
            self.stage.picture.lost()
        row = self.stage.picture.agent(LEAD)
        if past and row is not None and row.state in ("working", "waiting"):
            self.stage.conversation(LEAD).script.at_work()

    # Display

    @property
    def doing(self) -> str:
        row = self.stage.picture.agent(self.viewed)
        if row is None or self.ended or row.state not in ("working", "waiting"):
            return ""
        return f"{row.name} · {one_line(row.doing) or 'at work'}"

    @property
    def facts(self) -> Sequence[str]:
        return ["ended" if self.ended else "attached"]

    def commands(self) -> list[Proposal]:
        return [Proposal(name, about) for name, about in _COMMANDS.items()]

    def agents(self) -> list[Proposal]:
        rows = self.stage.picture.agents()
        return [Proposal(f"@{row.name}", one_line(row.task)) for row in rows if row.id != LEAD]

    # Input

    def say(self, message: Message) -> None:
        text = message.text.strip()
        if slash.is_command(text):
            self._command(text)
            return
        to, words = str(self.viewed), text
        if text.startswith("@"):
            name, _, rest = text[1:].partition(" ")
            known = self.stage.picture.agent_called(name.removesuffix(":"))
            if known is not None and rest.strip():
                to, words = str(known), rest.strip()
        # A message to another agent appears in that agent's conversation.
        awaited = to == self.viewed
        self.stage.conversation(self.viewed).script.typed(text, awaited=awaited)
        self._demand(Send(to=to, text=words), "")
        self.stage.stir()

    def _command(self, text: str) -> None:
        word, _, rest = text.partition(" ")
        rest = rest.strip()
        modes = {each.lower(): each for each in get_args(Mode)}
        match word:
            case "/exit":
                self.leave()
            case "/cost":
                costs = self.stage.picture.costs
                self._note(f"{dollars(costs.usd)} · {count(costs.tokens)} tokens")
            case "/model" if rest:
                self._demand(SetModel(model=rest), f"The model is {rest}.")
            case "/permissions" if rest.lower() in modes:
                mode = modes[rest.lower()]
                self._demand(SetPermissionMode(mode=mode), f"The mode is {mode}.")
            case "/delegate" if rest in ("on", "off"):
                self._demand(SetDelegate(on=rest == "on"), f"Delegate mode is {rest}.")
            case _:
                if word not in _COMMANDS:
                    self._note(f"{word} is for the terminal of the session itself. Here there are:", YELLOW)
                for name, about in _COMMANDS.items():
                    self._note(f"{name:<14} {about}")

    def view(self, agent: AgentId, name: str) -> None:
        self.viewed = agent
        self.stage.stir()

    def stop_turn(self) -> bool:
        row = self.stage.picture.agent(self.viewed)
        if self.ended or row is None or row.state not in ("working", "waiting"):
            return False
        self._demand(Interrupt(task_id="" if self.viewed == LEAD else self.viewed), "")
        return True

    def interrupt(self, line: str) -> None:
        if line:
            self._line.clear_line()
        else:
            self.leave()

    def to_background(self) -> bool:
        if not any(not each.background for each in self.stage.picture.standings.at_work()):
            return False
        self._demand(Background(), "")
        return True

    def next_mode(self) -> None:
        known: tuple[Mode, ...] = get_args(Mode)
        now: Mode = next((mode for mode in known if mode == self.stage.picture.run.mode), "default")
        self._demand(SetPermissionMode(mode=self._modes.after(now)), "")

    def leave(self, status: int = 0) -> None:
        self.status = status
        self._left.set()

    def _demand(self, command: Command, told: str) -> None:
        self._tasks.create_task(self._demanded(command, told))

    async def _demanded(self, command: Command, told: str) -> None:
        try:
            await self.stage.helm.demand(command)
        except ShoalError as error:
            self._note(f"✗ {one_line(str(error))}", RED)
        else:
            if told:
                self._note(told)

    def _note(self, text: str, style: str = DIM) -> None:
        self.stage.conversation(self.viewed).script.remark(text, style)
        self.stage.stir()
