/** What a run spent: by agent, role, task and model, over time, and against its budget. */

import { useMemo } from "preact/hooks";
import { Choices, Empty, agentLook, useKept } from "../bits";
import { Bars, Legend, Line, size, type Bar } from "../chart";
import { agentPath, useNow, useRun, type RunView } from "../context";
import { clock, count, dollars, plural, seconds } from "../format";
import { taskKey } from "../store";
import type { CostRow } from "../types";

type By = "agent" | "role" | "task" | "model";
type Unit = "usd" | "tokens";

const TOKENS = ["read from the cache", "written to the cache", "input", "output"];
const tokensOf = (row: CostRow): number[] => [
  row.cache_read_tokens, row.cache_written_tokens, row.input_tokens, row.output_tokens,
];
/** Colours of parts that can be told apart; what is beyond is shown together. */
const MOST_PARTS = 6;

export function CostPage() {
  const view = useRun();
  const now = useNow();
  const { run, costs, spend } = view.state;
  const [by, setBy] = useKept<By>("cost.by", "agent");
  const [unit, setUnit] = useKept<Unit>("cost.unit", "usd");
  const rows = costs.list;
  const total = useMemo(() => summed(rows), [rows]);
  const [legend, bars] = useMemo(() => grouped(rows, by, unit, view), [rows, by, unit, view.state.agents.list]);
  const words = unit === "usd" ? dollars : count;
  if (!rows.length) return <div class="page"><Empty title="Nothing is spent yet" /></div>;
  const budget = unit === "usd" ? run.budget_usd : run.budget_tokens;
  const spent = unit === "usd" ? total.usd : total.tokens;
  const until = Math.max(view.state.live && !view.within ? now : view.state.at, run.began + 1);
  return (
    <div class="page page-cost">
      <header class="page-head">
        <h2>Cost</h2>
        <Choices<Unit> label="Unit" value={unit} onChange={setUnit} options={[["usd", "Dollars"], ["tokens", "Tokens"]]} />
      </header>
      <div class="scroll cost-body">
        <dl class="sums">
          <Sum name="Spent" value={dollars(total.usd)} more={run.budget_usd ? `of ${dollars(run.budget_usd)}` : "no budget"} />
          <Sum name="Tokens" value={count(total.tokens)} more={run.budget_tokens ? `of ${count(run.budget_tokens)}` : `${count(total.output)} written`} />
          <Sum name="Read from the cache" value={`${Math.round(total.cached * 100)} %`} more="of the input" />
          <Sum name="Requests" value={total.requests.toLocaleString("en")}
            more={total.unpriced ? `${total.unpriced} without a known price` : `${dollars(total.usd / Math.max(1, total.requests))} each`} />
          <Sum name="Time" value={seconds((until - run.began) / 1000)} more={plural(run.turns, "turn")} />
        </dl>
        {budget !== null && (
          <div class={`meter meter-wide ${spent / budget >= 0.9 ? "meter-high" : ""}`} role="meter" aria-label="Share of the budget"
            aria-valuemin={0} aria-valuemax={100} aria-valuenow={Math.round((spent / budget) * 100)}>
            <i style={{ width: `${Math.min(100, (spent / budget) * 100)}%` }} />
            <span>{Math.round((spent / budget) * 100)} % of the budget</span>
          </div>
        )}
        <section class="panel">
          <h3>Over time</h3>
          <Line points={spend.list.map((point) => ({ at: point.at, value: unit === "usd" ? point.usd : point.tokens }))}
            limit={budget} from={run.began} to={until} words={words} time={clock} label={`Spent over time, ${words(spent)} in all`} />
        </section>
        <section class="panel">
          <header>
            <h3>By {by}</h3>
            <Choices<By> label="By" value={by} onChange={setBy}
              options={[["agent", "Agent"], ["role", "Role"], ["task", "Task"], ["model", "Model"]]} />
          </header>
          <Legend names={legend} />
          <Bars bars={bars} legend={legend} words={words} />
        </section>
      </div>
    </div>
  );
}

function Sum({ name, value, more }: { name: string; value: string; more: string }) {
  return <div><dt>{name}</dt><dd><strong>{value}</strong> <span class="soft">{more}</span></dd></div>;
}

function summed(rows: readonly CostRow[]) {
  const total = { usd: 0, tokens: 0, output: 0, requests: 0, unpriced: 0, cached: 0 };
  let read = 0;
  for (const row of rows) {
    const tokens = tokensOf(row);
    total.usd += row.usd;
    total.tokens += tokens.reduce((sum, each) => sum + each, 0);
    total.output += row.output_tokens;
    total.requests += row.requests;
    total.unpriced += row.unpriced;
    read += row.cache_read_tokens;
  }
  total.cached = read / Math.max(1, total.tokens - total.output);
  return total;
}

/** One bar for each agent, role, task or model. Dollars are split by model, or by role for a model; tokens by kind. */
function grouped(rows: readonly CostRow[], by: By, unit: Unit, view: RunView): [legend: string[], bars: Bar[]] {
  const split = (row: CostRow): string => (by === "model" ? row.kind : row.model);
  const sizes = new Map<string, number>();
  for (const row of rows) sizes.set(split(row), (sizes.get(split(row)) ?? 0) + row.usd);
  const names = [...sizes].sort((one, other) => other[1] - one[1]).map(([name]) => name);
  const legend = unit === "tokens" ? TOKENS : names.length > MOST_PARTS ? [...names.slice(0, MOST_PARTS - 1), "others"] : names;
  const bars = new Map<string, Bar>();
  for (const row of rows) {
    const task = row.task && taskKey(row.board, row.task);
    const key = { agent: row.agent, role: row.kind, task, model: row.model }[by];
    let bar = bars.get(key);
    if (!bar) bars.set(key, (bar = emptyBar(key, row, by, legend.length, view)));
    if (unit === "tokens") tokensOf(row).forEach((tokens, index) => (bar.parts[index]! += tokens));
    else {
      const found = legend.indexOf(split(row));
      bar.parts[found < 0 ? legend.length - 1 : found]! += row.usd;
    }
  }
  return [legend, [...bars.values()].sort((one, other) => size(other) - size(one))];
}

function emptyBar(key: string, row: CostRow, by: By, parts: number, view: RunView): Bar {
  const bar: Bar = { key, label: key || "none", parts: new Array<number>(parts).fill(0) };
  if (by === "agent") {
    return { ...bar, label: row.name, look: agentLook(view.state, row.agent), href: agentPath(view, row.agent) };
  }
  if (by === "task") {
    const board = view.state.run.teams.length > 1 ? `${row.board} ` : "";
    return { ...bar, label: key ? `${board}#${row.task} ${view.state.tasks.get(key)?.subject ?? ""}` : "no task" };
  }
  return bar;
}
