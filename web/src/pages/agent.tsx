/** Page of one agent: its live conversation, and the form to steer it. */

import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { AgentName, Choices, ConfirmButton, Cost, Empty, Problem, StateMark, getTint, useAction } from "../components";
import { EntryRow, StreamedTextRow } from "../blocks";
import { useNow, useRun, useSource } from "../context";
import { formatAge, formatClock, formatCount, formatQuantity, parseTime } from "../format";
import { buildRunPath } from "../router";
import { buildConversation, useTranscript, type Conversation, type EntryFilter } from "../transcript";
import type { AgentRow } from "../types";
import { VirtualList } from "../virtual_list";

const FILTERS: readonly (readonly [EntryFilter, string])[] = [
  ["all", "All"], ["text", "Text"], ["tools", "Tools"], ["changes", "Changes"],
];
const ENDED = new Set(["completed", "failed", "killed", "gone"]);

export function AgentPage({ agent: id }: { agent: string }) {
  const context = useRun();
  const agent = context.runView.agents.get(id);
  const transcript = useTranscript(context.session, id);
  const [filter, setFilter] = useState<EntryFilter>("all");
  const until = context.viewMode ? context.runView.at : 0;
  const { entries, streamed } = transcript;
  const conversation = useMemo(() => buildConversation(entries, filter, until), [entries, filter, until]);
  const isStreaming = !until && !!(streamed.text || streamed.thinking || streamed.tool);

  // Load older entries until the shown moment is reached.
  const first = entries[0];
  useEffect(() => {
    if (until && first && parseTime(first.at) > until && transcript.start > 0) void transcript.loadOlder();
  });

  if (!agent) {
    return <div class="page"><Empty title="No such agent">The agent has not started at this point, or the run has no agent with this name.</Empty></div>;
  }
  const tint = getTint(agent.color);
  return (
    <div class={`page page-agent ${tint.class}`} style={tint.style}>
      <header class="page-head">
        <h2><AgentName name={agent.name} agent={agent} link={false} /></h2>
        <StateMark state={agent.state} />
        <span class="agent-doing mono cut" title={agent.doing || agent.detail}>{agent.doing || agent.detail}</span>
        <Choices<EntryFilter> label="Show" value={filter} onChange={(value) => setFilter(value)} options={FILTERS} />
      </header>
      <div class="agent-body">
        <section class="agent-conversation" aria-label="Conversation">
          <Problem text={transcript.problem} />
          {!transcript.isLoaded && <p class="loading soft" role="status">Reading…</p>}
          {!conversation.rows.length && !isStreaming ? transcript.isLoaded && (
            <Empty title={entries.length ? "No such entries" : "No messages yet"} />
          ) : (
            <VirtualList count={conversation.rows.length + (isStreaming ? 1 : 0)} height={120} isMeasured follow role="log"
              label={`Conversation of ${agent.name}`} onTop={() => void transcript.loadOlder()}
              keyOf={makeKeyOf(conversation.rows)}>
              {(index) => {
                const entry = conversation.rows[index];
                return entry
                  ? <EntryRow entry={entry} context={{ transcript, conversation, filter, name: agent.name }} />
                  : <StreamedTextRow streamed={streamed} name={agent.name} />;
              }}
            </VirtualList>
          )}
          {context.canSteer && <SteerForm agent={agent} />}
        </section>
        <AgentFacts agent={agent} conversation={conversation} start={transcript.start} />
      </div>
    </div>
  );
}

const makeKeyOf = (rows: Conversation["rows"]) => (index: number) => String(rows[index]?.n ?? "streamed");

function SteerForm({ agent }: { agent: AgentRow }) {
  const { session } = useRun();
  const source = useSource();
  const [text, setText] = useState("");
  const [busy, problem, runAction] = useAction();
  const box = useRef<HTMLTextAreaElement>(null);
  const send = async () => {
    const message = text.trim();
    if (!message || busy) return;
    // Keep what was typed while the message was being sent.
    if (await runAction(() => source.sendMessage(session, agent.id, message))) setText((now) => (now.startsWith(text) ? now.slice(text.length) : now));
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
          placeholder={ended ? `${agent.name} has ended; a message resumes it`
            : agent.state === "down" ? `${agent.name} is down; a message restarts it` : `Tell ${agent.name} something`}
          onInput={(event) => setText(event.currentTarget.value)}
          onKeyDown={(event) => {
            if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
            event.preventDefault();
            void send();
          }} />
        <button class="main" type="submit" disabled={busy || !text.trim()}>Send</button>
      </div>
      <AgentActions agent={agent} busy={busy} runAction={runAction} />
    </form>
  );
}

function AgentActions({ agent, busy, runAction }: { agent: AgentRow; busy: boolean; runAction(action: () => Promise<unknown>): unknown }) {
  const { session, runView } = useRun();
  const source = useSource();
  const lead = !agent.parent;
  if (ENDED.has(agent.state)) return null;
  return (
    <div class="actions">
      {agent.state === "down" && (
        <button type="button" class="main" disabled={busy}
          onClick={() => runAction(() => source.controlAgent(session, "restart", agent.id))}>Restart</button>
      )}
      <button type="button" disabled={busy || agent.state === "idle" || agent.state === "down"}
        onClick={() => runAction(() => source.controlAgent(session, "interrupt", agent.id))}>Interrupt</button>
      {!lead && !agent.team && !agent.background && (
        <button type="button" disabled={busy} onClick={() => runAction(() => source.controlAgent(session, "background", agent.id))}>
          Move to background
        </button>
      )}
      <ConfirmButton class="bad" disabled={busy} label={lead ? "Stop the run" : "Stop"}
        question={lead ? "Really stop the whole run?" : `Really stop ${agent.name}?`}
        onConfirm={() => runAction(() => source.controlAgent(session, "stop", agent.id))} />
      {!lead && (
        <ConfirmButton class="bad" disabled={busy} label="Kill" question={`End ${agent.name} at once?`}
          onConfirm={() => runAction(() => source.controlAgent(session, "kill", agent.id))} />
      )}
      {lead && (
        <label class="actions-mode">Mode
          <select value={runView.run.mode} disabled={busy}
            onChange={(event) => {
              const { value } = event.currentTarget;
              runAction(() => source.setMode(session, value));
            }}>
            {[...new Set(["default", "acceptEdits", "plan", "dontAsk", runView.run.mode || "default"])].map((mode) => (
              <option key={mode}>{mode}</option>
            ))}
          </select>
        </label>
      )}
    </div>
  );
}

function AgentFacts({ agent, conversation, start }: { agent: AgentRow; conversation: Conversation; start: number }) {
  const context = useRun();
  const now = useNow();
  const facts: [string, preact.ComponentChildren][] = [
    ["Task", agent.task],
    ["Kind", agent.kind],
    ["Team", agent.team],
    ["Model", agent.model],
    ["Mode", agent.mode],
    ["Spent", <Cost usd={agent.usd} tokens={agent.tokens} priced={agent.priced} />],
    ["Work", `${formatQuantity(agent.requests, "request")}, ${formatQuantity(agent.tool_calls, "call")}`],
    ["Last active", context.runView.live ? `${formatClock(agent.heard)} (${formatAge(agent.heard, now)})` : formatClock(agent.heard)],
    ["Ended", agent.detail],
  ];
  return (
    <aside class="agent-facts" aria-label={`About ${agent.name}`}>
      {agent.question && (
        <p class="facts-ask"><a class="button" href={buildRunPath(context.session, "questions", "", context.viewMode)}>It is waiting for your answer</a></p>
      )}
      <dl>
        {facts.filter(([, value]) => value).map(([name, value]) => <div key={name}><dt>{name}</dt><dd>{value}</dd></div>)}
        {agent.waits_for.length > 0 && (
          <div><dt>Waits for</dt><dd class="names">{agent.waits_for.map((name) => <AgentName key={name} name={name} />)}</dd></div>
        )}
      </dl>
      <TallyList title="Tools" tallies={conversation.tools} />
      <TallyList title="Changed files" tallies={conversation.files} mono />
      {start > 0 && <p class="soft small">Only loaded entries; scroll up for more.</p>}
    </aside>
  );
}

function TallyList({ title, tallies, mono }: { title: string; tallies: readonly [string, number][]; mono?: boolean }) {
  if (!tallies.length) return null;
  return (
    <>
      <h3>{title}</h3>
      <ul class="tallies">
        {tallies.slice(0, 20).map(([name, times]) => (
          <li key={name}><span class={`cut ${mono ? "mono" : ""}`} title={name}>{name}</span> <span class="figures">{formatCount(times)}</span></li>
        ))}
      </ul>
    </>
  );
}
