/** The parts of a conversation as a person reads them. */

import { useState } from "preact/hooks";
import { Time, Who } from "./bits";
import { Diff, countChanges } from "./diff";
import { clock, count, oneLine, when } from "./format";
import { Markdown } from "./markdown";
import { wanted, type Only, type Said, type Told, type Transcript } from "./transcript";
import type { Block, Entry } from "./types";

const FIRST_LINES = 12;

interface Shown {
  transcript: Transcript;
  told: Told;
  only: Only;
  name: string;
}

export function EntryRow({ entry, shown }: { entry: Entry; shown: Shown }) {
  return (
    <article class={`entry-row by-${entry.by || entry.role}`}>
      <header><strong>{speaker(entry, shown.name)}</strong> <Time at={entry.at} text={clock(when(entry.at))} /></header>
      {entry.blocks.map((block, index) =>
        wanted(block, shown.only, shown.told.calls)
          ? <Part key={index} block={block} entry={entry} id={`${entry.n}.${index}`} shown={shown} />
          : null,
      )}
    </article>
  );
}

function speaker(entry: Entry, name: string): string {
  switch (entry.by || entry.role) {
    case "person":
      return "you";
    case "model":
    case "assistant":
      return name;
    case "tool":
      return "tool";
    case "agent":
      return "mail";
    default:
      return "Shoal";
  }
}

function Part({ block, entry, id, shown }: { block: Block; entry: Entry; id: string; shown: Shown }) {
  switch (block.type) {
    case "text":
      return <><Markdown text={block.text ?? ""} /><Whole block={block} n={entry.n} transcript={shown.transcript} /></>;
    case "letter":
      return <Letter block={block} n={entry.n} transcript={shown.transcript} />;
    case "thinking":
      return <Thinking block={block} id={id} n={entry.n} transcript={shown.transcript} />;
    case "tool_use":
      return <Call block={block} id={id} n={entry.n} shown={shown} />;
    case "tool_result":
      return <Output block={block} n={entry.n} transcript={shown.transcript} />;
    case "image":
      return <Picture block={block} n={entry.n} transcript={shown.transcript} />;
    default:
      return <p class="soft">({block.type})</p>;
  }
}

/** A letter that an agent was handed, apart from all others. */
function Letter({ block, n, transcript }: { block: Block; n: number; transcript: Transcript }) {
  return (
    <div class="envelope">
      <p>
        <Who name={block.sender ?? ""} />
        {block.verified === false && <span class="pill pill-gone">not verified</span>}
        <span class="soft cut">{block.summary}</span>
      </p>
      <Markdown text={block.text ?? ""} />
      <Whole block={block} n={n} transcript={transcript} />
    </div>
  );
}

/** A part that a person opens or closes; it stays so while it is out of sight. */
function useOpened(transcript: Transcript, id: string, first: boolean): [boolean, () => void] {
  const [open, setOpen] = useState(transcript.opened.get(id) ?? first);
  return [
    open,
    () => {
      transcript.opened.set(id, !open);
      setOpen(!open);
    },
  ];
}

function Thinking({ block, id, n, transcript }: { block: Block; id: string; n: number; transcript: Transcript }) {
  const [open, toggle] = useOpened(transcript, id, false);
  const text = block.text ?? "";
  return (
    <div class="thinking">
      <button type="button" class="fold" aria-expanded={open} onClick={toggle}>
        <span class="fold-mark" aria-hidden="true" />thought
        {!open && <span class="cut">{oneLine(text)}</span>}
      </button>
      {open && <><Markdown text={text} /><Whole block={block} n={n} transcript={transcript} /></>}
    </div>
  );
}

function Call({ block, id, n, shown }: { block: Block; id: string; n: number; shown: Shown }) {
  const result = shown.told.results.get(block.id ?? "");
  const failed = !!result?.block.is_error;
  const [open, toggle] = useOpened(shown.transcript, id, !!block.diff || failed);
  const [added, removed] = block.diff ? countChanges(block.diff) : [0, 0];
  return (
    <div class={`call ${failed ? "call-failed" : ""}`}>
      <button type="button" class="fold" aria-expanded={open} onClick={toggle}>
        <span class="fold-mark" aria-hidden="true" />
        <strong>{block.name}</strong>
        <span class="cut mono">{gist(block.input)}</span>
        {block.diff && <span class="figures"><ins>+{added}</ins> <del>−{removed}</del></span>}
        {failed && <span class="pill pill-gone">failed</span>}
        {!result && <span class="pill">no result yet</span>}
      </button>
      {open && (
        <div class="call-inside">
          {block.diff ? <Diff text={block.diff} label={`Changes of ${gist(block.input)}`} /> : <Input input={block.input} />}
          <Whole block={block} n={n} transcript={shown.transcript} />
          {result && <Output block={result.block} n={result.n} transcript={shown.transcript} />}
        </div>
      )}
    </div>
  );
}

/** What a call is about, in a line: its command, its file, or its first words. */
function gist(input: unknown): string {
  if (typeof input === "string") return oneLine(input);
  const fields = (input ?? {}) as Record<string, unknown>;
  for (const key of ["command", "file_path", "path", "pattern", "query", "url", "description", "subject", "to"]) {
    if (typeof fields[key] === "string" && fields[key]) return oneLine(fields[key] as string);
  }
  const first = Object.values(fields).find((each) => typeof each === "string");
  return oneLine(typeof first === "string" ? first : "");
}

export function Input({ input }: { input: unknown }) {
  const fields = Object.entries((input ?? {}) as Record<string, unknown>);
  if (!fields.length) return null;
  return (
    <dl class="input">
      {fields.map(([key, value]) => (
        <div key={key}>
          <dt>{key}</dt>
          <dd><pre>{typeof value === "string" ? value : JSON.stringify(value, null, 2)}</pre></dd>
        </div>
      ))}
    </dl>
  );
}

function Output({ block, n, transcript }: { block: Block; n: number; transcript: Transcript }) {
  const text = block.text ?? "";
  const lines = text.replace(/\n$/, "").split("\n");
  const id = `${n}.output.${block.tool_use_id ?? ""}`;
  const [whole, toggle] = useOpened(transcript, id, lines.length <= FIRST_LINES + 4);
  if (!text) return <p class="soft output-none">no output</p>;
  return (
    <div class={`output ${block.is_error ? "output-error" : ""}`}>
      <pre tabIndex={0} aria-label="Output">{whole ? text : lines.slice(0, FIRST_LINES).join("\n")}</pre>
      {!whole && <button type="button" class="more" onClick={toggle}>Show all {lines.length} lines</button>}
      {whole && <Whole block={block} n={n} transcript={transcript} />}
    </div>
  );
}

function Picture({ block, n, transcript }: { block: Block; n: number; transcript: Transcript }) {
  if (block.url) return <p class="soft">(a picture at {block.url})</p>;
  if (!block.data || !/^image\/(png|jpeg|gif|webp)$/.test(block.media_type ?? "")) {
    return <p class="soft">(a picture) <Whole block={block} n={n} transcript={transcript} /></p>;
  }
  return <img class="picture" src={`data:${block.media_type};base64,${block.data}`} alt="A picture of the conversation" />;
}

/** Asks for the rest of what was cut. */
function Whole({ block, n, transcript }: { block: Block; n: number; transcript: Transcript }) {
  const [problem, setProblem] = useState("");
  if (!block.cut) return null;
  const ask = () => transcript.whole(n).catch((error: Error) => setProblem(error.message));
  return (
    <button type="button" class="more" onClick={ask}>
      {problem || `Show all of it, ${count(block.cut)} characters`}
    </button>
  );
}

/** What is being said and is in no entry yet. */
export function SaidRow({ said, name }: { said: Said; name: string }) {
  return (
    <article class="entry-row by-model said" aria-live="off">
      <header><strong>{name}</strong> <span class="state state-working"><i aria-hidden="true" />now</span></header>
      {said.thinking && !said.text && <p class="said-thinking">{said.thinking.slice(-600)}</p>}
      {said.text && <Markdown text={said.text} />}
      {said.tool && <p class="mono cut">{said.tool.split("\n").at(-1)}</p>}
    </article>
  );
}
