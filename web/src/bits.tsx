/** Small things that many pages show. */

import type { ComponentChildren, RefObject } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { agentCalled, agentPath, useRun } from "./context";
import { count, dollars, when } from "./format";
import type { RunState } from "./store";
import type { AgentRow, AgentState } from "./types";

const NAMED = new Set(["blue", "green", "yellow", "purple", "orange", "pink", "cyan", "red"]);
const HEX = /^#[0-9a-f]{6}$/i;

/** The colour of an agent as a class or, for one of its own, as a property. */
export function tint(color: string): { class: string; style?: Record<string, string> } {
  if (NAMED.has(color)) return { class: `tint tint-${color}` };
  if (HEX.test(color)) return { class: "tint", style: { "--tint": color } };
  return { class: "tint" };
}

const STATE_WORDS: Record<AgentState, string> = {
  working: "working", waiting: "waiting", idle: "idle", completed: "done", failed: "failed",
  killed: "stopped", gone: "gone",
};

export const stateWords = (state: AgentState): string => STATE_WORDS[state] ?? state;

export function StateMark({ state, words = true }: { state: AgentState; words?: boolean }) {
  return (
    <span class={`state state-${state}`}>
      <i aria-hidden="true" />
      {words ? stateWords(state) : <span class="unseen">{stateWords(state)}</span>}
    </span>
  );
}

/** An agent's name in its colour, leading to its page. */
export function Who({ name, agent, link = true }: { name: string; agent?: AgentRow; link?: boolean }) {
  const view = useRun();
  const known = agent ?? agentCalled(view.state, name);
  const look = tint(known?.color ?? "");
  const inside = (
    <>
      <i aria-hidden="true" />
      {name}
    </>
  );
  if (!known || !link) return <span class={`who ${look.class}`} style={look.style}>{inside}</span>;
  return <a class={`who ${look.class}`} style={look.style} href={agentPath(view, known)}>{inside}</a>;
}

export function Cost({ usd, tokens, priced = true }: { usd: number; tokens: number; priced?: boolean }) {
  return (
    <span class="figures">
      {usd > 0 || priced ? dollars(usd) : ""}
      {!priced && <span title="Some requests have no known price">{usd > 0 ? "+" : ""}?</span>} · {count(tokens)}
    </span>
  );
}

export function Time({ at, text }: { at: number | string; text: string }) {
  const moment = when(at);
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

/** A choice of one among few, as buttons in a row. */
export function Choices<Value extends string>(props: {
  label: string;
  value: Value;
  options: readonly (readonly [Value, string])[];
  onChange(value: Value): void;
}) {
  return (
    <div class="choices" role="group" aria-label={props.label}>
      {props.options.map(([value, words]) => (
        <button key={value} type="button" aria-pressed={value === props.value} onClick={() => props.onChange(value)}>
          {words}
        </button>
      ))}
    </div>
  );
}

/** What went wrong with the last thing a person asked for. */
export function Problem({ text }: { text: string }) {
  return text ? <p class="problem" role="alert">{text}</p> : null;
}

/** Asks once more before what cannot be taken back. */
export function Confirmed(props: { words: string; sure: string; class?: string; disabled?: boolean; onSure(): void }) {
  const [asking, setAsking] = useState(false);
  useEffect(() => {
    if (!asking) return;
    const timer = setTimeout(() => setAsking(false), 4_000);
    return () => clearTimeout(timer);
  }, [asking]);
  return (
    <button type="button" disabled={props.disabled} class={`${props.class ?? ""} ${asking ? "sure" : ""}`}
      onBlur={() => setAsking(false)}
      onClick={() => {
        if (asking) props.onSure();
        setAsking(!asking);
      }}>
      {asking ? props.sure : props.words}
    </button>
  );
}

/** Runs what a person asked for, one at a time, and keeps what went wrong. */
export function useOrder(): [busy: boolean, problem: string, give: (act: () => Promise<unknown>) => Promise<boolean>] {
  const [busy, setBusy] = useState(false);
  const [problem, setProblem] = useState("");
  const give = async (act: () => Promise<unknown>) => {
    setBusy(true);
    setProblem("");
    try {
      await act();
      return true;
    } catch (error) {
      setProblem(error instanceof Error ? error.message : String(error));
      return false;
    } finally {
      setBusy(false);
    }
  };
  return [busy, problem, give];
}

/** What fits into a box, by its width, as that changes. */
export function useFit<Value>(fit: (width: number) => Value, first: Value): [RefObject<HTMLDivElement | null>, Value] {
  const box = useRef<HTMLDivElement>(null);
  const [value, setValue] = useState(first);
  useLayoutEffect(() => {
    const element = box.current;
    if (!element) return;
    const measure = () => setValue(fit(element.clientWidth));
    const sized = new ResizeObserver(measure);
    sized.observe(element);
    measure();
    return () => sized.disconnect();
  }, []);
  return [box, value];
}

/** A choice kept in this browser. */
export function useKept<Value extends string>(name: string, first: Value): [Value, (value: Value) => void] {
  const [value, setValue] = useState<Value>(() => {
    try {
      return (localStorage.getItem(`shoal.${name}`) as Value | null) ?? first;
    } catch {
      return first; // a browser may forbid it, as for a file
    }
  });
  return [
    value,
    (next) => {
      setValue(next);
      try {
        localStorage.setItem(`shoal.${name}`, next);
      } catch {
        // kept for this visit only
      }
    },
  ];
}

export function agentLook(state: RunState, agent: string): { class: string; style?: Record<string, string> } {
  return tint(state.agents.get(agent)?.color ?? "");
}
