"""A session: the lead agent and everything it owns, from the first prompt to the last clean-up."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

from msgspec import structs

from shoal.agent import compaction
from shoal.agent.forking import ASIDE, NOTHING, SUGGEST, run_forked_agent
from shoal.agent.loop import Ended
from shoal.app.options import Options
from shoal.app.session import delegating, notifying, telemetry, tidying
from shoal.app.session.commanding import Invocation
from shoal.app.session.forming import run_to_form
from shoal.app.session.stopped import Stopped
from shoal.app.session.taking_over import take_over
from shoal.app.session.turn import Turn
from shoal.app.session.voice import Voice
from shoal.app.session.worked_in import WorkedIn
from shoal.core.agents import Glimpse, Reached
from shoal.core.arrivals import Item
from shoal.core.decisions import Mode
from shoal.core.errors import ModelError, StoreError
from shoal.core.events import (
    PREVIEW,
    Finished,
    ItemMode,
    ModeChanged,
    Notified,
    Queued,
    SessionEnded,
    SessionStarted,
    Speaker,
    TurnEnded,
    TurnStarted,
    Withdrawn,
)
from shoal.core.groups import leave, outlive_cancel, until_one
from shoal.core.identity import assume
from shoal.core.ids import LEAD, AgentId, SessionId
from shoal.core.messages import Message, user
from shoal.core.wording import one_line
from shoal.runs.channel import Channel
from shoal.runs.roll import LEAD_NAMES
from shoal.wire.notices import message_from

if TYPE_CHECKING:
    from shoal.agent.agent import Agent
    from shoal.app.basis.undo import TurnTaken
    from shoal.workspaces.checkpoints import UndoReport

GATHERED_WITHIN = 0.05
"""Maximum seconds between two arrivals that share one turn."""
GATHERED_IN_ALL = 0.2
SESSION_ENDED = "the session ended"
STOPPED_BY_PERSON = "it was stopped by the person"
INTERRUPTED_BY_PERSON = "[The person interrupted this turn.]"


class Session(Voice):
    """A session, opened with `async with`; leaving the block ends everything it started."""

    def __init__(self, options: Options) -> None:
        super().__init__()
        self._options = options
        self._exit = AsyncExitStack()
        self._running: asyncio.Task[None] | None = None
        self._interrupted = self._saying_end = False
        self._worked_in = WorkedIn()
        self.turn = 0
        self.stopping = asyncio.Event()
        """Set when a program asked the run to end; the surface ends it."""
        self.cut_short: tuple[Glimpse, ...] = ()
        """Agents that were working when the deadline passed."""
        self.expects_people = options.attended
        """True if a person or a driving program may still send input."""
        self.notes: list[str] = []
        """Notes for the person about the start of the session."""

    @property
    def id(self) -> SessionId:
        return self.agent.identity.session

    @property
    def agent(self) -> Agent:
        return self.parts.agent

    @property
    def busy(self) -> bool:
        return self._running is not None

    async def __aenter__(self) -> Session:
        from shoal.app.session.build import build

        try:
            self.parts = await build(self._options, self, self._exit)
            telemetry.attach(self, self._exit, trace=self._options.trace)
            self._ids = self.agent.ids.branch()
            self._tasks = await asyncio.TaskGroup().__aenter__()
            self._exit.push_async_exit(self._end_tasks)
            await self._come_up()
            if self._options.link is None:
                notifying.attach(self, self._tasks)
                self.parts.servers.start()
                if self._options.persist:
                    tidying.attach(self, self._tasks, self._exit)
        except BaseException:
            await self._exit.aclose()
            raise
        return self

    async def __aexit__(self, *exc: Any) -> None:
        try:
            await self.interrupt()
            await self.parts.teams.close()
            await self.parts.crew.stop_all(SESSION_ENDED)
            await self.parts.shells.stop_all(SESSION_ENDED)
            await self.parts.hooks.runner.end(SESSION_ENDED)
            await self.parts.occasions.end()
            if self._options.link is None:
                await self.tell(SessionEnded(agent=self.agent.identity.agent))
        finally:
            await self._exit.__aexit__(*exc)

    async def _end_tasks(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        """Leave the task group and unwrap a single exception, which callers expect as it was raised."""
        try:
            await leave(self._tasks, kind, error, trace)
        except BaseExceptionGroup as group:
            if len(group.exceptions) > 1:
                raise
            raise group.exceptions[0] from None

    def run(self, prompt: str | Message | Invocation | None) -> Turn:
        """Start a turn and return its events. Without a prompt it handles the queued items."""
        self._need_rest()
        message = user(prompt) if isinstance(prompt, str) else prompt
        channel = self._channel = Channel()
        task = self._running = self._tasks.create_task(self._take_turn(message, channel))
        return Turn(channel, task, self.interrupt)

    def _need_rest(self) -> None:
        if self._running is not None:
            raise RuntimeError("a turn is running: wait for it, steer it or interrupt it")

    async def next_turn(self, *, wait_for_people: bool = False) -> Turn | None:
        """Return the next turn triggered by a queued item, waiting while agents and hooks work; None if none.

        At the session's deadline working agents are stopped and listed in `interrupted_agents`. With
        `wait_for_input` the wait continues after the agents end; in assistant mode it never ends.
        """
        crew, queue, stays = self.parts.crew, self.parts.queue, self.parts.assistant
        self.expects_people = self.expects_people or wait_for_people
        if wait_for_people and not stays and not self._agents_work:
            # No agent is working that the deadline could cut off.
            await queue.arrival(LEAD)
        try:
            async with self.agent.clock.deadline(self._time_left()):
                if not queue.size(LEAD):
                    idle = () if stays and wait_for_people else (self._nothing_to_come(),)
                    await until_one(self._tasks, *idle, queue.arrival(LEAD))
                await self._gather()
        except TimeoutError:
            ended = await self.parts.teams.close()
            self.cut_short = (*ended, *await crew.stop_all("the deadline has passed"))
            return None
        return self.run(None) if queue.size(LEAD) else None

    @property
    def _agents_work(self) -> bool:
        return self.parts.crew.working or self.parts.teams.working

    async def _nothing_to_come(self) -> None:
        background = self.parts.hooks.runner.background
        while True:
            await self.agents_idle()
            await background.quiet()
            if not self._agents_work:
                return

    @property
    def may_be_woken(self) -> bool:
        """True if external input may start a turn: it must not keep a finished run alive."""
        return self.expects_people or self.parts.assistant or self._agents_work

    async def _gather(self) -> None:
        """Wait briefly so that agents that end together are reported in one turn."""
        queue, clock = self.parts.queue, self.agent.clock
        last, known = clock.monotonic() + GATHERED_IN_ALL, 0
        while self._agents_work and queue.size(LEAD) > known and clock.monotonic() < last:
            known = queue.size(LEAD)
            await until_one(self._tasks, self.agents_idle(), clock.sleep(GATHERED_WITHIN))

    def steer(self, said: str | Message) -> None:
        """Send a message to the working lead; it receives it at the next tool-round boundary."""
        self.queue_up(user(said) if isinstance(said, str) else said, by="person")

    def relay(self, sender: str, text: str, summary: str) -> None:
        """Queue a message from an agent of another session; it wakes the lead like its own agents do."""
        self.queue_up(user(message_from(sender, text, summary=summary)), by="agent")

    def queue_up(
        self,
        message: Message,
        *,
        by: Speaker,
        mode: ItemMode = "prompt",
        identity: str = "",
        wakes: bool = True,
    ) -> str:
        """Journal and queue a message for the lead; return its item id."""
        item = Item(
            id=identity or self._ids.short(), to=LEAD, content=message.content, by=by, mode=mode, wakes=wakes
        )
        self.emit(Queued(agent=LEAD, item=item.id, by=by, text=message.text, mode=mode, quiet=not wakes))
        self.parts.queue.put(item)
        return item.id

    def unheard(self) -> tuple[Message, ...]:
        """Take back prompts that came too late for the lead; the caller owns them now."""
        said = self.parts.queue.take_prompts(LEAD)
        for item in said:
            self.emit(Withdrawn(agent=LEAD, item=item.id))
        return tuple(Message(role="user", content=item.content) for item in said)

    def entered(self, item: Item) -> None:
        """Handle an item that has entered an agent's conversation."""
        if item.mode == "task-notification":
            self.emit(Notified(agent=item.to, completion=item.id))
        self.parts.hooks.entered(item)
        self.parts.teams.entered(item)
        if self.parts.servers.channels is not None:
            self.parts.servers.channels.entered(item)

    async def interrupt(self) -> bool:
        """End the running turn but not the session; False if none is running."""
        task, channel = self._running, self._channel
        if task is None or channel is None or task is asyncio.current_task():
            return False
        # A task that is cancelled before its first step never runs, and would never report its end.
        await asyncio.sleep(0)
        if task.done():
            return False
        channel.widen()
        if not self._saying_end:
            self._interrupted = True
            task.cancel()
        await asyncio.wait([task])
        return True

    async def compact(self, wish: str = "") -> None:
        """Replace the conversation by a summary of itself."""
        self._need_rest()
        await compaction.compact(self.agent, "manual", wish=wish)

    async def ask_aside(self, question: str) -> str:
        """Return the lead's answer to a question that never enters its conversation, even while it works."""
        return await run_forked_agent(self.agent, f"{ASIDE}\n{question}")

    async def suggest(self) -> str:
        """Suggest the person's next prompt in one line; empty if there is no suggestion."""
        if not self.agent.conversation.messages:
            return ""
        words = one_line(await run_forked_agent(self.agent, SUGGEST)).strip()
        return "" if words.strip(".") == NOTHING else words

    async def set_model(self, name: str | None) -> None:
        """Use another model from the next request on; None is the model that the session started with."""
        new = await self.parts.choose(name or self._options.model)
        self.agent.purse.admit(new.card)
        self.agent.model = new

    def set_mode(self, mode: Mode) -> None:
        """Set the permission mode. Raises `SettingsError` if skipping permissions is not enabled."""
        permissions = self.parts.permissions
        permissions.set_mode(mode, before=self._worked_in.before_plan(permissions.mode, self.agent.replies))
        self.emit(ModeChanged(agent=LEAD, mode=mode))

    def delegate(self, *, on: bool) -> None:
        """Restrict the lead to delegation, or restore all its tools, from its next call on."""
        delegating.delegate(self, on=on)

    def turns(self) -> tuple[TurnTaken, ...]:
        """Return the turns that can be undone, oldest first; none if nothing is stored."""
        return () if self.parts.past is None else self.parts.past.turns()

    async def undo(self, turn: int | None = None, *, conversation: bool = False) -> UndoReport:
        """Restore files, optionally the conversation, to before a turn (default: the last with changes)."""
        from shoal.app.session.adjusting import undo_turn

        if conversation:
            self._need_rest()
        return await undo_turn(self, turn, conversation=conversation)

    def move_to_background(self, agent: str | None = None) -> tuple[AgentId, ...]:
        """Move an agent, or all, to the background; the same run continues. Return the moved agents."""
        return self.parts.crew.move_to_background(None if agent is None else AgentId(agent))

    async def stop_task(self, task: str) -> str:
        """Stop an agent, by id or name, or a shell; return its description. Raises `AgentRefused`."""
        shell = self.parts.shells.find(task)
        if shell is not None and shell.status == "running":
            await shell.stop(STOPPED_BY_PERSON)
            return shell.command
        if await self.parts.teams.end(task, STOPPED_BY_PERSON):
            return task
        return (await self.parts.crew.end(task, STOPPED_BY_PERSON)).description

    async def stop_agents(self) -> tuple[Glimpse, ...]:
        """Stop every agent except the lead; return those that were working."""
        return await self.parts.crew.stop_all(STOPPED_BY_PERSON)

    async def stop_all(self) -> Stopped:
        """Stop every agent except the lead and every background command; the lead continues."""
        agents = await self.stop_agents()
        shells = await self.parts.shells.stop_all(STOPPED_BY_PERSON)
        return Stopped(agents=agents, commands=tuple(shell.facts for shell in shells))

    async def send(self, to: str, text: str) -> Reached:
        """Send a person's text to any agent. The lead receives it as steering, or in a new turn."""
        if to in LEAD_NAMES:
            self.steer(text)
            return Reached(to=LEAD, name="lead", how="queued")
        return await self.parts.teams.say(to, text) or await self.parts.crew.say(to, text)

    @property
    def any_working(self) -> bool:
        """True if an agent other than the lead is working."""
        crew, teams = self.parts.crew, self.parts.teams
        return teams.working or any(run.completion is None for run in crew.at_work())

    @property
    def any_alive(self) -> bool:
        """True if an agent other than the lead works, is idle in a team, or is not cleaned up yet."""
        return self.parts.crew.working or bool(self.parts.teams.members())

    async def agents_idle(self) -> None:
        """Wait until no agent other than the lead works. An agent that awaits this itself deadlocks."""
        while True:
            await self.parts.crew.quiet()
            await self.parts.teams.quiet()
            if not self._agents_work:
                return

    async def _come_up(self) -> None:
        parts = self.parts
        parts.permissions.answers.heard = parts.teams.permit
        self.turn = parts.turns_before
        if self._options.link is not None:
            # The run belongs to the lead, which has already started it.
            return
        if parts.interrupted is not None:
            self.agent.conversation.add(parts.interrupted, meta=True)
        parts.desk.withdraw_left_over()
        self._exit.callback(parts.desk.late.close)
        self.notes.extend(parts.notes)
        await self.tell(
            SessionStarted(
                agent=self.agent.identity.agent,
                session=self.id,
                cwd=str(parts.workspace.root),
                model=self.agent.model.card.id,
                mode=parts.permissions.mode,
                tools=tuple(self.agent.tools),
                resumed=bool(parts.turns_before),
                version=parts.version,
                budget_usd=self.agent.purse.tree.limits.max_usd,
                budget_tokens=self.agent.purse.tree.limits.max_tokens,
                model_named=self._options.model if isinstance(self._options.model, str) else "",
            )
        )
        parts.occasions.begin(resumed=bool(parts.turns_before))
        if parts.left_over is not None:
            await take_over(self, parts.left_over)

    async def _take_turn(self, prompt: Message | Invocation | None, channel: Channel) -> None:
        agent = self.agent
        purse = agent.purse.tree
        if prompt is not None:
            self.parts.hooks.prompted(LEAD)
        assume(agent.identity, agent.surroundings.workspace)
        self.turn += 1
        since, api_before, usage_before = agent.clock.monotonic(), agent.api_seconds, purse.usage
        replies_before = agent.replies
        error: Exception | None = None
        try:
            ended, error = await self._guarded(prompt)
            # From here on it cannot be interrupted: it only waits for its reader.
            self._saying_end = True
            self.parts.crew.unanswered(LEAD, ended.cut)
            # An interrupted turn cannot report this itself.
            ended = structs.replace(ended, requests=agent.replies - replies_before)
            milliseconds = round((agent.clock.monotonic() - since) * 1000)
            await self._record_end(ended, milliseconds)
            finished = Finished(
                agent=agent.identity.agent,
                reason=ended.reason,
                limit=ended.limit,
                text=ended.text,
                detail=ended.detail,
                requests=ended.requests,
                usage=purse.usage - usage_before,
                cost_usd=purse.usd if purse.priced else None,
                duration_ms=milliseconds,
                duration_api_ms=round((agent.api_seconds - api_before) * 1000),
                output=None if self.parts.form is None else self.parts.form.answer,
                error=error,
            )
            self._show(finished)
            await channel.put(finished)
        finally:
            self._running = None
            self._interrupted = self._saying_end = False
            channel.close()

    async def _guarded(self, prompt: Message | Invocation | None) -> tuple[Ended, Exception | None]:
        """Run a turn; expected ends are values, anything else is a bug and is raised."""
        try:
            self.parts.workspace.begin_turn(self.turn)
            await self.tell(
                TurnStarted(
                    agent=self.agent.identity.agent,
                    turn=self.turn,
                    prompt="" if prompt is None else prompt.text[:PREVIEW],
                    after=self.agent.conversation.last,
                )
            )
            # A turn that ended on a full disk could not close its calls.
            self.parts.crew.unanswered(LEAD, self.agent.conversation.interrupt())
            async with self.agent.clock.deadline(self._time_left()):
                await self.parts.occasions.enter()
                await self.parts.servers.ready()
                return await run_to_form(self, prompt), None
        except asyncio.CancelledError:
            if not self._interrupted:
                raise
            outlive_cancel()
            return self._stopped(Ended(reason="interrupted", detail="interrupted by the person")), None
        except TimeoutError:
            limit = self._options.deadline or 0
            return self._stopped(
                Ended(reason="deadline", detail=f"the deadline of {limit:g} s has passed")
            ), None
        except ModelError as error:
            # A provider may echo secrets of the request.
            error.args = (self.parts.settings.secrets.redacted(str(error)),)
            return self._stopped(Ended(reason="model_error", detail=str(error))), error
        except StoreError as error:
            return Ended(reason="store_error", detail=str(error)), error

    def _stopped(self, ended: Ended) -> Ended:
        """Give every open call a result, so that the conversation can continue."""
        try:
            self.parts.crew.unanswered(LEAD, self.agent.conversation.interrupt())
            if ended.reason == "interrupted":
                self.agent.conversation.add(user(INTERRUPTED_BY_PERSON), meta=True)
        except StoreError as error:
            # A resume closes the open calls as well.
            return Ended(reason="store_error", detail=f"{ended.detail}; {error}")
        return ended

    @property
    def is_late(self) -> bool:
        """True if the deadline has passed."""
        return self._time_left() <= 0

    def _time_left(self) -> float:
        if self._options.deadline is None:
            return float("inf")
        return self.parts.started + self._options.deadline - self.agent.clock.monotonic()

    async def _record_end(self, ended: Ended, milliseconds: int) -> None:
        event = TurnEnded(
            agent=self.agent.identity.agent,
            turn=self.turn,
            reason=ended.reason,
            requests=ended.requests,
            detail=ended.detail,
            duration_ms=milliseconds,
        )
        try:
            await self.tell(event)
        except StoreError:
            # The journal is what failed: the caller still gets its `Finished` event.
            if ended.reason != "store_error":
                raise
