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
