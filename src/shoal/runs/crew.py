"""The crew: every agent that the agents of a session started, from the call for it to word of its end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from shoal.agent.agent import Agent
from shoal.agent.forking import FORK, PROGRESS, run_forked_agent
from shoal.core.agents import Completion, Glimpse, Launched, Order, Reached
from shoal.core.arrivals import Item
from shoal.core.budget import Purse
from shoal.core.caps import Refusal, Started
from shoal.core.clock import Clock
from shoal.core.errors import AgentRefused, StoreError
from shoal.core.events import AgentEnded, AgentMoved, Journaled, Notified, Queued, WorkKept
from shoal.core.identity import Identity
from shoal.core.ids import LEAD, AgentId, Ids
from shoal.core.messages import Text
from shoal.core.tools import Site
from shoal.runs.endings import Ending
from shoal.runs.outfit import Newcomer, Outfit, Outfitter
from shoal.runs.preview import Preview
from shoal.runs.queue import Queue
from shoal.runs.reports import kept
from shoal.runs.roll import Roll
from shoal.runs.run import Run
from shoal.runs.shift import Shift
from shoal.wire.notices import message_from, task_notification

Emit: TypeAlias = Callable[[Journaled], None]
_SESSION_ENDED = "the session ended"
_MODEL_UNHEEDED = "The model {} that was asked for is left out of account: in this mode a call names none."
_NOT_BESIDE_TEAMMATES = (
    "The agent was not started: a teammate that runs in its lead's process has no agents in the background. "
    "Start one that you wait for."
)


class Habits(Struct, frozen=True, kw_only=True):
    """How agents are run where nothing else is said."""

    background: bool = True
    """Whether agents may run in the background at all."""
    always_background: bool = False
    model_by_call: bool = True
    """Whether a call may name the model of the agent it starts."""
    forks: bool = False
    """Whether an agent that is not named is a fork of who asks for it."""
    auto_background: float = 120.0
    """Seconds after which one that is waited for is waited for no longer; 0 is never."""
    report_tokens: int = 1_000
    preview: int | None = None
    """Agents of one message beyond which a person is asked first; None is never."""
    usual: str = "general-purpose"
    """The agent that is started where none is named."""


class AgentCrew:
    """Entered for as long as the session lives; leaving it ends every agent, the lead excepted."""

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
        self._resuming: set[AgentId] = set()
        self._pending: dict[AgentId, list[Item]] = {}
        self._lead: Agent | None = None
        self.teammate: Callable[[AgentId], Agent | None] = lambda _: None
        """The agents of a team, which are no part of the crew but may start agents."""
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
            # The group must know of a cancellation; any other error passes through as it is, not in a group.
            if isinstance(error, asyncio.CancelledError):
                await self._tasks.__aexit__(kind, error, trace)
            else:
                await self._tasks.__aexit__(None, None, None)

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
        counted = self._counted_in(order.kind or "", parent.identity.depth + 1)
        name = self._roll.take_name(order.name, agent) if order.name else ""
        unheeded = "" if self.habits.model_by_call else order.model or ""
        order = replace(order, name=name or None, model=None if unheeded else order.model)
        try:
            newcomer = self._newcomer(agent, parent, site.call_id)
            outfit = await (self._outfitter.fork if forks else self._outfitter.fresh)(order, newcomer)
            outfit = await self._placed(outfit, order, parent.identity)
            outfit = _noted(outfit, _MODEL_UNHEEDED.format(unheeded)) if unheeded else outfit
            run = await self._begin(outfit, newcomer, counted)
        except BaseException:
            self._roll.free_name(name)
            self._purse.ended(counted, begun=False)
            raise
        if run.background:
            return self._launched(run, order.prompt, outfit)
        newcomer.witness.progress = site.progress
        return await self._waited_for(run, order, outfit)

    async def send(self, to: str, text: str, summary: str, site: Site) -> tuple[Reached, ...]:
        if to == "*":
            targets = [run.id for run in self._roll.at_work() if run.id != site.agent.agent]
            if not targets:
                raise AgentRefused("Nobody is at work who could be told. ListAgents shows who there is.")
            return tuple([await self._send(each, text, summary, site) for each in targets])
        return (await self._send(self._roll.meant(to), text, summary, site),)

    async def output(self, agent: str, *, seconds: float, site: Site) -> Glimpse:
        run = self._roll.find(agent)
        if seconds > 0 and run.completion is None:
            try:
                async with self._clock.deadline(seconds):
                    await run.ended()
            except TimeoutError:
                pass
        if run.completion is not None and seconds > 0 and run.report_to == site.agent.agent:
            self._taken(run, run.completion, site)
        return run.glimpse(self._clock.monotonic())

    async def stop(self, agent: str, site: Site) -> Glimpse:
        if self._roll.find(agent).id == site.agent.agent:
            raise AgentRefused("You cannot stop yourself: end with your report.")
        return await self.end(agent, f"it was stopped by {site.agent.name}")

    async def end(self, agent: str, why: str) -> Glimpse:
        """Raises `AgentRefused` where it is not there, or not at work."""
        run = self._roll.find(agent)
        if run.completion is not None:
            raise AgentRefused(f"Agent {agent} is not running: it {run.status}.")
        await self._stop(run, why)
        return run.glimpse(self._clock.monotonic())

    async def say(self, to: str, text: str) -> Reached:
        """A person's words for an agent; one that has ended is resumed with them, and reports to the lead."""
        assert self._lead is not None
        agent = self._roll.meant(to)
        item = Item(id=self._ids.short(), to=agent, content=(Text(text=text),), by="person")
        return await self._deliver(item, text, self._lead, "")

    async def stop_those_of(self, parent: AgentId, why: str) -> None:
        for run in self._roll.started_by(parent):
            await self._stop(run, why)

    async def stop_all(self, why: str) -> tuple[Glimpse, ...]:
        """Those that were at work, now ended."""
        running = self._roll.at_work()
        async with asyncio.TaskGroup() as stopping:
            for run in running:
                stopping.create_task(self._stop(run, why))
        return tuple(run.glimpse(self._clock.monotonic()) for run in running)

    def agents(self) -> tuple[Glimpse, ...]:
        return self._roll.glimpses(self._clock.monotonic())

    async def summary_of(self, agent: str) -> str:
        """What one at work says it is doing; its conversation never holds the question."""
        run = self._roll.find(agent)
        if run.agent is None:
            raise AgentRefused(f"Agent {agent} is not running: it {run.status}.")
        if not run.agent.conversation.messages:
            return run.facts.description
        return await run_forked_agent(run.agent, PROGRESS)

    def at_work(self) -> tuple[Run, ...]:
        return self._roll.at_work()

    @property
    def working(self) -> bool:
        """Whether any agent is at work, or its end is not told yet."""
        return self._roll.any_at_work

    async def quiet(self) -> None:
        """Until none is at work."""
        while self.working:
            self._quiet = self._quiet or asyncio.Event()
            await self._quiet.wait()

    def move_to_background(self, agent: AgentId | None = None) -> tuple[AgentId, ...]:
        """Let nobody wait for it (or for any) any longer; the same run goes on. Those that moved."""
        if not self.habits.background:
            return ()
        waited_for = [run for run in self._roll.at_work() if not run.background and agent in (None, run.id)]
        for run in waited_for:
            self._move(run)
        return tuple(run.id for run in waited_for)

    def recover(self, pending: dict[AgentId, list[Item]], ended: tuple[Completion, ...]) -> None:
        """Take over what an earlier process of this session left: what waits for whom, and who ended."""
        self._pending = pending
        for item in pending.pop(LEAD, []):
            self._queue.put(item)
        self._roll.remember(ended)

    async def _placed(self, outfit: Outfit, order: Order, parent: Identity) -> Outfit:
        """In the background, or waited for."""
        background = self._wants(order, outfit)
        if background and parent.is_in_process:
            await outfit.finish()
            raise AgentRefused(_NOT_BESIDE_TEAMMATES)
        return replace(outfit, started=replace(outfit.started, background=background))

    def _wants(self, order: Order, outfit: Outfit) -> bool:
        """Whether it is to run in the background."""
        wished = order.background or outfit.started.background or self.habits.always_background
        return wished and self.habits.background

    def _counted_in(self, kind: str, depth: int, *, again: bool = False) -> Started:
        match self._purse.start(kind, depth, again=again):
            case Refusal(sentence=sentence):
                raise AgentRefused(f"The agent was not started: {sentence}.")
            case counted:
                return counted

    def _newcomer(self, agent: AgentId, parent: Agent, call: str) -> Newcomer:
        return Newcomer(agent=agent, parent=parent, call=call, witness=self._outfitter.witness(agent))

    async def _begin(self, outfit: Outfit, newcomer: Newcomer, counted: Started) -> Run:
        run = Run(outfit.started, newcomer.witness, outfit.agent, since=self._clock.monotonic())
        try:
            self._emit(outfit.started)
        except StoreError:
            await outfit.finish()
            raise
        self._roll.enter(run)
        run.task = self._tasks.create_task(self._work(run, outfit, counted))
        return run

    async def _work(self, run: Run, outfit: Outfit, counted: Started) -> None:
        shift = Shift(self._queue, lambda: bool(self._roll.started_by(run.id)))
        witness = run.witness
        assert witness is not None
        try:
            end = await shift.work(run, outfit)
            # From here on it cannot be stopped any more: it has ended, and only has to say so.
            run.task = None
            self._purse.ended(counted)
            witness.doing = ""
            if witness.used_shell:
                witness.committed(await outfit.commits())
            run.completion = self._recorded(run, outfit, end, shift)
            run.change()
            await self._release(run, outfit, run.completion)
        finally:
            self._purse.ended(counted)
            self._over(run)

    async def _release(self, run: Run, outfit: Outfit, completion: Completion) -> None:
        """What may be slow comes after the end is known; word of it comes last."""
        for child in self._roll.started_by(run.id):
            await self._stop(child, "the agent that started it ended")
        work = await outfit.finish()
        if work is not None:
            run.completion = completion = replace(completion, worktree=work)
            # The repository knows of it too; whoever waits must hear of the end.
            with suppress(StoreError):
                self._emit(WorkKept(agent=run.id, work=work))
        if run.background and not run.notified:
            self._queue.put(notification(completion))

    def _recorded(self, run: Run, outfit: Outfit, end: Ending, shift: Shift) -> Completion:
        """Where its end cannot be written down, whoever waits still hears of it; their own record fails."""
        try:
            completion = self._completion(run, outfit, end, shift)
        except StoreError as error:
            unkept = Ending(status="failed", text="", detail=str(error))
            completion = self._completion(run, outfit, unkept, shift)
        with suppress(StoreError):
            self._emit(AgentEnded(agent=run.id, completion=completion))
        return completion

    def _over(self, run: Run) -> None:
        if run.witness is not None:
            run.witness.close()
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
        witness.write(f"\n{end.text}\n" if end.status == "completed" else f"\n[{end.status}: {end.detail}]\n")
        witness.flush()
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
            detail=end.detail,
            size=report.size,
            digest=report.digest,
            result="" if report.whole is None else str(report.whole),
            output=str(witness.output),
            usage=witness.usage,
            requests=witness.requests,
            duration_ms=round((self._clock.monotonic() - run.since) * 1000),
            evidence=witness.evidence(shift.acceptance),
            one_shot=outfit.one_shot,
        )

    async def _waited_for(self, run: Run, order: Order, outfit: Outfit) -> Completion | Launched:
        patience = self.habits.auto_background if self.habits.background else 0
        try:
            if patience:
                async with self._clock.deadline(patience):
                    await run.left()
            else:
                await run.left()
        except TimeoutError:
            self._move(run)
        except asyncio.CancelledError:
            await self._stop(run, "the turn that waited for it was interrupted")
            raise
        if run.background:
            return replace(self._launched(run, order.prompt, outfit), moved=True)
        assert run.completion is not None
        return run.completion

    def _move(self, run: Run) -> None:
        if run.background or run.completion is not None:
            return
        run.background = True
        if run.witness is not None:
            run.witness.progress = None
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
        """Gone, with everything it was given returned, when this returns."""
        # A task that is cancelled before its first step never runs, and so would never say that it ended.
        await asyncio.sleep(0)
        if run.task is not None and not run.stopping:
            # Once: a second cancellation would strike the clean-up that the first one began.
            run.stopping = why
            run.task.cancel()
        await run.over()

    async def _send(self, to: AgentId, text: str, summary: str, site: Site) -> Reached:
        sender = site.agent
        said = message_from(sender.name, text, summary=summary, color=sender.color)
        item = Item(id=self._ids.short(), to=to, content=(Text(text=said),), by="agent")
        return await self._deliver(item, said, self.agent(sender.agent), site.call_id)

    async def _deliver(self, item: Item, said: str, sender: Agent, call: str) -> Reached:
        to = item.to
        run = self._roll.get(to)
        if to == LEAD or to in self._resuming or (run is not None and run.completion is None):
            self._post(item, said)
            name = "lead" if to == LEAD else run.facts.name if run else ""
            return Reached(to=to, name=name or to, how="queued")
        return await self._resume(item, said, sender, call)

    def _post(self, item: Item, text: str) -> None:
        self._emit(Queued(agent=item.to, item=item.id, by=item.by, text=text))
        self._queue.put(item)

    async def _resume(self, item: Item, said: str, parent: Agent, call: str) -> Reached:
        agent = item.to
        earlier = self._roll.get(agent)
        self._resuming.add(agent)
        try:
            if earlier is not None:
                await earlier.over()
            newcomer = self._newcomer(agent, parent, call)
            outfit = await self._outfitter.again(newcomer)
            outfit = replace(outfit, started=replace(outfit.started, background=True))
            counted = await self._counted_in_again(outfit)
            for left in self._pending.pop(agent, []):
                if left.id not in outfit.delivered:
                    self._queue.put(left)
            self._post(item, said)
            run = await self._begin(outfit, newcomer, counted)
        except BaseException:
            # What others said to it meanwhile waits until it can be resumed.
            while (waiting := self._queue.take(agent)) is not None:
                self._pending.setdefault(agent, []).append(waiting)
            raise
        finally:
            self._resuming.discard(agent)
        return Reached(
            to=agent, name=run.facts.name or agent, how="resumed", output=str(self._outfitter.output(agent))
        )

    async def _counted_in_again(self, outfit: Outfit) -> Started:
        try:
            return self._counted_in(outfit.started.kind, outfit.started.depth, again=True)
        except AgentRefused:
            await outfit.finish()
            raise

    def _taken(self, run: Run, completion: Completion, site: Site) -> None:
        """A blocking look saw the end: no notification comes, and one that waits is taken back."""
        if run.notified or not run.background:
            return
        waited = self._queue.withdraw(run.report_to, completion.id)
        if waited or run.live:
            run.notified = True
            self._emit(Notified(agent=site.agent.agent, completion=completion.id, call=site.call_id))

    def agent(self, agent: AgentId) -> Agent:
        """One at work. Raises `AgentRefused`."""
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


def notification(completion: Completion) -> Item:
    return Item(
        id=completion.id,
        to=completion.report_to,
        content=(Text(text=task_notification(completion)),),
        by="runtime",
        mode="task-notification",
        priority="later",
    )
