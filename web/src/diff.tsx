/** Line diffs. */

import { useMemo, useState } from "preact/hooks";

export type Change = " " | "-" | "+";

const FIRST_LINES = 60;

/** Shows a unified diff. */
export function Diff({ text, label = "Changes" }: { text: string; label?: string }) {
  const lines = useMemo(() => text.replace(/\n$/, "").split("\n"), [text]);
  return <DiffLines lines={lines} label={label} />;
}

/** Shows the diff of two texts. */
export function TextDiff({ before, after, label }: { before: string; after: string; label: string }) {
  const lines = useMemo(() => diffLines(before.trimEnd().split("\n"), after.trimEnd().split("\n")), [before, after]);
  return <DiffLines lines={lines} label={label} />;
}

function DiffLines({ lines, label }: { lines: readonly string[]; label: string }) {
  const [whole, setWhole] = useState(false);
  const shown = whole ? lines : lines.slice(0, FIRST_LINES);
  return (
    <div class="diff" role="group" aria-label={label}>
      <pre tabIndex={0}>
        {shown.map((line, index) => <DiffLine key={index} line={line} />)}
      </pre>
      {lines.length > shown.length && (
        <button type="button" class="more" onClick={() => setWhole(true)}>Show all {lines.length} lines</button>
      )}
    </div>
  );
}

function DiffLine({ line }: { line: string }) {
  if (/^(---|\+\+\+) /.test(line) || line.startsWith("@@")) return <span class="diff-header">{line}{"\n"}</span>;
  if (line.startsWith("+")) return <ins>{line}{"\n"}</ins>;
  if (line.startsWith("-")) return <del>{line}{"\n"}</del>;
  return <span>{line}{"\n"}</span>;
}

export function countChanges(text: string): [added: number, removed: number] {
  let added = 0;
  let removed = 0;
  for (const line of text.split("\n")) {
    if (line.startsWith("+") && !line.startsWith("+++ ")) added += 1;
    else if (line.startsWith("-") && !line.startsWith("--- ")) removed += 1;
  }
  return [added, removed];
}

/** Computes a line diff with the longest common subsequence. */
export function diffLines(before: readonly string[], after: readonly string[]): string[] {
  const wide = after.length + 1;
  if (before.length * wide > 4_000_000) return [...before.map((line) => `-${line}`), ...after.map((line) => `+${line}`)];
  const common = new Uint32Array((before.length + 1) * wide);
  for (let i = before.length - 1; i >= 0; i -= 1) {
    for (let j = after.length - 1; j >= 0; j -= 1) {
      common[i * wide + j] = before[i] === after[j]
        ? common[(i + 1) * wide + j + 1]! + 1
        : Math.max(common[(i + 1) * wide + j]!, common[i * wide + j + 1]!);
    }
  }
  const found: string[] = [];
  let i = 0;
  let j = 0;
  while (i < before.length || j < after.length) {
    if (i < before.length && j < after.length && before[i] === after[j]) {
      found.push(` ${before[i]}`);
      i += 1;
      j += 1;
    } else if (i < before.length && (j >= after.length || common[(i + 1) * wide + j]! >= common[i * wide + j + 1]!)) {
      found.push(`-${before[i]}`);
      i += 1;
    } else {
      found.push(`+${after[j]}`);
      j += 1;
    }
  }
  return found;
}
