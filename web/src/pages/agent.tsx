/** One agent: what it says and does, live, and what a person can tell it. */

import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { Choices, Confirmed, Cost, Empty, Problem, StateMark, Who, tint, useOrder } from "../bits";
import { EntryRow, SaidRow } from "../blocks";
import { useNow, useRun, useSource } from "../context";
import { ago, clock, count, plural, when } from "../format";
import { runPath } from "../router";
import { told, useTranscript, type Only, type Told } from "../transcript";
import type { AgentRow } from "../types";
import { Windowed } from "../windowed";

const ONLY: readonly (readonly [Only, string])[] = [
  ["all", "All"], ["words", "Words"], ["tools", "Tools"], ["changes", "Changes"],
];
const ENDED = new Set(["completed", "failed", "killed", "gone"]);

export function AgentPage({ agent: id }: { agent: string }) {
  const view = useRun();
  const agent = view.state.agents.get(id);
  const transcript = useTranscript(view.session, id);
  const [only, setOnly] = useState<Only>("all");
  const until = view.within ? view.state.at : 0;
  const { entries, said } = transcript;
  const shown = useMemo(() => told(entries, only, until), [entries, only, until]);
  const speaking = !until && !!(said.text || said.thinking || said.tool);

  // A moment before the loaded part: go back until it is there.
  const first = entries[0];
  useEffect(() => {
    if (until && first && when(first.at) > until && transcript.start > 0) void transcript.older();
  });

  if (!agent) {
    return <div class="page"><Empty title="No such agent">It has not begun at this moment, or the run has none of this name.</Empty></div>;
  }
  const look = tint(agent.color);
  return (
    <div class={`page page-agent ${look.class}`} style={look.style}>
      <header class="page-head">
        <h2><Who name={agent.name} agent={agent} link={false} /></h2>
        <StateMark state={agent.state} />
        <span class="agent-doing mono cut" title={agent.doing || agent.detail}>{agent.doing || agent.detail}</span>
        <Choices<Only> label="Show" value={only} onChange={(value) => setOnly(value)} options={ONLY} />
      </header>
      <div class="agent-body">
        <section class="agent-talk" aria-label="Conversation">
          <Problem text={transcript.problem} />
          {!transcript.loaded && <p class="loading soft" role="status">Reading…</p>}
          {!shown.rows.length && !speaking ? transcript.loaded && (
            <Empty title={entries.length ? "Nothing of this kind" : "Nothing said yet"} />
          ) : (
            <Windowed count={shown.rows.length + (speaking ? 1 : 0)} height={120} measured follow role="log"
              label={`Conversation of ${agent.name}`} onTop={() => void transcript.older()}
              keyOf={keys(shown.rows)}>
              {(index) => {
                const entry = shown.rows[index];
                return entry
                  ? <EntryRow entry={entry} shown={{ transcript, told: shown, only, name: agent.name }} />
                  : <SaidRow said={said} name={agent.name} />;
              }}
            </Windowed>
          )}
          {view.steers && <Steer agent={agent} />}
        </section>
        <Facts agent={agent} shown={shown} start={transcript.start} />
      </div>
    </div>
  );
}

const keys = (rows: Told["rows"]) => (index: number) => String(rows[index]?.n ?? "said");

function Steer({ agent }: { agent: AgentRow }) {
  const { session } = useRun();
  const source = useSource();
  const [text, setText] = useState("");
  const [busy, problem, give] = useOrder();
  const box = useRef<HTMLTextAreaElement>(null);
  const send = async () => {
    const words = text.trim();
    if (!words || busy) return;
    // What was typed while this was on its way stays.
    if (await give(() => source.send(session, agent.id, words))) setText((now) => (now.startsWith(text) ? now.slice(text.length) : now));
    box.current?.focus();
  };
  const ended = ENDED.has(agent.state);
  return (
    <form class="steer" aria-label={`Tell ${agent.name} something`} onSubmit={(event) => {
      event.preventDefault();
      void send();
    }}>
      <Problem text={problem} />
      <div class="steer-row">
        <textarea ref={box} rows={2} value={text} aria-label={`Message to ${agent.name}`}
          placeholder={ended ? `${agent.name} has ended; words resume it` : `Tell ${agent.name} something`}
          onInput={(event) => setText(event.currentTarget.value)}
          onKeyDown={(event) => {
            if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
            event.preventDefault();
            void send();
          }} />
        <button class="main" type="submit" disabled={busy || !text.trim()}>Send</button>
      </div>
      <Orders agent={agent} busy={busy} give={give} />
    </form>
  );
}

function Orders({ agent, busy, give }: { agent: AgentRow; busy: boolean; give(act: () => Promise<unknown>): unknown }) {
  const { session, state } = useRun();
  const source = useSource();
  const lead = !agent.parent;
  if (ENDED.has(agent.state)) return null;
  return (
    <div class="orders">
      <button type="button" disabled={busy || agent.state === "idle"}
        onClick={() => give(() => source.order(session, "interrupt", agent.id))}>Interrupt</button>
      {!lead && !agent.team && !agent.background && (
        <button type="button" disabled={busy} onClick={() => give(() => source.order(session, "background", agent.id))}>
          To the background
        </button>
      )}
      <Confirmed class="bad" disabled={busy} words={lead ? "Stop the run" : "Stop"}
        sure={lead ? "Really stop the whole run?" : `Really stop ${agent.name}?`}
        onSure={() => give(() => source.order(session, "stop", agent.id))} />
      {!lead && (
        <Confirmed class="bad" disabled={busy} words="Kill" sure={`End ${agent.name} at once?`}
          onSure={() => give(() => source.order(session, "kill", agent.id))} />
      )}
      {lead && (
        <label class="orders-mode">Mode
          <select value={state.run.mode} disabled={busy}
            onChange={(event) => {
              const { value } = event.currentTarget;
              give(() => source.setMode(session, value));
            }}>
            {[...new Set(["default", "acceptEdits", "plan", "dontAsk", state.run.mode || "default"])].map((mode) => (
              <option key={mode}>{mode}</option>
            ))}
          </select>
        </label>
      )}
    </div>
  );
}

function Facts({ agent, shown, start }: { agent: AgentRow; shown: Told; start: number }) {
  const view = useRun();
  const now = useNow();
  const facts: [string, preact.ComponentChildren][] = [
    ["Task", agent.task],
    ["Kind", agent.kind],
    ["Team", agent.team],
    ["Model", agent.model],
    ["Mode", agent.mode],
    ["Spent", <Cost usd={agent.usd} tokens={agent.tokens} priced={agent.priced} />],
    ["Work", `${plural(agent.requests, "request")}, ${plural(agent.tool_calls, "call")}`],
    ["Last heard", view.state.live ? `${clock(agent.heard)} (${ago(agent.heard, now)})` : clock(agent.heard)],
    ["Ended", agent.detail],
  ];
  return (
    <aside class="agent-facts" aria-label={`About ${agent.name}`}>
      {agent.question && (
        <p class="facts-ask"><a class="button" href={runPath(view.session, "questions", "", view.within)}>It waits for your answer</a></p>
      )}
      <dl>
        {facts.filter(([, value]) => value).map(([name, value]) => <div key={name}><dt>{name}</dt><dd>{value}</dd></div>)}
        {agent.waits_for.length > 0 && (
          <div><dt>Waits for</dt><dd class="names">{agent.waits_for.map((name) => <Who key={name} name={name} />)}</dd></div>
        )}
      </dl>
      <Tallies title="Tools" tallies={shown.tools} />
      <Tallies title="Changed files" tallies={shown.files} mono />
      {start > 0 && <p class="soft small">Of what is loaded; scroll up for more.</p>}
    </aside>
  );
}

function Tallies({ title, tallies, mono }: { title: string; tallies: readonly [string, number][]; mono?: boolean }) {
  if (!tallies.length) return null;
  return (
    <>
      <h3>{title}</h3>
      <ul class="tallies">
        {tallies.slice(0, 20).map(([name, times]) => (
          <li key={name}><span class={`cut ${mono ? "mono" : ""}`} title={name}>{name}</span> <span class="figures">{count(times)}</span></li>
        ))}
      </ul>
    </>
  );
}
