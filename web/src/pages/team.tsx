/** Members of a run as cards or as a table, and who waits for whom. */

import type { ComponentChildren } from "preact";
import { useMemo, useState } from "preact/hooks";
import { AgentName, Choices, Cost, Empty, StateMark, Time, formatAgentState, getTint, useFit, useStoredChoice } from "../components";
import { buildAgentPath, useNow, useRun, type RunContextValue } from "../context";
import { formatAge, formatClock, formatCount, formatDollars, formatQuantity } from "../format";
import { buildRunPath } from "../router";
import type { AgentRow, AgentState } from "../types";
import { VirtualList } from "../virtual_list";

const STATES: AgentState[] = ["working", "waiting", "idle", "down", "completed", "failed", "killed", "gone"];
const MAX_WAITS = 60;
const MAX_NOTES = 40;
const MAX_WORKFLOWS = 20;
const CARD_WIDTH = 264;
const CARD_HEIGHT = 152;

export function TeamPage() {
  const context = useRun();
  const now = useNow();
  const agents = context.runView.agents.list;
  const [layout, setLayout] = useStoredChoice<"cards" | "table">("team", "cards");
  const [stateFilter, setStateFilter] = useState<AgentState | "">("");
  const shown = useMemo(() => (stateFilter ? agents.filter((each) => each.state === stateFilter) : agents), [agents, stateFilter]);
  if (!agents.length) return <div class="page"><Empty title="No agents yet">The lead appears with its first event.</Empty></div>;
  return (
    <div class="page page-team">
      <header class="page-head">
        <h2>Team</h2>
        <StateCounts agents={agents} stateFilter={stateFilter} onFilter={setStateFilter} />
        <Choices label="Show as" value={layout} onChange={setLayout} options={[["cards", "Cards"], ["table", "Table"]]} />
      </header>
      <div class="team-body">
        {layout === "cards" && (
          <aside class="team-aside">
            <WorkflowList context={context} />
            <WaitList agents={agents} />
            <NoteList context={context} />
          </aside>
        )}
        {!shown.length && <Empty title={`Nobody is ${stateFilter ? formatAgentState(stateFilter) : "here"} now`} />}
        {!!shown.length && (layout === "cards"
          ? <Cards agents={shown} context={context} now={now} />
          : <Table agents={shown} context={context} now={now} />)}
      </div>
    </div>
  );
}

function StateCounts({ agents, stateFilter, onFilter }: {
  agents: readonly AgentRow[];
  stateFilter: AgentState | "";
  onFilter(state: AgentState | ""): void;
}) {
  const numbers = new Map<AgentState, number>();
  for (const each of agents) numbers.set(each.state, (numbers.get(each.state) ?? 0) + 1);
  return (
    <div class="counts" role="group" aria-label="Show only">
      {STATES.filter((state) => numbers.get(state) || state === stateFilter).map((state) => (
        <button key={state} type="button" class="count" aria-pressed={stateFilter === state}
          onClick={() => onFilter(stateFilter === state ? "" : state)}>
          <StateMark state={state} /> <span class="figures">{numbers.get(state) ?? 0}</span>
        </button>
      ))}
    </div>
  );
}

/** Workflows with their phases, latest first. Runs without workflows do not show the list. */
function WorkflowList({ context }: { context: RunContextValue }) {
  const workflows = context.runView.workflows.list;
  const latest = useMemo(() => workflows.slice(-MAX_WORKFLOWS).reverse(), [workflows]);
  if (!workflows.length) return null;
  return (
    <SideList title="Workflows" number={workflows.length} name="workflows" open>
      {latest.map((each) => (
        <li key={each.id} class={`note workflow workflow-${each.status}`} data-workflow={each.id}>
          <span><strong>{each.name}</strong> <span class="soft">{each.status}, {formatQuantity(each.finished, "step")} of {each.steps} done</span></span>
          {each.phases.map((phase) => (
            <span key={phase.name} class={each.status === "running" && phase.name === each.phase ? "" : "soft"}>
              {phase.name || "before the first phase"} <span class="figures">{phase.finished}/{phase.agents}</span>
            </span>
          ))}
          {each.detail && <span class="soft">{each.detail}</span>}
        </li>
      ))}
    </SideList>
  );
}

/** Lists who waits for others or for a person. It is also shown while nobody waits, so that nothing moves. */
function WaitList({ agents }: { agents: readonly AgentRow[] }) {
  const context = useRun();
  const waiting = useMemo(() => agents.filter((each) => each.question || each.waits_for.length), [agents]);
  return (
    <SideList title="Waiting agents" number={waiting.length || "nobody"} name="waits">
        {!waiting.length && <li class="soft">No agent is waiting for another one.</li>}
        {waiting.slice(0, MAX_WAITS).map((each) => (
          <li key={each.id}>
            <AgentName name={each.name} agent={each} /> <span class="arrow" aria-label="waits for">→</span>
            {each.question && <a class="pill pill-ask" href={buildRunPath(context.session, "questions", "", context.viewMode)}>your answer</a>}
            {each.waits_for.map((name) => <AgentName key={name} name={name} />)}
          </li>
        ))}
        {waiting.length > MAX_WAITS && <li class="soft">and {waiting.length - MAX_WAITS} more</li>}
    </SideList>
  );
}

/** Notes for the user, latest first. */
function NoteList({ context }: { context: RunContextValue }) {
  const notes = context.runView.notes.list;
  const latest = useMemo(() => notes.slice(-MAX_NOTES).reverse(), [notes]);
  return (
    <SideList title="Notes" number={notes.length || "none"} name="notes">
      {latest.map((note) => (
        <li key={note.number} class={`note note-${note.kind}`}>
          <span class="soft"><Time at={note.at} text={formatClock(note.at)} /> <AgentName name={context.runView.agents.get(note.agent)?.name ?? note.agent} /></span>
          <span>{note.text}</span>
        </li>
      ))}
    </SideList>
  );
}

/** List next to the cards; on small screens a person opens it. */
function SideList({ title, number, name, open = false, children }: {
  title: string;
  number: number | string;
  name: string;
  open?: boolean;
  children: ComponentChildren;
}) {
  const [shown, setShown] = useStoredChoice<"shown" | "hidden">(name, open ? "shown" : "hidden");
  return (
    <section class="side-list" aria-label={title}>
      <button type="button" class="fold" aria-expanded={shown === "shown"}
        onClick={() => setShown(shown === "shown" ? "hidden" : "shown")}>
        <span class="fold-mark" aria-hidden="true" />
        <strong>{title}</strong> <span class="figures soft">{number}</span>
      </button>
      <ul class={shown}>{children}</ul>
    </section>
  );
}

interface MembersProps {
  agents: readonly AgentRow[];
  context: RunContextValue;
  now: number;
}

function Cards({ agents, context, now }: MembersProps) {
  const [box, columns] = useFit((width) => Math.max(1, Math.floor((width - 8) / CARD_WIDTH)), 1);
  const rows = Math.ceil(agents.length / columns);
  return (
    <div ref={box} class="fill">
      <VirtualList count={rows} height={CARD_HEIGHT} keyOf={(row) => `${columns}:${row}`} label="Members" class="fill">
        {(row) => (
          <div class="cards" style={{ gridTemplateColumns: `repeat(${columns}, minmax(0, 1fr))` }}>
            {agents.slice(row * columns, (row + 1) * columns).map((each) => (
              <Card key={each.id} agent={each} context={context} now={now} />
            ))}
          </div>
        )}
      </VirtualList>
    </div>
  );
}

function Card({ agent, context, now }: { agent: AgentRow; context: RunContextValue; now: number }) {
  const tint = getTint(agent.color);
  const ended = !["working", "waiting", "idle"].includes(agent.state);
  return (
    <article class={`card ${tint.class} ${ended ? "card-ended" : ""}`} style={tint.style} data-agent={agent.id}>
      <header>
        <a class="card-name" href={buildAgentPath(context, agent)}>{agent.name}</a>
        {agent.kind !== agent.name && <span class="card-kind" title={`${agent.kind}, ${agent.model}`}>{agent.kind}</span>}
        {agent.phase && <span class="card-kind card-phase" title={agent.workflow}>{agent.phase}</span>}
        <StateMark state={agent.state} />
      </header>
      <p class="card-doing" title={agent.doing || agent.detail}>{agent.doing || agent.detail || "\u00a0"}</p>
      <p class="card-task" title={agent.task}>{agent.task || "\u00a0"}</p>
      <p class="card-waits">
        {agent.waits_for.length > 0 && (
          <>waits for {agent.waits_for.slice(0, 3).map((name) => <AgentName key={name} name={name} />)}
            {agent.waits_for.length > 3 && ` +${agent.waits_for.length - 3}`}</>
        )}
      </p>
      <footer>
        <Cost usd={agent.usd} tokens={agent.tokens} priced={agent.priced} />
        <span class="figures" title="Tool calls">{formatQuantity(agent.tool_calls, "call")}</span>
        <span class="figures" title="Last active">{formatLastActive(agent, context, now)}</span>
      </footer>
    </article>
  );
}

/** Formats the time since the agent was last active, or the time of day if the run has ended. */
function formatLastActive(agent: AgentRow, context: RunContextValue, now: number): string {
  return context.runView.live ? formatAge(agent.heard, now) : formatClock(agent.heard);
}

function Table({ agents, context, now }: MembersProps) {
  return (
    <div class="table fill" role="table" aria-label="Members" aria-rowcount={agents.length}>
      <div class="table-head" role="row">
        {["Name", "State", "Doing", "Task", "Waits for", "Tokens", "Cost", "Calls", "Active"].map((title) => (
          <span key={title} role="columnheader">{title}</span>
        ))}
      </div>
      <VirtualList count={agents.length} height={34} keyOf={(index) => agents[index]!.id} label="Members" role="rowgroup"
        class="fill">
        {(index) => {
          const agent = agents[index]!;
          return (
            <a class="table-row" href={buildAgentPath(context, agent)}>
              <span role="cell" style={{ paddingLeft: `${Math.min(agent.depth, 4) * 10}px` }}>
                <AgentName name={agent.name} agent={agent} link={false} />
              </span>
              <span role="cell"><StateMark state={agent.state} /></span>
              <span role="cell" title={agent.doing}>{agent.doing || agent.detail}</span>
              <span role="cell" title={agent.task}>{agent.task}</span>
              <span role="cell" class="table-waits">
                {agent.question && "you "}
                {agent.waits_for.map((name) => <AgentName key={name} name={name} link={false} />)}
              </span>
              <span role="cell" class="figures">{formatCount(agent.tokens)}</span>
              <span role="cell" class="figures">{formatDollars(agent.usd)}{agent.priced ? "" : "+?"}</span>
              <span role="cell" class="figures">{agent.tool_calls}</span>
              <span role="cell" class="figures">{formatLastActive(agent, context, now)}</span>
            </a>
          );
        }}
      </VirtualList>
    </div>
  );
}
