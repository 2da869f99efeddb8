/** Formats numbers and times in the same way as src/shoal/core/text_format.py. */

export function formatCount(value: number): string {
  if (value < 1_000) return String(value);
  if (value < 999_950) return `${(value / 1_000).toFixed(1)}k`;
  return `${(value / 1_000_000).toFixed(1)}M`;
}

export function formatDollars(usd: number): string {
  if (usd === 0) return "$0";
  return usd >= 1 ? `$${usd.toFixed(2)}` : `$${usd.toFixed(4)}`;
}

export function formatDuration(value: number): string {
  if (value < 10) return `${Math.max(0, value).toFixed(1)} s`;
  if (value < 60) return `${value.toFixed(0)} s`;
  const minutes = Math.floor(Math.round(value) / 60);
  if (minutes < 60) return `${minutes} min ${String(Math.round(value) % 60).padStart(2, "0")} s`;
  if (minutes < 2_880) return `${Math.floor(minutes / 60)} h ${String(minutes % 60).padStart(2, "0")} min`;
  return `${Math.floor(minutes / 1_440)} days`;
}

/** Formats the time since a moment, without tenths, so that lists do not flicker. */
export function formatAge(then: number, now: number): string {
  const passed = Math.max(0, (now - then) / 1000);
  if (passed < 5) return "now";
  if (passed < 60) return `${Math.floor(passed)} s`;
  if (passed < 3_600) return `${Math.floor(passed / 60)} min`;
  if (passed < 86_400) return `${Math.floor(passed / 3_600)} h`;
  return `${Math.floor(passed / 86_400)} d`;
}

const CLOCK = new Intl.DateTimeFormat(undefined, {
  hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23",
});
const THIS_YEAR = new Intl.DateTimeFormat(undefined, {
  month: "short", day: "numeric", hour: "2-digit", minute: "2-digit", hourCycle: "h23",
});
const DAY = new Intl.DateTimeFormat(undefined, {
  year: "numeric", month: "short", day: "numeric", hour: "2-digit", minute: "2-digit", hourCycle: "h23",
});

export const formatClock = (at: number): string => (at ? CLOCK.format(at) : "");
export function formatDay(at: number): string {
  if (!at) return "";
  return (new Date(at).getFullYear() === new Date().getFullYear() ? THIS_YEAR : DAY).format(at);
}

export function formatQuantity(number: number, one: string, many = `${one}s`): string {
  return `${number.toLocaleString("en")} ${number === 1 ? one : many}`;
}

/** Shortens a path to its last two parts. */
export function shortenPath(path: string): string {
  const parts = path.split("/").filter(Boolean);
  return parts.length > 2 ? `…/${parts.slice(-2).join("/")}` : path;
}

export function toOneLine(text: string): string {
  return text.replace(/\s+/g, " ").trim();
}

export function parseTime(at: number | string | undefined): number {
  if (typeof at === "number") return at;
  return at ? Date.parse(at) || 0 : 0;
}

const UNSHOWABLE = /[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]/g;
/** Runs of blanks that could push the rest of a line off the screen. */
const LONG_BLANK_RUN = /(?:[^\S\n\u2028\u2029]|[\u115f\u1160\u2800\u3164\uffa0]){41,}/g;
const EMPTY_LINES = /(?:^[^\S\n]*\n){6,}/gm;
const HIDING_MARKDOWN = /[<&|[\]\\]|~~~|^(?: {4}|\t)/m;
const PLAIN_FENCE = /^ {0,3}```[\w+.-]* *$/;
const MAX_CODE_WIDTH = 60;

/** Writes characters and gaps that a person would not see, in a text that is approved. Leaves nothing out. */
export function makeVisible(text: string): string {
  return text
    .replace(LONG_BLANK_RUN, (blanks) => `[… ${blanks.length} ${/^ +$/.test(blanks) ? "spaces" : "blank characters"} …]`)
    .replace(EMPTY_LINES, (lines) => `[… ${lines.split("\n").length - 1} empty lines …]\n`)
    .replace(UNSHOWABLE, (each) => `\\u${each.charCodeAt(0).toString(16).padStart(4, "0")}`);
}

/** Tells if a part of the text could be invisible when it is rendered as Markdown. */
export function hidesTextAsMarkdown(text: string): boolean {
  if (HIDING_MARKDOWN.test(text) || makeVisible(text) !== text) return true;
  let inside = false;
  for (const line of text.split("\n")) {
    if (line.trimStart().startsWith("```")) {
      if (!PLAIN_FENCE.test(line)) return true;
      inside = !inside;
    } else if (inside && line.length > MAX_CODE_WIDTH) return true;
  }
  return inside;
}
