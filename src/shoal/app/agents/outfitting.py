"""Prepares agents: the model, tools, permissions, workspace and transcript of each."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from shoal.agent.agent import Agent, Bounds, Surroundings
from shoal.agent.conversation import Conversation
from shoal.agent.forking import FORK, fork_prompt, is_fork
from shoal.app.agents.files import Recalled
from shoal.app.agents.limiting import limited
from shoal.app.agents.memory import AgentMemory
from shoal.app.agents.orders import (
    FORKED,
    NO_FORK,
    bounds_for,
    first_prompt,
    mode_named,
    move_to,
    name_of,
    refuse_where_forbidden,
    refuse_where_it_cannot_work,
)
from shoal.app.agents.planned import Plan, identity_of, permissions_of
from shoal.app.agents.seats import own_part, seated_mode, seated_tools
from shoal.app.agents.stock import Stock
from shoal.app.authority import authority_of
from shoal.app.hooks.hooking import Whose, listed
from shoal.app.mcp.servers import Kit
from shoal.app.quarters.quarters import Quarters
from shoal.app.skills.invoking import Preloaded
from shoal.core.accounts import Account
from shoal.core.agents import KeptWork, Order, Ran, Resolved
from shoal.core.caps import Limits
from shoal.core.definitions import Definition, Toolset, tool_names
from shoal.core.errors import (
    AgentRefused,
    BadDefinition,
    BudgetError,
    ModelError,
    NoModel,
    SettingsError,
    UnknownAgent,
)
from shoal.core.events import AgentStarted
from shoal.core.ids import AgentId, EntryId
from shoal.core.mcp import servers_of
from shoal.core.messages import Message
from shoal.core.permissions import Mode
from shoal.core.ports import Model
from shoal.policy.authority import forked, narrowed
from shoal.policy.memory import Memory
from shoal.runs.outfit import Check, Newcomer, Outfit, Seat
from shoal.runs.witness import Witness
from shoal.stores.files.subagents import Remembered
from shoal.workspaces.local import LocalWorkspace


class _Wanted(Struct, frozen=True, kw_only=True):
    """A resolved spawn request, before anything is created for it."""

    order: Order
    definition: Definition
    kit: Kit
    toolset: Toolset
    bounds: Bounds
    model: Model
    known: Preloaded = Preloaded()
    memory: AgentMemory | None = None


class _Start(Struct, frozen=True, kw_only=True):
    """Initial state of an agent, from its definition or from the parent that it forks."""

    mode: Mode
    system: str
    color: str | None
    background: bool
    memory: Memory | None
    history: Sequence[Message] = ()
    fork_of: EntryId | None = None
    """Last entry of that history."""
    after: str = ""
    """Last entry of a former agent with its id."""


class _Toolsets:
    """Caches the last toolset, because many agents of one type usually start together."""

    def __init__(self, of_lead: Collection[str]) -> None:
        self._of_lead = of_lead
        self._known: tuple[Definition, tuple[str, ...], tuple[str, ...], Toolset] | None = None

    def of(self, definition: Definition, kit: Kit) -> Toolset:
        there, known = tuple(kit.tools), self._known
        if known is not None and known[0] is definition and known[1] == there and known[2] == kit.also:
            return known[3]
        offered = (name for name in there if name not in self._of_lead)
        toolset = tool_names(definition, offered, kit.also)
        self._known = (definition, there, kit.also, toolset)
        return toolset


class Outfitting:
    def __init__(self, stock: Stock) -> None:
        self._stock = stock
        self._toolsets = _Toolsets(stock.of_lead)

    def output(self, agent: AgentId) -> Path:
        return self._stock.outputs / f"{agent}.output"

    def witness(self, agent: AgentId) -> Witness:
        return Witness(self.output(agent), self._stock.tell, kept=self._stock.files.kept)

    async def fresh(self, order: Order, newcomer: Newcomer) -> Outfit:
        parent = newcomer.parent
        definition = self._definition(order.kind or "")
        refuse_where_forbidden(parent, definition.name)
        refuse_where_it_cannot_work(definition, order)
        kit = await self._stock.equip(definition, ())
        async with kit.closed_on_failure():
            return await self._equipped(order, newcomer, definition, kit)

    async def _equipped(self, order: Order, newcomer: Newcomer, definition: Definition, kit: Kit) -> Outfit:
        toolset = self._toolset(definition, newcomer.seat, kit)
        memory = self._stock.memory(definition, toolset, kit.tools)
        wanted = _Wanted(
            order=order,
            definition=definition,
            kit=kit,
            toolset=limited(toolset if memory is None else replace(toolset, names=memory.tools), order),
            bounds=bounds_for(self._stock.bounds, definition, order),
            model=await self._model(newcomer.parent, order, definition),
            known=self._stock.known(definition),
            memory=memory,
        )
        quarters = await self._quarters(newcomer, order.isolation or definition.isolation)
        try:
            return self._housed(wanted, newcomer, quarters)
        except BaseException:
            await quarters.finish()
            raise

    def _housed(self, wanted: _Wanted, newcomer: Newcomer, quarters: Quarters) -> Outfit:
        order, definition, seat = wanted.order, wanted.definition, newcomer.seat
        workspace, memory = quarters.workspace, wanted.memory
        move_to(order.cwd, workspace)
        own = own_part(definition, seat)
        if memory is not None:
            own = f"{own}\n\n{memory.section()}"
        start = _Start(
            mode=seated_mode(authority_of(newcomer.parent), definition, seat),
            system=self._stock.system(own, workspace.cwd, definition.instructions),
            color=definition.color if seat is None else seat.color,
            background=definition.background,
            memory=None if memory is None else Memory(directory=str(memory.directory), only=memory.added),
            after="" if seat is None else self._stock.files.last_entry(newcomer.agent),
        )
        prompt = first_prompt(definition, order, quarters.told, wanted.known.texts)
        return self._begun(wanted, newcomer, quarters, start, prompt)

    async def fork(self, order: Order, newcomer: Newcomer) -> Outfit:
        stock, parent = self._stock, newcomer.parent
        if is_fork(parent):
            raise AgentRefused(NO_FORK)
        refuse_where_forbidden(parent, FORK)
        refuse_where_it_cannot_work(FORKED, order)
        branch = parent.conversation.up_to_reply()
        if branch is None:
            raise AgentRefused("There is no reply yet after which a fork could begin.")
        if order.isolation is None:
            quarters = stock.housing.beside(newcomer)
            quarters.workspace.know(_workspace(parent))
        else:
            quarters = await stock.housing.apart(newcomer, forks=True)
        try:
            return self._forked(order, newcomer, quarters, branch)
        except BaseException:
            await quarters.finish()
            raise

    def _forked(
        self, order: Order, newcomer: Newcomer, quarters: Quarters, branch: tuple[list[Message], EntryId]
    ) -> Outfit:
        parent, authority, (history, entry) = newcomer.parent, authority_of(newcomer.parent), branch
        move_to(order.cwd, quarters.workspace)
        wanted = _Wanted(
            order=order,
            definition=FORKED,
            kit=Kit(tools=parent.tools),
            toolset=Toolset(names=tuple(parent.tools)),
            bounds=replace(parent.bounds, max_turns=None),
            model=parent.model,
        )
        start = _Start(
            mode=forked(authority.mode),
            system=parent.system,
            color=parent.identity.color,
            background=True,
            memory=authority.memory,
            history=history,
            fork_of=entry,
        )
        job = "\n\n".join(filter(None, (quarters.told, order.prompt)))
        outfit = self._begun(wanted, newcomer, quarters, start, fork_prompt(history[-1].tool_uses, job))
        # The provider's count for the parent is better than an estimate.
        outfit.agent.context_tokens = parent.context_tokens
        return replace(outfit, resolved=replace(outfit.resolved, start_tokens=parent.context_tokens))

    def _begun(
        self, wanted: _Wanted, newcomer: Newcomer, quarters: Quarters, start: _Start, prompt: Message
    ) -> Outfit:
        stock, order, memory = self._stock, wanted.order, start.memory
        facts = Remembered(
            agent_type=wanted.definition.name,
            description=order.description,
            name=order.name or "",
            model=name_of(wanted.model),
            mode=start.mode,
            system=start.system,
            tools=wanted.toolset.names,
            cwd=str(quarters.workspace.cwd),
            isolation=order.isolation or wanted.definition.isolation,
            worktree=quarters.name,
            parent=newcomer.parent.identity.agent,
            call=newcomer.call,
            depth=newcomer.parent.identity.depth + 1,
            color=start.color,
            background=start.background,
            thinking_tokens=wanted.bounds.thinking_tokens,
            memory="" if memory is None else memory.directory,
            memory_tools=() if memory is None else memory.only,
            fork_of=start.fork_of or "",
            after=start.after,
        )
        transcript = stock.files.transcript(newcomer, facts)
        plan = Plan(
            newcomer=newcomer,
            order=order,
            known=wanted.known,
            definition=wanted.definition,
            facts=facts,
            kit=wanted.kit,
            toolset=wanted.toolset,
            model=wanted.model,
            quarters=quarters,
            bounds=wanted.bounds,
            transcript=transcript,
            conversation=Conversation(
                transcript, stock.clock, stock.ids.branch(), messages=start.history, last=start.fork_of
            ),
        )
        outfit = self._outfit(plan, prompt)
        self._keep(plan)
        return outfit

    async def again(self, newcomer: Newcomer) -> Outfit:
        recalled = self._stock.files.recalled(newcomer)
        facts = recalled.facts
        definition = FORKED if facts.fork_of else self._definition(facts.agent_type)
        refuse_where_forbidden(newcomer.parent, definition.name)
        kit = await self._stock.equip(definition, facts.tools)
        async with kit.closed_on_failure():
            return await self._once_more(newcomer, recalled, definition, kit)

    async def _once_more(
        self, newcomer: Newcomer, recalled: Recalled, definition: Definition, kit: Kit
    ) -> Outfit:
        facts, toolset = recalled.facts, self._toolset(definition, newcomer.seat, kit)
        if facts.tools:
            # Kept as they were: a definition that changed since would miss the prompt cache.
            names = tuple(name for name in facts.tools if name in kit.tools)
            toolset = replace(toolset, names=names)
        order = Order(description=facts.description, prompt="", model=facts.model or None)
        wanted = _Wanted(
            order=order,
            definition=definition,
            kit=kit,
            toolset=toolset,
            bounds=bounds_for(self._stock.bounds, definition, order, facts.thinking_tokens),
            model=await self._model(newcomer.parent, order, definition),
        )
        quarters = await self._quarters(newcomer, facts.isolation, facts.worktree)
        try:
            if facts.cwd and not facts.isolation:
                move_to(facts.cwd, quarters.workspace)
            plan = self._resumed(wanted, newcomer, quarters, recalled)
            outfit = self._outfit(plan, None)
            if quarters.name != facts.worktree:
                self._keep(plan)
        except BaseException:
            await quarters.finish()
            raise
        return replace(
            outfit,
            started=replace(outfit.started, resumed=True),
            delivered=recalled.delivered,
            answered=recalled.answered,
        )

    def _resumed(
        self,
        wanted: _Wanted,
        newcomer: Newcomer,
        quarters: Quarters,
        recalled: Recalled,
    ) -> Plan:
        definition, authority = wanted.definition, authority_of(newcomer.parent)
        facts = recalled.facts
        mode = narrowed(
            authority.mode,
            mode_named(facts.mode),
            person_configured=definition.source.trusted and definition.permission_mode is not None,
            may_skip=authority.may_skip,
        )
        own = own_part(definition, newcomer.seat)
        system = facts.system or self._stock.system(own, quarters.workspace.cwd, definition.instructions)
        return Plan(
            newcomer=newcomer,
            definition=definition,
            facts=replace(facts, system=system, mode=mode, worktree=quarters.name),
            resumed=True,
            kit=wanted.kit,
            toolset=wanted.toolset,
            model=wanted.model,
            quarters=quarters,
            bounds=wanted.bounds,
            transcript=recalled.transcript,
            conversation=recalled.conversation,
        )

    async def _quarters(self, newcomer: Newcomer, isolation: str | None, again: str = "") -> Quarters:
        housing = self._stock.housing
        return await housing.apart(newcomer, again) if isolation else housing.beside(newcomer)

    def _definition(self, kind: str) -> Definition:
        try:
            definition = self._stock.definition(kind)
        except (UnknownAgent, BadDefinition) as error:
            raise AgentRefused(str(error)) from error
        # Checked before anything is created: its hooks must be runnable.
        self._stock.hooks.own(definition)
        return definition

    def _toolset(self, definition: Definition, seat: Seat | None, kit: Kit) -> Toolset:
        toolset = self._toolsets.of(definition, kit)
        if toolset.missing:
            raise AgentRefused(
                f"The agent {definition.name} ({definition.source}) names tools that are not to be had here: "
                f"{', '.join(toolset.missing)}. Take them out of its definition, or start another agent."
            )
        return seated_tools(toolset, seat, kit.tools)

    async def _model(self, parent: Agent, order: Order, definition: Definition) -> Model:
        try:
            model = await self._stock.model(parent, order, definition)
            self._stock.purse.admit(model.card, definition.name)
        except (BudgetError, ModelError, NoModel, SettingsError) as error:
            raise AgentRefused(f"The agent's model is not to be had: {error}") from error
        return model

    def _keep(self, plan: Plan) -> None:
        self._stock.files.keep(plan.newcomer.agent, plan.facts)

    def _agent(self, plan: Plan) -> Agent:
        stock, facts, parent = self._stock, plan.facts, plan.newcomer.parent
        agent = plan.newcomer.agent
        around = parent.surroundings
        seat = plan.newcomer.seat
        permissions = permissions_of(plan)
        whose = Whose(
            identity=identity_of(plan),
            workspace=plan.quarters.workspace,
            permissions=permissions,
            transcript=stock.files.path(agent),
        )
        return Agent(
            identity=whose.identity,
            model=plan.model,
            system=facts.system,
            tools={name: plan.kit.tools[name] for name in plan.toolset.names},
            conversation=plan.conversation,
            surroundings=Surroundings(
                workspace=plan.quarters.workspace,
                processes=around.processes,
                desk=around.desk if seat is None else seat.desk,
                results=around.results,
                env=around.env,
                sandbox=plan.quarters.sandbox,
            ),
            permissions=permissions,
            hooks=stock.hooks.of(whose, stock.hooks.own(plan.definition)),
            purse=self._account(agent, plan),
            inlet=stock.queue.inlet(agent),
            tell=plan.newcomer.witness.tell,
            clock=stock.clock,
            ids=stock.ids.branch(),
            bounds=plan.bounds,
        )

    def _account(self, agent: AgentId, plan: Plan) -> Account:
        account = self._stock.purse.account(
            agent, plan.facts.agent_type, Limits(max_usd=plan.definition.max_budget_usd)
        )
        try:
            account.admit(plan.model.card)
        except BudgetError as error:
            raise AgentRefused(str(error)) from error
        return account

    def _outfit(self, plan: Plan, prompt: Message | None) -> Outfit:
        facts, agent = plan.facts, self._agent(plan)

        async def finish() -> KeptWork | None:
            plan.transcript.close()
            self._stock.files.put_away(plan.newcomer.agent, plan.facts, plan.conversation)
            await plan.kit.close()
            await self._stock.left(plan.newcomer.agent)
            return await plan.quarters.finish()

        return Outfit(
            agent=agent,
            started=AgentStarted(
                agent=plan.newcomer.agent,
                kind=facts.agent_type,
                name=facts.name,
                description=facts.description,
                parent=plan.newcomer.parent.identity.agent,
                call=plan.newcomer.call,
                depth=facts.depth,
                model=plan.model.card.id,
                mode=facts.mode,
                background=facts.background,
                cwd=facts.cwd,
                tools=plan.toolset.names,
                color=facts.color,
                isolation=facts.isolation,
                team="" if plan.newcomer.seat is None else plan.newcomer.seat.team,
            ),
            resolved=Resolved(
                kind=facts.agent_type,
                model=plan.model.card.id,
                mode=facts.mode,
                tools=plan.toolset.names,
                cwd=facts.cwd,
                source=str(plan.definition.source),
                start_tokens=agent.context_tokens,
                worktree=str(plan.quarters.workspace.root) if plan.quarters.name else "",
                hooks=listed(agent.hooks),
                servers=servers_of(plan.toolset.names),
                skills=plan.definition.skills,
                notes=plan.quarters.notes,
            ),
            prompt=prompt,
            one_shot=plan.definition.one_shot,
            check=self._check(plan.definition.acceptance, agent, plan.newcomer.witness),
            commits=plan.quarters.commits,
            finish=finish,
        )

    def _check(self, command: str | None, agent: Agent, witness: Witness) -> Check | None:
        if command is None:
            return None

        async def check() -> tuple[Ran, str]:
            ran, wrote = await self._stock.accept(command, agent)
            witness.write(f"[acceptance: {command}: {ran.exit_code}]\n{wrote}\n")
            return ran, wrote

        return check


def _workspace(agent: Agent) -> LocalWorkspace:
    assert isinstance(agent.surroundings.workspace, LocalWorkspace)
    return agent.surroundings.workspace
