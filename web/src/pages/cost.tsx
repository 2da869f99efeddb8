/** Cost of a run by agent, role, task, phase and model, over time, and compared with the budget. */

import { useMemo } from "preact/hooks";
import { Choices, Empty, getAgentTint, useStoredChoice } from "../components";
import { BarChart, Legend, LineChart, sumParts, type Bar } from "../chart";
import { buildAgentPath, useNow, useRun, type RunContextValue } from "../context";
import { formatClock, formatCount, formatDollars, formatDuration, formatQuantity } from "../format";
import { makeTaskKey } from "../store";
import type { CostRow } from "../types";

type By = "agent" | "role" | "task" | "phase" | "model";
type Unit = "usd" | "tokens";

const TOKENS = ["read from the cache", "written to the cache", "input", "output"];
const getTokenCounts = (row: CostRow): number[] => [
  row.cache_read_tokens, row.cache_written_tokens, row.input_tokens, row.output_tokens,
];
/** Number of distinct colors; further parts are combined. */
const MAX_PARTS = 6;

export function CostPage() {
  const context = useRun();
  const now = useNow();
  const { run, costs, spend } = context.runView;
  const [by, setBy] = useStoredChoice<By>("cost.by", "agent");
  const [unit, setUnit] = useStoredChoice<Unit>("cost.unit", "usd");
  const rows = costs.list;
  const total = useMemo(() => sumCosts(rows), [rows]);
  const [legend, bars] = useMemo(() => groupCosts(rows, by, unit, context), [rows, by, unit, context.runView.agents.list]);
  const formatValue = unit === "usd" ? formatDollars : formatCount;
  if (!rows.length) return <div class="page"><Empty title="No cost yet" /></div>;
  const budget = unit === "usd" ? run.budget_usd : run.budget_tokens;
  const spent = unit === "usd" ? total.usd : total.tokens;
  const until = Math.max(context.runView.live && !context.viewMode ? now : context.runView.at, run.began + 1);
  return (
    <div class="page page-cost">
      <header class="page-head">
        <h2>Cost</h2>
        <Choices<Unit> label="Unit" value={unit} onChange={setUnit} options={[["usd", "Dollars"], ["tokens", "Tokens"]]} />
      </header>
      <div class="scroll cost-body">
        <dl class="sums">
          <CostFigure name="Spent" value={formatDollars(total.usd)} more={run.budget_usd ? `of ${formatDollars(run.budget_usd)}` : "no budget"} />
          <CostFigure name="Tokens" value={formatCount(total.tokens)} more={run.budget_tokens ? `of ${formatCount(run.budget_tokens)}` : `${formatCount(total.output)} written`} />
          <CostFigure name="Read from the cache" value={`${Math.round(total.cached * 100)}%`} more="of the input" />
          <CostFigure name="Requests" value={total.requests.toLocaleString("en")}
            more={total.unpriced ? `${total.unpriced} without a known price` : `${formatDollars(total.usd / Math.max(1, total.requests))} each`} />
          <CostFigure name="Time" value={formatDuration((until - run.began) / 1000)} more={formatQuantity(run.turns, "turn")} />
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
          <LineChart points={spend.list.map((point) => ({ at: point.at, value: unit === "usd" ? point.usd : point.tokens }))}
            limit={budget} from={run.began} to={until} formatValue={formatValue} time={formatClock} label={`Spent over time, ${formatValue(spent)} in total`} />
        </section>
        <section class="panel">
          <header>
            <h3>By {by}</h3>
            <Choices<By> label="By" value={by} onChange={setBy}
              options={[["agent", "Agent"], ["role", "Role"], ["task", "Task"], ["phase", "Phase"], ["model", "Model"]]} />
          </header>
          <Legend names={legend} />
          <BarChart bars={bars} legend={legend} formatValue={formatValue} />
        </section>
      </div>
    </div>
  );
}

function CostFigure({ name, value, more }: { name: string; value: string; more: string }) {
  return <div><dt>{name}</dt><dd><strong>{value}</strong> <span class="soft">{more}</span></dd></div>;
}

function sumCosts(rows: readonly CostRow[]) {
  const total = { usd: 0, tokens: 0, output: 0, requests: 0, unpriced: 0, cached: 0 };
  let read = 0;
  for (const row of rows) {
    const tokens = getTokenCounts(row);
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

/** Groups costs into one bar per agent, role, task, phase or model. Dollars are split by model, or by role for a model; tokens by kind. */
function groupCosts(rows: readonly CostRow[], by: By, unit: Unit, context: RunContextValue): [legend: string[], bars: Bar[]] {
  const getPartName = (row: CostRow): string => (by === "model" ? row.kind : row.model);
  const sizes = new Map<string, number>();
  for (const row of rows) sizes.set(getPartName(row), (sizes.get(getPartName(row)) ?? 0) + row.usd);
  const names = [...sizes].sort((one, other) => other[1] - one[1]).map(([name]) => name);
  const legend = unit === "tokens" ? TOKENS : names.length > MAX_PARTS ? [...names.slice(0, MAX_PARTS - 1), "others"] : names;
  const bars = new Map<string, Bar>();
  for (const row of rows) {
    const task = row.task && makeTaskKey(row.board, row.task);
    const key = { agent: row.agent, role: row.kind, task, phase: row.phase, model: row.model }[by];
    let bar = bars.get(key);
    if (!bar) bars.set(key, (bar = createBar(key, row, by, legend.length, context)));
    if (unit === "tokens") getTokenCounts(row).forEach((tokens, index) => (bar.parts[index]! += tokens));
    else {
      const found = legend.indexOf(getPartName(row));
      bar.parts[found < 0 ? legend.length - 1 : found]! += row.usd;
    }
  }
  return [legend, [...bars.values()].sort((one, other) => sumParts(other) - sumParts(one))];
}

function createBar(key: string, row: CostRow, by: By, parts: number, context: RunContextValue): Bar {
  const bar: Bar = { key, label: key || "none", parts: new Array<number>(parts).fill(0) };
  if (by === "agent") {
    return { ...bar, label: row.name, tint: getAgentTint(context.runView, row.agent), href: buildAgentPath(context, row.agent) };
  }
  if (by === "task") {
    const board = context.runView.run.teams.length > 1 ? `${row.board} ` : "";
    return { ...bar, label: key ? `${board}#${row.task} ${context.runView.tasks.get(key)?.subject ?? ""}` : "no task" };
  }
  if (by === "phase") return { ...bar, label: key || "no workflow" };
  return bar;
}
