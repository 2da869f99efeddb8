/** Renders Markdown of models as elements. HTML is shown as text, and nothing is fetched. */

import type { ComponentChildren, VNode } from "preact";
import { useMemo } from "preact/hooks";

export function Markdown({ text }: { text: string }) {
  const blocks = useMemo(() => renderBlocks(text.replace(/\r\n?/g, "\n").split("\n")), [text]);
  return <div class="markdown">{blocks}</div>;
}

const FENCE = /^ {0,3}(`{3,}|~{3,})\s*([\w+#.-]*)/;
const HEADING = /^ {0,3}(#{1,6})\s+(.*?)\s*#*$/;
const RULE = /^ {0,3}(?:(?:\*\s*){3,}|(?:-\s*){3,}|(?:_\s*){3,})$/;
const ITEM = /^(\s*)(?:([-*+])|(\d{1,9})[.)])\s+(.*)$/;
/** For a trimmed line. */
const DIVIDER = /^\|?\s*:?-+:?\s*(\|\s*:?-+:?\s*)*\|?$/;

/** Reads lines; each kind of block consumes its own. */
class LineReader {
  position = 0;
  constructor(readonly all: readonly string[]) {}
  get line(): string | undefined {
    return this.all[this.position];
  }
  get next(): string | undefined {
    return this.all[this.position + 1];
  }
}

function renderBlocks(all: readonly string[], depth = 0): VNode[] {
  const lines = new LineReader(all);
  const found: VNode[] = [];
  while (lines.line !== undefined) {
    const line = lines.line;
    if (!line.trim()) lines.position += 1;
    else found.push(renderBlock(lines, line, depth));
  }
  return found;
}

function renderBlock(lines: LineReader, line: string, depth: number): VNode {
  const fence = FENCE.exec(line);
  if (fence) return renderCode(lines, fence[1]!, fence[2]!);
  const heading = HEADING.exec(line);
  if (heading) {
    lines.position += 1;
    return <p role="heading" aria-level={Math.min(6, heading[1]!.length + 2)} class={`heading heading-${heading[1]!.length}`}>{renderInline(heading[2]!)}</p>;
  }
  if (RULE.test(line)) {
    lines.position += 1;
    return <hr />;
  }
  // Deeper nesting is shown as plain text.
  if (depth < 8) {
    if (/^ {0,3}>/.test(line)) return renderQuote(lines, depth);
    if (ITEM.test(line)) return renderList(lines, depth);
  }
  if (line.trim().lastIndexOf("|") > 0 && lines.next?.includes("-") && DIVIDER.test(lines.next.trim())) return renderTable(lines);
  return renderParagraph(lines, depth);
}

function renderCode(lines: LineReader, mark: string, language: string): VNode {
  const inside: string[] = [];
  for (lines.position += 1; lines.line !== undefined; lines.position += 1) {
    if (lines.line.trim().startsWith(mark) && !lines.line.trim().slice(mark.length).replaceAll(mark[0]!, "")) break;
    inside.push(lines.line);
  }
  lines.position += 1;
  return <pre class="code" tabIndex={0} aria-label={language ? `${language} code` : "code"}><code>{inside.join("\n")}</code></pre>;
}

function renderQuote(lines: LineReader, depth: number): VNode {
  const inside: string[] = [];
  for (; lines.line !== undefined && /^ {0,3}>/.test(lines.line); lines.position += 1) {
    inside.push(lines.line.replace(/^ {0,3}> ?/, ""));
  }
  return <blockquote>{renderBlocks(inside, depth + 1)}</blockquote>;
}

function renderList(lines: LineReader, depth: number): VNode {
  const first = ITEM.exec(lines.line!)!;
  const indent = first[1]!.length;
  const ordered = first[3] !== undefined;
  const items: VNode[] = [];
  let loose = false;
  while (lines.line !== undefined) {
    const item = ITEM.exec(lines.line);
    if (!item || item[1]!.length !== indent || (item[3] !== undefined) !== ordered) break;
    const inside = [item[4]!];
    for (lines.position += 1; lines.line !== undefined; lines.position += 1) {
      const line: string = lines.line;
      const spaces = /^\s*/.exec(line)![0].length;
      if (!line.trim()) {
        const after = lines.next;
        if (after === undefined || !after.trim() || (/^\s*/.exec(after)![0].length <= indent && !ITEM.test(after))) break;
        if (/^\s*/.exec(after)![0].length > indent) inside.push("");
        else loose = true;
      } else if (spaces > indent) inside.push(line.slice(Math.min(spaces, indent + (ordered ? 3 : 2))));
      else if (ITEM.test(line) || HEADING.test(line) || FENCE.test(line) || /^ {0,3}>/.test(line)) break;
      else inside.push(line);
    }
    const task = /^\[([ xX])\]\s+(.*)$/.exec(inside[0]!);
    if (task) inside[0] = `${task[1] === " " ? "☐" : "☑"} ${task[2]}`;
    const parts = renderBlocks(inside, depth + 1);
    // The paragraph of an item is rendered without paragraph margins.
    items.push(<li key={items.length}>{parts.map((part) => (part.type === "p" ? <div>{part.props.children}</div> : part))}</li>);
  }
  const shape = loose ? "loose" : undefined;
  return ordered ? <ol class={shape} start={Number(first[3])}>{items}</ol> : <ul class={shape}>{items}</ul>;
}

function splitCells(line: string): string[] {
  const inside = line.trim().replace(/^\|/, "").replace(/(?<!\\)\|$/, "");
  return inside.split(/(?<!\\)\|/).map((cell) => cell.trim().replaceAll("\\|", "|"));
}

function renderTable(lines: LineReader): VNode {
  const head = splitCells(lines.line!);
  const right = splitCells(lines.next!).map((cell) => cell.endsWith(":"));
  const rows: string[][] = [];
  for (lines.position += 2; lines.line !== undefined && lines.line.includes("|"); lines.position += 1) rows.push(splitCells(lines.line));
  const side = (index: number) => (right[index] ? "right" : undefined);
  return (
    <div class="table-box" tabIndex={0} role="group" aria-label="table">
      <table>
        <thead><tr>{head.map((cell, index) => <th key={index} class={side(index)}>{renderInline(cell)}</th>)}</tr></thead>
        <tbody>
          {rows.map((row, number) => (
            <tr key={number}>{head.map((_, index) => <td key={index} class={side(index)}>{renderInline(row[index] ?? "")}</td>)}</tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function renderParagraph(lines: LineReader, depth: number): VNode {
  const inside = [lines.line!];
  for (lines.position += 1; lines.line !== undefined; lines.position += 1) {
    const line: string = lines.line;
    if (!line.trim() || FENCE.test(line) || HEADING.test(line) || RULE.test(line)) break;
    if (depth < 8 && (/^ {0,3}>/.test(line) || /^\s*(?:[-*+]|1[.)])\s+\S/.test(line))) break;
    inside.push(line);
  }
  const parts: ComponentChildren[] = [];
  inside.forEach((line, index) => {
    if (index) parts.push(/ {2}$|\\$/.test(inside[index - 1]!) ? <br /> : "\n");
    parts.push(...renderInline(line.trim().replace(/\\$/, "")));
  });
  return <p>{parts}</p>;
}

const INLINE = new RegExp(
  [
    // At most nine backticks, to avoid slow matching of a long run of them.
    "(?<!`)(`{1,9})(?!`)(.+?)(?<!`)\\1(?!`)",
    "\\*\\*(\\S(?:.*?\\S)?)\\*\\*",
    "__(\\S(?:.*?\\S)?)__(?!\\w)",
    "~~(\\S(?:.*?\\S)?)~~",
    "\\*([^\\s*](?:[^*]*[^\\s*])?)\\*",
    "(?<![\\w_])_([^\\s_](?:[^_]*[^\\s_])?)_(?![\\w_])",
    "!?\\[([^\\]\\n]{0,500})\\]\\(([^()\\s]{1,2000}(?:\\([^()\\s]*\\))?)(?:\\s+\"[^\"]*\")?\\)",
    "(https?://[^\\s<>()\\[\\]`\"']{1,2000})",
    "\\\\([!-/:-@\\[-`{-~])",
  ].join("|"),
);
/** Longer lines are shown as plain text, without inline markup. */
const LONG_LINE = 20_000;

function renderInline(text: string, depth = 0): ComponentChildren[] {
  if (text.length > LONG_LINE || depth > 6) return [text];
  const found: ComponentChildren[] = [];
  let rest = text;
  for (let match = INLINE.exec(rest); match; match = INLINE.exec(rest)) {
    if (match.index) found.push(rest.slice(0, match.index));
    found.push(renderMatch(match, depth));
    rest = rest.slice(match.index + match[0].length);
  }
  if (rest) found.push(rest);
  return found;
}

function renderMatch(match: RegExpExecArray, depth: number): ComponentChildren {
  const [whole, , inCode, bold, alsoBold, struck, italic, alsoItalic, label, target, address, escaped] = match;
  const inside = (text: string) => renderInline(text, depth + 1);
  if (inCode !== undefined) return <code>{inCode.replace(/^ (.+) $/, "$1")}</code>;
  if (bold ?? alsoBold) return <strong>{inside((bold ?? alsoBold)!)}</strong>;
  if (struck) return <del>{inside(struck)}</del>;
  if (italic ?? alsoItalic) return <em>{inside((italic ?? alsoItalic)!)}</em>;
  if (target !== undefined) return renderLink(target, label ? inside(label) : [target], whole);
  if (address) {
    const clean = address.replace(/[.,;:!?]+$/, "");
    return <>{renderLink(clean, [clean], clean)}{address.slice(clean.length)}</>;
  }
  return escaped ?? whole;
}

/** Renders a link. Only web and mail addresses are clickable; the title shows the target. */
function renderLink(target: string, content: ComponentChildren[], whole: string): ComponentChildren {
  if (!/^https?:\/\/|^mailto:/i.test(target)) return whole.startsWith("[") || whole.startsWith("!") ? <>{content} <code>{target}</code></> : whole;
  return <a href={target} title={target} target="_blank" rel="noopener noreferrer nofollow">{content}</a>;
}
