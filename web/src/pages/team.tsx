/** The members of a run as live cards or as a table, and who waits for whom. */

import type { ComponentChildren } from "preact";
import { useMemo, useState } from "preact/hooks";
import { Choices, Cost, Empty, StateMark, Time, Who, stateWords, tint, useFit, useKept } from "../bits";
import { agentPath, useNow, useRun, type RunView } from "../context";
import { ago, clock, count, dollars, plural } from "../format";
import { runPath } from "../router";
import type { AgentRow, AgentState } from "../types";
import { Windowed } from "../windowed";

const STATES: AgentState[] = ["working", "waiting", "idle", "completed", "failed", "killed", "gone"];
const MOST_WAITS = 60;
const MOST_NOTES = 40;
const CARD_WIDTH = 264;
const CARD_HEIGHT = 152;

export function TeamPage() {
  const view = useRun();
  const now = useNow();
  const agents = view.state.agents.list;
  const [look, setLook] = useKept<"cards" | "table">("team", "cards");
  const [only, setOnly] = useState<AgentState | "">("");
  const shown = useMemo(() => (only ? agents.filter((each) => each.state === only) : agents), [agents, only]);
  if (!agents.length) return <div class="page"><Empty title="Nobody is here yet">The lead appears with its first event.</Empty></div>;
  return (
    <div class="page page-team">
      <header class="page-head">
        <h2>Team</h2>
        <Counts agents={agents} only={only} onOnly={setOnly} />
        <Choices label="Show as" value={look} onChange={setLook} options={[["cards", "Cards"], ["table", "Table"]]} />
      </header>
      <div class="team-body">
        {look === "cards" && (
          <aside class="team-aside">
            <Waits agents={agents} />
            <Notes view={view} />
          </aside>
        )}
        {!shown.length && <Empty title={`Nobody is ${only ? stateWords(only) : "here"} now`} />}
        {!!shown.length && (look === "cards"
          ? <Cards agents={shown} view={view} now={now} />
          : <Table agents={shown} view={view} now={now} />)}
      </div>
    </div>
  );
}

function Counts({ agents, only, onOnly }: {
  agents: readonly AgentRow[];
  only: AgentState | "";
  onOnly(state: AgentState | ""): void;
}) {
  const numbers = new Map<AgentState, number>();
  for (const each of agents) numbers.set(each.state, (numbers.get(each.state) ?? 0) + 1);
  return (
    <div class="counts" role="group" aria-label="Show only">
      {STATES.filter((state) => numbers.get(state) || state === only).map((state) => (
        <button key={state} type="button" class="count" aria-pressed={only === state}
          onClick={() => onOnly(only === state ? "" : state)}>
          <StateMark state={state} /> <span class="figures">{numbers.get(state) ?? 0}</span>
        </button>
      ))}
    </div>
  );
}

/** One line for each that waits: for others, or for a person. It has its place whether somebody waits or not. */
function Waits({ agents }: { agents: readonly AgentRow[] }) {
  const view = useRun();
  const waiting = useMemo(() => agents.filter((each) => each.question || each.waits_for.length), [agents]);
  return (
    <Folded title="Who waits for whom" number={waiting.length || "nobody"} name="waits">
        {!waiting.length && <li class="soft">Nobody is held up.</li>}
        {waiting.slice(0, MOST_WAITS).map((each) => (
          <li key={each.id}>
            <Who name={each.name} agent={each} /> <span class="arrow" aria-label="waits for">→</span>
            {each.question && <a class="pill pill-ask" href={runPath(view.session, "questions", "", view.within)}>your answer</a>}
            {each.waits_for.map((name) => <Who key={name} name={name} />)}
          </li>
        ))}
        {waiting.length > MOST_WAITS && <li class="soft">and {waiting.length - MOST_WAITS} more</li>}
    </Folded>
  );
}

/** What a person should know, the latest first. */
function Notes({ view }: { view: RunView }) {
  const notes = view.state.notes.list;
  const latest = useMemo(() => notes.slice(-MOST_NOTES).reverse(), [notes]);
  return (
    <Folded title="Notes" number={notes.length || "none"} name="notes">
      {latest.map((note) => (
        <li key={note.number} class={`note note-${note.kind}`}>
          <span class="soft"><Time at={note.at} text={clock(note.at)} /> <Who name={view.state.agents.get(note.agent)?.name ?? note.agent} /></span>
          <span>{note.text}</span>
        </li>
      ))}
    </Folded>
  );
}

/** A list that is always open beside the cards, and is opened by hand where there is little room. */
function Folded({ title, number, name, children }: {
  title: string;
  number: number | string;
  name: string;
  children: ComponentChildren;
}) {
  const [shown, setShown] = useKept<"shown" | "hidden">(name, "hidden");
  return (
    <section class="folded" aria-label={title}>
      <button type="button" class="fold" aria-expanded={shown === "shown"}
        onClick={() => setShown(shown === "shown" ? "hidden" : "shown")}>
        <span class="fold-mark" aria-hidden="true" />
        <strong>{title}</strong> <span class="figures soft">{number}</span>
      </button>
      <ul class={shown}>{children}</ul>
    </section>
  );
}

interface Shown {
  agents: readonly AgentRow[];
  view: RunView;
  now: number;
}

function Cards({ agents, view, now }: Shown) {
  const [box, columns] = useFit((width) => Math.max(1, Math.floor((width - 8) / CARD_WIDTH)), 1);
  const rows = Math.ceil(agents.length / columns);
  return (
    <div ref={box} class="fill">
      <Windowed count={rows} height={CARD_HEIGHT} keyOf={(row) => `${columns}:${row}`} label="Members" class="fill">
        {(row) => (
          <div class="cards" style={{ gridTemplateColumns: `repeat(${columns}, minmax(0, 1fr))` }}>
            {agents.slice(row * columns, (row + 1) * columns).map((each) => (
              <Card key={each.id} agent={each} view={view} now={now} />
            ))}
          </div>
        )}
      </Windowed>
    </div>
  );
}

function Card({ agent, view, now }: { agent: AgentRow; view: RunView; now: number }) {
  const look = tint(agent.color);
  const ended = !["working", "waiting", "idle"].includes(agent.state);
  return (
    <article class={`card ${look.class} ${ended ? "card-ended" : ""}`} style={look.style} data-agent={agent.id}>
      <header>
        <a class="card-name" href={agentPath(view, agent)}>{agent.name}</a>
        {agent.kind !== agent.name && <span class="card-kind" title={`${agent.kind}, ${agent.model}`}>{agent.kind}</span>}
        <StateMark state={agent.state} />
      </header>
      <p class="card-doing" title={agent.doing || agent.detail}>{agent.doing || agent.detail || "\u00a0"}</p>
      <p class="card-task" title={agent.task}>{agent.task || "\u00a0"}</p>
      <p class="card-waits">
        {agent.waits_for.length > 0 && (
          <>waits for {agent.waits_for.slice(0, 3).map((name) => <Who key={name} name={name} />)}
            {agent.waits_for.length > 3 && ` +${agent.waits_for.length - 3}`}</>
        )}
      </p>
      <footer>
        <Cost usd={agent.usd} tokens={agent.tokens} priced={agent.priced} />
        <span class="figures" title="Tool calls">{plural(agent.tool_calls, "call")}</span>
        <span class="figures" title="When it was last heard">{lastHeard(agent, view, now)}</span>
      </footer>
    </article>
  );
}

/** How long ago, while the run goes on; when, of a run that is over. */
function lastHeard(agent: AgentRow, view: RunView, now: number): string {
  return view.state.live ? ago(agent.heard, now) : clock(agent.heard);
}

function Table({ agents, view, now }: Shown) {
  return (
    <div class="table fill" role="table" aria-label="Members" aria-rowcount={agents.length}>
      <div class="table-head" role="row">
        {["Name", "State", "Doing", "Task", "Waits for", "Tokens", "Cost", "Calls", "Heard"].map((title) => (
          <span key={title} role="columnheader">{title}</span>
        ))}
      </div>
      <Windowed count={agents.length} height={34} keyOf={(index) => agents[index]!.id} label="Members" role="rowgroup"
        class="fill">
        {(index) => {
          const agent = agents[index]!;
          return (
            <a class="table-row" href={agentPath(view, agent)}>
              <span role="cell" style={{ paddingLeft: `${Math.min(agent.depth, 4) * 10}px` }}>
                <Who name={agent.name} agent={agent} link={false} />
              </span>
              <span role="cell"><StateMark state={agent.state} /></span>
              <span role="cell" title={agent.doing}>{agent.doing || agent.detail}</span>
              <span role="cell" title={agent.task}>{agent.task}</span>
              <span role="cell" class="table-waits">
                {agent.question && "you "}
                {agent.waits_for.map((name) => <Who key={name} name={name} link={false} />)}
              </span>
              <span role="cell" class="figures">{count(agent.tokens)}</span>
              <span role="cell" class="figures">{dollars(agent.usd)}{agent.priced ? "" : "+?"}</span>
              <span role="cell" class="figures">{agent.tool_calls}</span>
              <span role="cell" class="figures">{lastHeard(agent, view, now)}</span>
            </a>
          );
        }}
      </Windowed>
    </div>
  );
}
