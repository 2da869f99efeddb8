/** Entries and blocks of a conversation. */

import { useState } from "preact/hooks";
import { AgentName, Time } from "./components";
import { Diff, countChanges } from "./diff";
import { formatClock, formatCount, makeVisible, parseTime, toOneLine } from "./format";
import { Markdown } from "./markdown";
import { isBlockShown, type Conversation, type EntryFilter, type StreamedText, type Transcript } from "./transcript";
import type { Block, Entry } from "./types";

const FIRST_LINES = 12;

interface EntryContext {
  transcript: Transcript;
  conversation: Conversation;
  filter: EntryFilter;
  name: string;
}

export function EntryRow({ entry, context }: { entry: Entry; context: EntryContext }) {
  return (
    <article class={`entry-row by-${entry.by || entry.role}`}>
      <header><strong>{getSpeaker(entry, context.name)}</strong> <Time at={entry.at} text={formatClock(parseTime(entry.at))} /></header>
      {entry.blocks.map((block, index) =>
        isBlockShown(block, context.filter, context.conversation.calls)
          ? <BlockView key={index} block={block} entry={entry} id={`${entry.n}.${index}`} context={context} />
          : null,
      )}
    </article>
  );
}

function getSpeaker(entry: Entry, name: string): string {
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

function BlockView({ block, entry, id, context }: { block: Block; entry: Entry; id: string; context: EntryContext }) {
  switch (block.type) {
    case "text":
      return <><Markdown text={block.text ?? ""} /><ShowAllButton block={block} n={entry.n} transcript={context.transcript} /></>;
    case "letter":
      return <MailBlock block={block} n={entry.n} transcript={context.transcript} />;
    case "thinking":
      return <ThinkingBlock block={block} id={id} n={entry.n} transcript={context.transcript} />;
    case "tool_use":
      return <ToolCall block={block} id={id} n={entry.n} context={context} />;
    case "tool_result":
      return <ToolOutput block={block} n={entry.n} transcript={context.transcript} />;
    case "image":
      return <ImageBlock block={block} n={entry.n} transcript={context.transcript} />;
    default:
      return <p class="soft">({block.type})</p>;
  }
}

/** A mail message that the agent received. */
function MailBlock({ block, n, transcript }: { block: Block; n: number; transcript: Transcript }) {
  return (
    <div class="mail-block">
      <p>
        <AgentName name={block.sender ?? ""} />
        {block.verified === false && <span class="pill pill-gone">not verified</span>}
        <span class="soft cut">{block.summary}</span>
      </p>
      <Markdown text={block.text ?? ""} />
      <ShowAllButton block={block} n={n} transcript={transcript} />
    </div>
  );
}

/** State of a part that a person can open or close; kept while it is not visible. */
function useToggle(transcript: Transcript, id: string, first: boolean): [boolean, () => void] {
  const [open, setOpen] = useState(transcript.opened.get(id) ?? first);
  return [
    open,
    () => {
      transcript.opened.set(id, !open);
      setOpen(!open);
    },
  ];
}

function ThinkingBlock({ block, id, n, transcript }: { block: Block; id: string; n: number; transcript: Transcript }) {
  const [open, toggle] = useToggle(transcript, id, false);
  const text = block.text ?? "";
  return (
    <div class="thinking">
      <button type="button" class="fold" aria-expanded={open} onClick={toggle}>
        <span class="fold-mark" aria-hidden="true" />thought
        {!open && <span class="cut">{toOneLine(text)}</span>}
      </button>
      {open && <><Markdown text={text} /><ShowAllButton block={block} n={n} transcript={transcript} /></>}
    </div>
  );
}

function ToolCall({ block, id, n, context }: { block: Block; id: string; n: number; context: EntryContext }) {
  const result = context.conversation.results.get(block.id ?? "");
  const failed = !!result?.block.is_error;
  const [open, toggle] = useToggle(context.transcript, id, !!block.diff || failed);
  const [added, removed] = block.diff ? countChanges(block.diff) : [0, 0];
  return (
    <div class={`call ${failed ? "call-failed" : ""}`}>
      <button type="button" class="fold" aria-expanded={open} onClick={toggle}>
        <span class="fold-mark" aria-hidden="true" />
        <strong>{block.name}</strong>
        <span class="cut mono">{summarizeInput(block.input)}</span>
        {block.diff && <span class="figures"><ins>+{added}</ins> <del>−{removed}</del></span>}
        {failed && <span class="pill pill-gone">failed</span>}
        {!result && <span class="pill">no result yet</span>}
      </button>
      {open && (
        <div class="call-body">
          {block.diff ? <Diff text={block.diff} label={`Changes to ${summarizeInput(block.input)}`} /> : <ToolInput input={block.input} />}
          <ShowAllButton block={block} n={n} transcript={context.transcript} />
          {result && <ToolOutput block={result.block} n={result.n} transcript={context.transcript} />}
        </div>
      )}
    </div>
  );
}

/** Summarizes a tool input in one line: command, file or first text. */
function summarizeInput(input: unknown): string {
  if (typeof input === "string") return toOneLine(input);
  const fields = (input ?? {}) as Record<string, unknown>;
  for (const key of ["command", "file_path", "path", "pattern", "query", "url", "description", "subject", "to"]) {
    if (typeof fields[key] === "string" && fields[key]) return toOneLine(fields[key] as string);
  }
  const first = Object.values(fields).find((each) => typeof each === "string");
  return toOneLine(typeof first === "string" ? first : "");
}

export function ToolInput({ input }: { input: unknown }) {
  const fields = Object.entries((input ?? {}) as Record<string, unknown>);
  if (!fields.length) return null;
  return (
    <dl class="input">
      {fields.map(([key, value]) => (
        <div key={key}>
          <dt>{makeVisible(key)}</dt>
          <dd><pre>{makeVisible(typeof value === "string" ? value : JSON.stringify(value, null, 2))}</pre></dd>
        </div>
      ))}
    </dl>
  );
}

function ToolOutput({ block, n, transcript }: { block: Block; n: number; transcript: Transcript }) {
  const text = block.text ?? "";
  const lines = text.replace(/\n$/, "").split("\n");
  const id = `${n}.output.${block.tool_use_id ?? ""}`;
  const [whole, toggle] = useToggle(transcript, id, lines.length <= FIRST_LINES + 4);
  if (!text) return <p class="soft output-none">no output</p>;
  return (
    <div class={`output ${block.is_error ? "output-error" : ""}`}>
      <pre tabIndex={0} aria-label="Output">{whole ? text : lines.slice(0, FIRST_LINES).join("\n")}</pre>
      {!whole && <button type="button" class="more" onClick={toggle}>Show all {lines.length} lines</button>}
      {whole && <ShowAllButton block={block} n={n} transcript={transcript} />}
    </div>
  );
}

function ImageBlock({ block, n, transcript }: { block: Block; n: number; transcript: Transcript }) {
  if (block.url) return <p class="soft">(an image at {block.url})</p>;
  if (!block.data || !/^image\/(png|jpeg|gif|webp)$/.test(block.media_type ?? "")) {
    return <p class="soft">(an image) <ShowAllButton block={block} n={n} transcript={transcript} /></p>;
  }
  return <img class="image" src={`data:${block.media_type};base64,${block.data}`} alt="Image in the conversation" />;
}

/** Loads the rest of a shortened entry. */
function ShowAllButton({ block, n, transcript }: { block: Block; n: number; transcript: Transcript }) {
  const [problem, setProblem] = useState("");
  if (!block.cut) return null;
  const loadRest = () => transcript.loadWholeEntry(n).catch((error: Error) => setProblem(error.message));
  return (
    <button type="button" class="more" onClick={loadRest}>
      {problem || `Show all ${formatCount(block.cut)} characters`}
    </button>
  );
}

/** Row of the text that is streamed now. */
export function StreamedTextRow({ streamed, name }: { streamed: StreamedText; name: string }) {
  return (
    <article class="entry-row by-model streamed" aria-live="off">
      <header><strong>{name}</strong> <span class="state state-working"><i aria-hidden="true" />now</span></header>
      {streamed.thinking && !streamed.text && <p class="streamed-thinking">{streamed.thinking.slice(-600)}</p>}
      {streamed.text && <Markdown text={streamed.text} />}
      {streamed.tool && <p class="mono cut">{streamed.tool.split("\n").at(-1)}</p>}
    </article>
  );
}
