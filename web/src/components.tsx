/** Small components and hooks that many pages use. */

import type { ComponentChildren, RefObject } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { buildAgentPath, findAgentByName, useRun } from "./context";
import { formatCount, formatDollars, parseTime } from "./format";
import type { RunView } from "./store";
import type { AgentRow, AgentState } from "./types";

const TINT_NAMES = new Set(["blue", "green", "yellow", "purple", "orange", "pink", "cyan", "red"]);
const HEX = /^#[0-9a-f]{6}$/i;

/** Returns the class of an agent's color; for a custom color also the style. */
export function getTint(color: string): { class: string; style?: Record<string, string> } {
  if (TINT_NAMES.has(color)) return { class: `tint tint-${color}` };
  if (HEX.test(color)) return { class: "tint", style: { "--tint": color } };
  return { class: "tint" };
}

const STATE_LABELS: Record<AgentState, string> = {
  working: "working", waiting: "waiting", idle: "idle", completed: "done", failed: "failed",
  killed: "stopped", gone: "gone", down: "down",
};

export const formatAgentState = (state: AgentState): string => STATE_LABELS[state] ?? state;

export function StateMark({ state, showLabel = true }: { state: AgentState; showLabel?: boolean }) {
  return (
    <span class={`state state-${state}`}>
      <i aria-hidden="true" />
      {showLabel ? formatAgentState(state) : <span class="visually-hidden">{formatAgentState(state)}</span>}
    </span>
  );
}

/** Name of an agent in its color, linked to its page. */
export function AgentName({ name, agent, link = true }: { name: string; agent?: AgentRow; link?: boolean }) {
  const context = useRun();
  const known = agent ?? findAgentByName(context.runView, name);
  const tint = getTint(known?.color ?? "");
  const inside = (
    <>
      <i aria-hidden="true" />
      {name}
    </>
  );
  if (!known || !link) return <span class={`agent-name ${tint.class}`} style={tint.style}>{inside}</span>;
  return <a class={`agent-name ${tint.class}`} style={tint.style} href={buildAgentPath(context, known)}>{inside}</a>;
}

export function Cost({ usd, tokens, priced = true }: { usd: number; tokens: number; priced?: boolean }) {
  return (
    <span class="figures">
      {usd > 0 || priced ? formatDollars(usd) : ""}
      {!priced && <span title="Some requests have no known price">{usd > 0 ? "+" : ""}?</span>} · {formatCount(tokens)}
    </span>
  );
}

export function Time({ at, text }: { at: number | string; text: string }) {
  const moment = parseTime(at);
  if (!moment) return <span />;
  return <time dateTime={new Date(moment).toISOString()} title={new Date(moment).toLocaleString()}>{text}</time>;
}

export function Empty({ title, children }: { title: string; children?: ComponentChildren }) {
  return (
    <div class="empty">
      <svg viewBox="0 0 64 40" width="64" height="40" aria-hidden="true">
        <path d="M4 20c8-12 22-12 32 0-10 12-24 12-32 0zm32 0 10-8v16zM40 8c4-5 9-5 13 0-4 5-9 5-13 0zm13 0 5-4v8zM42 33c4-5 9-5 13 0-4 5-9 5-13 0zm13 0 5-4v8z" />
      </svg>
      <p class="empty-title">{title}</p>
      {children && <p>{children}</p>}
    </div>
  );
}

/** A row of buttons that selects one of a few options. */
export function Choices<Value extends string>(props: {
  label: string;
  value: Value;
  options: readonly (readonly [Value, string])[];
  onChange(value: Value): void;
}) {
  return (
    <div class="choices" role="group" aria-label={props.label}>
      {props.options.map(([value, label]) => (
        <button key={value} type="button" aria-pressed={value === props.value} onClick={() => props.onChange(value)}>
          {label}
        </button>
      ))}
    </div>
  );
}

/** Error message of the last action. */
export function Problem({ text }: { text: string }) {
  return text ? <p class="problem" role="alert">{text}</p> : null;
}

/** Button that asks for confirmation before an action that cannot be undone. */
export function ConfirmButton(props: { label: string; question: string; class?: string; disabled?: boolean; onConfirm(): void }) {
  const [asking, setAsking] = useState(false);
  useEffect(() => {
    if (!asking) return;
    const timer = setTimeout(() => setAsking(false), 4_000);
    return () => clearTimeout(timer);
  }, [asking]);
  return (
    <button type="button" disabled={props.disabled} class={`${props.class ?? ""} ${asking ? "danger" : ""}`}
      onBlur={() => setAsking(false)}
      onClick={() => {
        if (asking) props.onConfirm();
        setAsking(!asking);
      }}>
      {asking ? props.question : props.label}
    </button>
  );
}

/** Runs an action and stores its error message. */
export function useAction(): [busy: boolean, problem: string, runAction: (action: () => Promise<unknown>) => Promise<boolean>] {
  const [busy, setBusy] = useState(false);
  const [problem, setProblem] = useState("");
  const runAction = async (action: () => Promise<unknown>) => {
    setBusy(true);
    setProblem("");
    try {
      await action();
      return true;
    } catch (error) {
      setProblem(error instanceof Error ? error.message : String(error));
      return false;
    } finally {
      setBusy(false);
    }
  };
  return [busy, problem, runAction];
}

/** Computes a value from the width of an element, again on every resize. */
export function useFit<Value>(fit: (width: number) => Value, first: Value): [RefObject<HTMLDivElement | null>, Value] {
  const box = useRef<HTMLDivElement>(null);
  const [value, setValue] = useState(first);
  useLayoutEffect(() => {
    const element = box.current;
    if (!element) return;
    const measure = () => setValue(fit(element.clientWidth));
    const observer = new ResizeObserver(measure);
    observer.observe(element);
    measure();
    return () => observer.disconnect();
  }, []);
  return [box, value];
}

/** State that is stored in this browser. */
export function useStoredChoice<Value extends string>(name: string, first: Value): [Value, (value: Value) => void] {
  const [value, setValue] = useState<Value>(() => {
    try {
      return (localStorage.getItem(`shoal.${name}`) as Value | null) ?? first;
    } catch {
      return first; // storage may be forbidden, for example for a local file
    }
  });
  return [
    value,
    (next) => {
      setValue(next);
      try {
        localStorage.setItem(`shoal.${name}`, next);
      } catch {
        // kept until the page is closed
      }
    },
  ];
}

export function getAgentTint(runView: RunView, agent: string): { class: string; style?: Record<string, string> } {
  return getTint(runView.agents.get(agent)?.color ?? "");
}
