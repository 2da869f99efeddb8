/** Mail of a run as a sequence diagram: one lane per member, one arrow per message. */

import { useEffect, useMemo, useState } from "preact/hooks";
import { AgentName, Choices, Empty, Time, getTint, useFit, useStoredChoice } from "../components";
import { findAgentByName, useRun, useSource } from "../context";
import { formatClock, formatDuration, formatQuantity, toOneLine } from "../format";
import { chooseLanes, countMailByPerson, filterMail, formatMailName } from "../mail";
import { Markdown } from "../markdown";
import { Drawer } from "../drawer";
import { makeMailKey, type RunView } from "../store";
import type { MailRow } from "../types";
import { VirtualList } from "../virtual_list";

const ROW_HEIGHT = 44;
const TIME_WIDTH = 72;
const MIN_LANES = 3;
const getLaneWidth = (width: number): number => (width < 600 ? 76 : 132);

export function MailPage() {
  const { runView } = useRun();
  const [shownKinds, setShownKinds] = useStoredChoice<"all" | "messages">("mail", "all");
  const [query, setQuery] = useState("");
  const [who, setWho] = useState("");
  const [shown, setShown] = useState("");
  const all = runView.mail.list;
  const everybody = useMemo(() => countMailByPerson(all), [all]);
  const mail = useMemo(() => filterMail(all, { query, who, onlyMessages: shownKinds === "messages" }), [all, query, who, shownKinds]);
  const chosen = runView.mail.get(shown);
  const selectNext = (by: number) => {
    const next = mail[mail.findIndex((each) => makeMailKey(each) === shown) + by];
    if (next) setShown(makeMailKey(next));
  };
  if (!all.length) return <div class="page"><Empty title="No mail yet">Mail between members of a team appears here.</Empty></div>;
  return (
    <div class="page page-mail">
      <header class="page-head">
        <h2>Mail <span class="figures soft">{mail.length === runView.mailTotal ? mail.length : `${mail.length} of ${runView.mailTotal}`}</span></h2>
        <input type="search" value={query} placeholder="Search" aria-label="Search the mail" onInput={(event) => setQuery(event.currentTarget.value)} />
        <select value={who} aria-label="From or to" onChange={(event) => setWho(event.currentTarget.value)}>
          <option value="">everybody</option>
          {[...everybody.keys()].map((name) => <option key={name} value={name}>{name}</option>)}
        </select>
        <Choices label="Show" value={shownKinds} onChange={setShownKinds} options={[["all", "All"], ["messages", "Messages"]]} />
        {all.length < runView.mailTotal && <span class="soft">the oldest messages are not listed; use shoal inbox</span>}
      </header>
      <div class="with-drawer">
        {!mail.length && <Empty title="No message matches" />}
        {mail.length > 0 && <SequenceDiagram mail={mail} shown={shown} onShow={setShown} onStep={selectNext} />}
        {chosen && <MessageDrawer key={makeMailKey(chosen)} message={chosen} onClose={() => setShown("")} />}
      </div>
    </div>
  );
}

function SequenceDiagram({ mail, shown, onShow, onStep }: {
  mail: readonly MailRow[];
  shown: string;
  onShow(key: string): void;
  onStep(by: number): void;
}) {
  const { runView } = useRun();
  const [box, most] = useFit((width) => Math.max(MIN_LANES, Math.floor((width - TIME_WIDTH) / getLaneWidth(width))), MIN_LANES);
  const people = useMemo(() => chooseLanes(countMailByPerson(mail), most), [mail, most]);
  const lanes = useMemo(() => new Map(people.map((name, index) => [name, index])), [people]);
  const getLane = (name: string) => lanes.get(formatMailName(name)) ?? people.length - 1;
  return (
    <div ref={box} class="sequence" onKeyDown={(event) => {
      if (event.key !== "ArrowDown" && event.key !== "ArrowUp") return;
      if (!shown) return;
      event.preventDefault();
      onStep(event.key === "ArrowDown" ? 1 : -1);
    }}>
      <div class="sequence-body" style={{ "--lanes": String(people.length) }}>
        <div class="sequence-heads">
          {people.map((name) => <LaneHead key={name} name={name} runView={runView} />)}
        </div>
        <VirtualList count={mail.length} height={ROW_HEIGHT} keyOf={(index) => makeMailKey(mail[index]!)} label={formatQuantity(mail.length, "message")}
          class="fill sequence-rows" follow show={shown || null}>
          {(index) => {
            const message = mail[index]!;
            const named = lanes.has(formatMailName(message.sender)) && lanes.has(formatMailName(message.to));
            return (
              <MessageArrow message={message} from={getLane(message.sender)} to={getLane(message.to)} named={named} last={people.length - 1}
                chosen={makeMailKey(message) === shown} runView={runView} onShow={onShow} />
            );
          }}
        </VirtualList>
      </div>
    </div>
  );
}

function LaneHead({ name, runView }: { name: string; runView: RunView }) {
  const agent = findAgentByName(runView, name);
  return <div class="sequence-head">{agent ? <AgentName name={name} agent={agent} /> : <span class="agent-name tint">{name}</span>}</div>;
}

function MessageArrow({ message, from, to, named, last, chosen, runView, onShow }: {
  message: MailRow;
  from: number;
  to: number;
  /** True if sender and recipient have their own lanes. */
  named: boolean;
  last: number;
  chosen: boolean;
  runView: RunView;
  onShow(key: string): void;
}) {
  const tint = getTint(findAgentByName(runView, message.sender)?.color ?? "");
  const kind = message.kind === "message" ? "" : "message-protocol";
  const label = message.summary || toOneLine(message.text) || message.kind;
  const left = Math.min(from, to);
  // There is no space to the right of the last lanes, so the label is placed before the arrow.
  const start = Math.max(0, Math.min(left, last - 2));
  return (
    <button type="button" class={`message ${tint.class} ${kind} ${chosen ? "message-chosen" : ""}`} style={tint.style} data-message={message.id}
      aria-label={`${formatMailName(message.sender)} to ${formatMailName(message.to)}, ${formatClock(message.posted)}: ${label}`} onClick={() => onShow(makeMailKey(message))}>
      <Time at={message.posted} text={formatClock(message.posted)} />
      <span class={`message-line ${to < from ? "message-left" : ""} ${message.taken ? "" : "message-unread"} ${to === from ? "message-self" : ""}`}
        style={{ "--from": String(left), "--over": String(Math.abs(to - from)) }} />
      <span class={`message-label ${start < left ? "message-label-before" : ""}`}
        style={{ "--from": String(start), "--over": String(Math.max(Math.abs(to - from), Math.min(3, last - start))) }}>
        {!named && <span class="soft">{formatMailName(message.sender)} → {formatMailName(message.to)}: </span>}{label}
      </span>
    </button>
  );
}

function MessageDrawer({ message, onClose }: { message: MailRow; onClose(): void }) {
  const { session, viewMode } = useRun();
  const source = useSource();
  const [text, setText] = useState(message.text);
  const [isStored, setIsStored] = useState(true);
  useEffect(() => {
    let isDone = false;
    if (viewMode || !source.canSteer) return;
    source.loadMail(session, message).then((details) => isDone || setText(details.words), () => isDone || setIsStored(false));
    return () => {
      isDone = true;
    };
  }, [message.id]);
  return (
    <Drawer title={message.kind === "message" ? "Message" : message.kind.replaceAll("_", " ")} onClose={onClose}>
      <p class="message-route"><AgentName name={message.sender} /> <span class="arrow" aria-label="to">→</span> <AgentName name={message.to} /></p>
      <dl class="facts">
        <dt>Posted</dt>
        <dd><Time at={message.posted} text={formatClock(message.posted)} /></dd>
        <dt>Read</dt>
        <dd>{message.taken ? <>{message.taken - message.posted < 50 ? "at once" : `after ${formatDuration((message.taken - message.posted) / 1000)}`}</> : "not yet"}</dd>
        <dt>Team</dt>
        <dd>{message.team}</dd>
        {message.fyi && <dt>Wakes</dt>}
        {message.fyi && <dd>nobody (FYI)</dd>}
      </dl>
      {message.summary && <p class="message-summary">{message.summary}</p>}
      <div class="message-text"><Markdown text={text} /></div>
      {!isStored && <p class="soft">Only the beginning of this message is available.</p>}
    </Drawer>
  );
}
