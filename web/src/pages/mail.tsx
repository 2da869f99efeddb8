/** The mail of a run as a sequence diagram: a line for each who writes or reads, an arrow for each letter. */

import { useEffect, useMemo, useState } from "preact/hooks";
import { Choices, Empty, Time, Who, tint, useFit, useKept } from "../bits";
import { agentCalled, useRun, useSource } from "../context";
import { clock, oneLine, plural, seconds } from "../format";
import { called, linesFor, peopleIn, wanted } from "../letters";
import { Markdown } from "../markdown";
import { Drawer } from "../drawer";
import { letterKey, type RunState } from "../store";
import type { LetterRow } from "../types";
import { Windowed } from "../windowed";

const ROW = 44;
const TIMES = 72;
const FEWEST = 3;
const laneIn = (width: number): number => (width < 600 ? 76 : 132);

export function MailPage() {
  const { state } = useRun();
  const [look, setLook] = useKept<"all" | "messages">("mail", "all");
  const [words, setWords] = useState("");
  const [who, setWho] = useState("");
  const [shown, setShown] = useState("");
  const all = state.letters.list;
  const everybody = useMemo(() => peopleIn(all), [all]);
  const letters = useMemo(() => wanted(all, { words, who, messages: look === "messages" }), [all, words, who, look]);
  const chosen = state.letters.get(shown);
  const step = (by: number) => {
    const next = letters[letters.findIndex((each) => letterKey(each) === shown) + by];
    if (next) setShown(letterKey(next));
  };
  if (!all.length) return <div class="page"><Empty title="No mail yet">What members of a team write to each other appears here.</Empty></div>;
  return (
    <div class="page page-mail">
      <header class="page-head">
        <h2>Mail <span class="figures soft">{letters.length === state.lettersInAll ? letters.length : `${letters.length} of ${state.lettersInAll}`}</span></h2>
        <input type="search" value={words} placeholder="Search" aria-label="Search the mail" onInput={(event) => setWords(event.currentTarget.value)} />
        <select value={who} aria-label="Of or to" onChange={(event) => setWho(event.currentTarget.value)}>
          <option value="">everybody</option>
          {[...everybody.keys()].map((name) => <option key={name} value={name}>{name}</option>)}
        </select>
        <Choices label="Show" value={look} onChange={setLook} options={[["all", "All"], ["messages", "Messages"]]} />
        {all.length < state.lettersInAll && <span class="soft">the oldest are left out here: shoal inbox shows them</span>}
      </header>
      <div class="beside">
        {!letters.length && <Empty title="No letter is like that" />}
        {letters.length > 0 && <Diagram letters={letters} shown={shown} onShow={setShown} onStep={step} />}
        {chosen && <LetterDrawer key={letterKey(chosen)} letter={chosen} onClose={() => setShown("")} />}
      </div>
    </div>
  );
}

function Diagram({ letters, shown, onShow, onStep }: {
  letters: readonly LetterRow[];
  shown: string;
  onShow(key: string): void;
  onStep(by: number): void;
}) {
  const { state } = useRun();
  const [box, most] = useFit((width) => Math.max(FEWEST, Math.floor((width - TIMES) / laneIn(width))), FEWEST);
  const people = useMemo(() => linesFor(peopleIn(letters), most), [letters, most]);
  const lanes = useMemo(() => new Map(people.map((name, index) => [name, index])), [people]);
  const laneOf = (name: string) => lanes.get(called(name)) ?? people.length - 1;
  return (
    <div ref={box} class="sequence" onKeyDown={(event) => {
      if (event.key !== "ArrowDown" && event.key !== "ArrowUp") return;
      if (!shown) return;
      event.preventDefault();
      onStep(event.key === "ArrowDown" ? 1 : -1);
    }}>
      <div class="sequence-all" style={{ "--lanes": String(people.length) }}>
        <div class="sequence-heads">
          {people.map((name) => <Head key={name} name={name} state={state} />)}
        </div>
        <Windowed count={letters.length} height={ROW} keyOf={(index) => letterKey(letters[index]!)} label={plural(letters.length, "letter")}
          class="fill sequence-rows" follow show={shown || null}>
          {(index) => {
            const letter = letters[index]!;
            const named = lanes.has(called(letter.sender)) && lanes.has(called(letter.to));
            return (
              <Arrow letter={letter} from={laneOf(letter.sender)} to={laneOf(letter.to)} named={named} last={people.length - 1}
                chosen={letterKey(letter) === shown} state={state} onShow={onShow} />
            );
          }}
        </Windowed>
      </div>
    </div>
  );
}

function Head({ name, state }: { name: string; state: RunState }) {
  const agent = agentCalled(state, name);
  return <div class="sequence-head">{agent ? <Who name={name} agent={agent} /> : <span class="who tint">{name}</span>}</div>;
}

function Arrow({ letter, from, to, named, last, chosen, state, onShow }: {
  letter: LetterRow;
  from: number;
  to: number;
  /** Whether both have lines of their own. */
  named: boolean;
  last: number;
  chosen: boolean;
  state: RunState;
  onShow(key: string): void;
}) {
  const look = tint(agentCalled(state, letter.sender)?.color ?? "");
  const kind = letter.kind === "message" ? "" : "letter-protocol";
  const words = letter.summary || oneLine(letter.text) || letter.kind;
  const left = Math.min(from, to);
  // Behind the last lines there is no room, so these words stand before the arrow.
  const start = Math.max(0, Math.min(left, last - 2));
  return (
    <button type="button" class={`letter ${look.class} ${kind} ${chosen ? "letter-chosen" : ""}`} style={look.style} data-letter={letter.id}
      aria-label={`${called(letter.sender)} to ${called(letter.to)}, ${clock(letter.posted)}: ${words}`} onClick={() => onShow(letterKey(letter))}>
      <Time at={letter.posted} text={clock(letter.posted)} />
      <span class={`letter-line ${to < from ? "letter-back" : ""} ${letter.taken ? "" : "letter-waits"} ${to === from ? "letter-own" : ""}`}
        style={{ "--from": String(left), "--over": String(Math.abs(to - from)) }} />
      <span class={`letter-words ${start < left ? "letter-words-before" : ""}`}
        style={{ "--from": String(start), "--over": String(Math.max(Math.abs(to - from), Math.min(3, last - start))) }}>
        {!named && <span class="soft">{called(letter.sender)} → {called(letter.to)}: </span>}{words}
      </span>
    </button>
  );
}

function LetterDrawer({ letter, onClose }: { letter: LetterRow; onClose(): void }) {
  const { session, within } = useRun();
  const source = useSource();
  const [text, setText] = useState(letter.text);
  const [kept, setKept] = useState(true);
  useEffect(() => {
    let over = false;
    if (within || !source.steers) return;
    source.letter(session, letter).then((whole) => over || setText(whole.words), () => over || setKept(false));
    return () => {
      over = true;
    };
  }, [letter.id]);
  return (
    <Drawer title={letter.kind === "message" ? "Letter" : letter.kind.replaceAll("_", " ")} onClose={onClose}>
      <p class="letter-who"><Who name={letter.sender} /> <span class="arrow" aria-label="to">→</span> <Who name={letter.to} /></p>
      <dl class="facts">
        <dt>Posted</dt>
        <dd><Time at={letter.posted} text={clock(letter.posted)} /></dd>
        <dt>Taken</dt>
        <dd>{letter.taken ? <>{letter.taken - letter.posted < 50 ? "at once" : `after ${seconds((letter.taken - letter.posted) / 1000)}`}</> : "not yet"}</dd>
        <dt>Team</dt>
        <dd>{letter.team}</dd>
        {letter.fyi && <dt>Wakes</dt>}
        {letter.fyi && <dd>nobody: it is for information</dd>}
      </dl>
      {letter.summary && <p class="letter-summary">{letter.summary}</p>}
      <div class="letter-text"><Markdown text={text} /></div>
      {!kept && <p class="soft">Only its beginning is kept.</p>}
    </Drawer>
  );
}
