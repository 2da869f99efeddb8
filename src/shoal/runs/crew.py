"""Agent supervisor: runs all sub-agents of a session, from the request to the notification of the end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import TypeAlias

from msgspec.structs import replace

from shoal.agent.agent import Agent
from shoal.agent.forking import FORK, PROGRESS, run_forked_agent
from shoal.core.agents import Completion, Glimpse, Launched, Order, Reached
from shoal.core.arrivals import Item
from shoal.core.budget import Purse
from shoal.core.caps import Refusal, Started
from shoal.core.clock import Clock
from shoal.core.errors import AgentRefused
from shoal.core.events import AgentEnded, AgentMoved, Journaled, Notified, WorkKept
from shoal.core.groups import leave
from shoal.core.identity import Identity
from shoal.core.ids import LEAD, AgentId, Ids
from shoal.core.messages import Message, ToolResult
from shoal.core.tools import Site
from shoal.runs.endings import Ending, joined, notification, unheard
from shoal.runs.greeting import greeted
from shoal.runs.habits import Habits
from shoal.runs.outfit import Newcomer, Outfit, Outfitter
from shoal.runs.preview import Preview
from shoal.runs.queue import Queue
from shoal.runs.reaching import Reaching
from shoal.runs.reports import kept
from shoal.runs.roll import Roll
from shoal.runs.run import Run
from shoal.runs.shift import Shift

Emit: TypeAlias = Callable[[Journaled], None]
_SESSION_ENDED = "the session ended"
_MODEL_UNHEEDED = "The model {} that was asked for is left out of account: in this mode a call names none."
_NOT_BESIDE_TEAMMATES = (
    "The agent was not started: a teammate that runs in its lead's process has no agents in the background. "
    "Start one that you wait for."
)


class AgentCrew:
    """Context manager for the length of a session; leaving it stops every agent except the lead."""

    def __init__(
        self,
        *,
        outfitter: Outfitter,
        queue: Queue,
        habits: Habits,
        purse: Purse,
        clock: Clock,
        ids: Ids,
        emit: Emit,
    ) -> None:
        self.habits = habits
        self._outfitter = outfitter
        self._queue = queue
        self._purse = purse
        self._clock = clock
        self._ids = ids
        self._emit = emit
        self._tasks = asyncio.TaskGroup()
        self._roll = Roll()
        self._preview = Preview(habits.preview, purse)
        self._reaching = Reaching(roll=self._roll, queue=queue, ids=ids, emit=emit, resume=self._resume)
        self._lead: Agent | None = None
        self.teammate: Callable[[AgentId], Agent | None] = lambda _: None
        """Finds an agent of the team; teammates are not supervised here but may start agents."""
        self._quiet: asyncio.Event | None = None

    async def __aenter__(self) -> AgentCrew:
        await self._tasks.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self.stop_all(_SESSION_ENDED)
        finally:
            await leave(self._tasks, kind, error, trace)

    def led_by(self, lead: Agent) -> None:
        self._lead = lead

    def lead(self) -> Agent:
        assert self._lead is not None
        return self._lead

    async def start(self, order: Order, site: Site) -> Completion | Launched:
        parent = self.agent(site.agent.agent)
        _refuse_teammates_of(parent.identity, order)
        await self._preview.allow(parent, site)
        agent = self._ids.agent()
        forks = order.kind is None and self.habits.forks
        order = replace(order, kind=FORK if forks else order.kind or self.habits.usual)
        counted = await self._counted_in(order.kind or "", parent.identity.depth + 1)
        name = self._roll.take_name(order.name) if order.name else ""
        unheeded = "" if self.habits.model_by_call else order.model or ""
        order = replace(order, name=name or None, model=None if unheeded else order.model)
        try:
            newcomer = self._newcomer(agent, parent, site.call_id)
            outfit = await (self._outfitter.fork if forks else self._outfitter.fresh)(order, newcomer)
            outfit = await self._placed(outfit, order, parent.identity)
            outfit = _noted(outfit, _MODEL_UNHEEDED.format(unheeded)) if unheeded else outfit
            try:
                outfit = await greeted(outfit)
                run = self._begin(outfit, newcomer, counted)
            except BaseException:
                await outfit.finish()
                raise
        except BaseException:
            self._roll.free_name(name)
            self._purse.ended(counted, begun=False)
            raise
        if run.background:
            return self._launched(run, order.prompt, outfit)
        newcomer.witness.wait_for(site.progress)
        return await self._waited_for(run, order, outfit)

    async def send(self, to: str, text: str, summary: str, site: Site) -> tuple[Reached, ...]:
        sender = self.agent(site.agent.agent)
        return await self._reaching.send(to, text, summary=summary, sender=sender, call=site.call_id)

    async def output(self, agent: str, *, seconds: float, site: Site) -> Glimpse:
        run, me = self._roll.find(agent), site.agent.agent
        if seconds > 0 and run.completion is None:
            if run.id == me:
                raise AgentRefused("You cannot wait for yourself: end with your report.")
            if run.id in self._roll.above(me):
                raise AgentRefused(f"Agent {agent} waits for you, so you cannot wait for it.")
        if seconds > 0:
            with suppress(TimeoutError):
                async with self._clock.deadline(seconds):
                    await run.ended()
        if run.completion is not None and seconds > 0 and run.report_to == me:
            self._taken(run, run.completion, site)
        return run.glimpse(self._clock.monotonic())

    async def stop(self, agent: str, site: Site) -> Glimpse:
        if self._roll.find(agent).id == site.agent.agent:
            raise AgentRefused("You cannot stop yourself: end with your report.")
        return await self.end(agent, f"it was stopped by {site.agent.name}")

    async def end(self, agent: str, why: str) -> Glimpse:
        """Stop an agent. Raises `AgentRequestRefused` if it does not exist or is not running."""
        run = self._roll.find(agent)
        if run.completion is not None:
            raise AgentRefused(f"Agent {agent} is not running: it {_how_ended(run)}.")
        await self._stop(run, why)
        return run.glimpse(self._clock.monotonic())

    async def say(self, to: str, text: str) -> Reached:
        """Send a person's message; an ended agent is resumed with it and reports to the lead."""
        assert self._lead is not None
        return await self._reaching.say(to, text, self._lead)

    async def stop_those_of(self, parent: AgentId, why: str) -> None:
        for run in self._roll.started_by(parent):
            await self._stop(run, why)

    async def stop_all(self, why: str) -> tuple[Glimpse, ...]:
        """Stop all running agents and return them."""
        running = self._roll.at_work()
        async with asyncio.TaskGroup() as stopping:
            for run in running:
                stopping.create_task(self._stop(run, why))
        return tuple(run.glimpse(self._clock.monotonic()) for run in running)

    def agents(self) -> tuple[Glimpse, ...]:
        return self._roll.glimpses(self._clock.monotonic())

    async def summary_of(self, agent: str) -> str:
        """Ask a running agent for its progress; the question does not enter its conversation."""
        run = self._roll.find(agent)
        if run.agent is None:
            raise AgentRefused(f"Agent {agent} is not running: it {_how_ended(run)}.")
        if not run.agent.conversation.messages:
            return run.facts.description
        return await run_forked_agent(run.agent, PROGRESS)

    def at_work(self) -> tuple[Run, ...]:
        return self._roll.at_work()

    @property
    def working(self) -> bool:
        """True if any agent is running or its end is not reported yet."""
        return self._roll.any_at_work

    async def quiet(self) -> None:
        """Wait until no agent is running."""
        while self.working:
            self._quiet = self._quiet or asyncio.Event()
            await self._quiet.wait()

    def move_to_background(self, agent: AgentId | None = None) -> tuple[AgentId, ...]:
        """Stop waiting for an agent (or for all); the run continues. Return those that moved."""
        if not self.habits.background:
            return ()
        waited_for = [run for run in self._roll.at_work() if not run.background and agent in (None, run.id)]
        for run in waited_for:
            self._move(run)
        return tuple(run.id for run in waited_for)

    def recover(self, pending: dict[AgentId, list[Item]], ended: tuple[Completion, ...]) -> None:
        """Restore the state of an earlier process of this session: pending items and ended agents."""
        self._reaching.recover(pending)
        self._roll.remember(ended)

    async def _placed(self, outfit: Outfit, order: Order, parent: Identity) -> Outfit:
        """Decide if the agent runs in the background or is waited for."""
        background = self._wants(order, outfit, parent)
        if background and parent.is_in_process:
            await outfit.finish()
            raise AgentRefused(_NOT_BESIDE_TEAMMATES)
        return replace(outfit, started=replace(outfit.started, background=background))

    def _wants(self, order: Order, outfit: Outfit, parent: Identity) -> bool:
        """Return True if it runs in the background; agents of an in-process teammate do not by default."""
        always = self.habits.always_background and not parent.is_in_process
        return (order.background or outfit.started.background or always) and self.habits.background

    async def _counted_in(self, kind: str, depth: int, *, again: bool = False) -> Started:
        match await self._purse.count_in(kind, depth, again=again):
            case Refusal(sentence=sentence):
                raise AgentRefused(f"The agent was not started: {sentence}.")
            case counted:
                return counted

    def _newcomer(self, agent: AgentId, parent: Agent, call: str) -> Newcomer:
        return Newcomer(agent=agent, parent=parent, call=call, witness=self._outfitter.witness(agent))

    def _begin(self, outfit: Outfit, newcomer: Newcomer, counted: Started) -> Run:
        run = Run(outfit.started, newcomer.witness, outfit.agent, since=self._clock.monotonic())
        self._emit(outfit.started)
        self._roll.enter(run)
        run.task = self._tasks.create_task(self._work(run, outfit, counted))
        return run

    async def _work(self, run: Run, outfit: Outfit, counted: Started) -> None:
        shift = Shift(self._queue, lambda: self._is_to_hear(run.id))
        witness = run.witness
        assert witness is not None
        try:
            end = await shift.work(run, outfit)
            # It can no longer be stopped from here on: it has ended and only has to report.
            run.task = None
            self._purse.ended(counted)
            witness.doing = ""
            if end.status != "completed" and witness.used_shell:
                witness.committed(await outfit.commits())
            self.unanswered(run.id, shift.cut)
            run.completion = self._ended(run, outfit, end, shift)
            run.change()
            await self._release(run, outfit, run.completion)
        finally:
            self._purse.ended(counted)
            self._over(run)

    def _is_to_hear(self, agent: AgentId) -> bool:
        """Return True if it still waits for the end of a child that it has not seen itself."""
        return any(not run.taken_by for run in self._roll.started_by(agent))

    def _ended(self, run: Run, outfit: Outfit, end: Ending, shift: Shift) -> Completion:
        """Build and journal the result; an end that cannot be stored is still reported to the waiters."""
        try:
            completion = self._completion(run, outfit, end, shift)
        except Exception as error:  # noqa: BLE001 - boundary around ends: a failure must not affect other agents
            lost = Ending(status="failed", text="", detail=joined(end.detail, str(error)))
            completion = self._completion(run, outfit, lost, shift)
        try:
            self._emit(AgentEnded(agent=run.id, completion=completion))
        except Exception as error:  # noqa: BLE001 - as above
            return replace(completion, detail=joined(completion.detail, str(error)))
        return completion

    async def _release(self, run: Run, outfit: Outfit, completion: Completion) -> None:
        """Run the slow clean-up after the end is known; send the notification last."""
        for child in self._roll.started_by(run.id):
            await self._stop(child, "the agent that started it ended")
        try:
            work = await outfit.finish()
            if work is not None:
                completion = replace(completion, worktree=work)
                self._emit(WorkKept(agent=run.id, work=work))
        except Exception as error:  # noqa: BLE001 - boundary around clean-up: a failure must not affect other agents
            unclean = f"what it was given could not all be given back: {error}"
            completion = replace(completion, detail=joined(completion.detail, unclean))
        run.completion = completion
        if run.background and not run.taken_by:
            self._queue.put(notification(completion))

    def _over(self, run: Run) -> None:
        if run.witness is not None:
            run.witness.flush()
        run.agent = run.witness = run.task = None
        run.live = False
        self._roll.leave(run)
        run.change()
        if self._quiet is not None:
            self._quiet.set()
            self._quiet = None

    def _completion(self, run: Run, outfit: Outfit, end: Ending, shift: Shift) -> Completion:
        witness = run.witness
        assert witness is not None
        identity = self._ids.short()
        results = outfit.agent.surroundings.results
        report = kept(end.text, run.id, identity, results, tokens=self.habits.report_tokens)
        detail = joined(end.detail, unheard(self._queue.size(run.id)))
        done = end.status == "completed"
        last = f"\n{end.text}\n" if done else f"\n[{end.status}: {end.detail}]\n"
        return Completion(
            id=identity,
            agent=run.id,
            status=end.status,
            kind=run.facts.kind,
            name=run.facts.name,
            description=run.facts.description,
            report_to=run.report_to,
            call=run.facts.call,
            background=run.background,
            text=report.shown,
            detail=detail,
            size=report.size,
            digest=report.digest,
            result="" if report.whole is None else str(report.whole),
            output=witness.conclude(last, looked_for=run.background or not done),
            usage=witness.usage,
            requests=witness.requests,
            duration_ms=round((self._clock.monotonic() - run.since) * 1000),
            evidence=witness.evidence(shift.acceptance),
            one_shot=outfit.one_shot,
        )

    async def _waited_for(self, run: Run, order: Order, outfit: Outfit) -> Completion | Launched:
        try:
            await self._left(run)
        except asyncio.CancelledError:
            await self._stop(run, "the turn that waited for it was interrupted")
            raise
        if run.background:
            return replace(self._launched(run, order.prompt, outfit), moved=True)
        assert run.completion is not None
        return run.completion

    async def _left(self, run: Run) -> None:
        patience = self.habits.auto_background if self.habits.background else 0
        if patience:
            try:
                async with self._clock.deadline(patience):
                    await run.left()
            except TimeoutError:
                self._move(run)
        # A run that ended just now is not moved: its retained work belongs to its result.
        await run.left()

    def _move(self, run: Run) -> None:
        if run.background or run.completion is not None:
            return
        run.background = True
        if run.witness is not None:
            run.witness.let_go()
        self._emit(AgentMoved(agent=run.id))
        run.change()

    def _launched(self, run: Run, prompt: str, outfit: Outfit) -> Launched:
        return Launched(
            agent=run.id,
            name=run.facts.name,
            description=run.facts.description,
            prompt=prompt,
            output=self._outfitter.output(run.id),
            resolved=outfit.resolved,
        )

    async def _stop(self, run: Run, why: str) -> None:
        """Stop a run; all its resources are released when this returns."""
        # A task that is cancelled before its first step never runs, and so would never report its end.
        await asyncio.sleep(0)
        if run.task is not None and not run.stopping:
            # Only once: a second cancellation would interrupt the clean-up of the first.
            run.stopping = why
            run.task.cancel()
        await run.over()

    async def _resume(self, agent: AgentId, parent: Agent, call: str, ready: Callable[[Outfit], None]) -> Run:
        if not self.habits.background:
            raise AgentRefused(
                f"Agent {agent} has ended. Resumed, it would run in the background, which is off here. "
                "Start another one."
            )
        newcomer = self._newcomer(agent, parent, call)
        outfit = await self._outfitter.again(newcomer)
        outfit = replace(outfit, started=replace(outfit.started, background=True))
        counted = None
        try:
            counted = await self._counted_in(outfit.started.kind, outfit.started.depth, again=True)
            ready(outfit)
            return self._begin(outfit, newcomer, counted)
        except BaseException:
            if counted is not None:
                self._purse.ended(counted, begun=False)
            await outfit.finish()
            raise

    def _taken(self, run: Run, completion: Completion, site: Site) -> None:
        """Withdraw or skip the notification, because a blocking poll saw the end.

        An agent with a worktree is still announced until it is closed: only then its retained work is known.
        """
        waits = self._queue.withdraw(run.report_to, completion.id)
        if run.background and (waits or (run.live and not run.taken_by and run.facts.isolation is None)):
            run.taken_by = site.call_id
            self._emit(Notified(agent=site.agent.agent, completion=completion.id, call=site.call_id))

    def unanswered(self, agent: AgentId, cut: Message | None) -> None:
        """Announce the ends that its calls would have reported; the argument holds their results."""
        calls = set() if cut is None else {b.tool_use_id for b in cut.content if isinstance(b, ToolResult)}
        for run in self._roll.ended_for(agent) if calls else ():
            done = run.completion
            waited_for = not run.background and run.facts.call in calls
            if done is not None and (run.taken_by in calls or (waited_for and done.status != "killed")):
                run.background, run.taken_by = True, ""
                self._queue.put(notification(done))

    def has_started(self, agent: AgentId) -> bool:
        return self._roll.get(agent) is not None

    def heir(self, agent: AgentId) -> AgentId:
        """Return who receives items for this agent: itself, or the nearest ancestor that has not ended."""
        while (run := self._roll.get(agent)) is not None:
            if run.task is not None and not run.stopping:
                return agent
            agent = run.report_to
        return agent if agent == LEAD or self.teammate(agent) is not None else LEAD

    def agent(self, agent: AgentId) -> Agent:
        """Return a running agent. Raises `AgentRequestRefused`."""
        run = self._roll.get(agent)
        found = self._lead if agent == LEAD else run.agent if run else self.teammate(agent)
        if found is None:
            raise AgentRefused(f"Agent {agent} has ended.")
        return found


def _noted(outfit: Outfit, note: str) -> Outfit:
    return replace(outfit, resolved=replace(outfit.resolved, notes=(*outfit.resolved.notes, note)))


def _refuse_teammates_of(teammate: Identity, order: Order) -> None:
    if teammate.is_teammate and order.name and (order.team or teammate.team):
        raise AgentRefused(
            "A teammate cannot start teammates: the roster of a team is flat. Leave `name` out to start an "
            "agent of your own, or ask the lead for a teammate."
        )


def _how_ended(run: Run) -> str:
    return "was stopped" if run.status == "killed" else run.status
