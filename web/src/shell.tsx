/** Frame around every page: navigation, header of the run and connection status. */

import type { ComponentChildren } from "preact";
import { useContext, useRef } from "preact/hooks";
import { Empty, StateMark, getTint } from "./components";
import { RunContext, buildAgentPath, useQuestions, useSource, type RunContextValue } from "./context";
import { formatCount, formatDollars, shortenPath, toOneLine } from "./format";
import { Icon, type IconName } from "./icons";
import { RUN_PAGES, buildRunPath, type Route, type RunPage } from "./router";
import type { WatchedRun } from "./store";
import { VirtualList } from "./virtual_list";

const TITLES: Record<RunPage, string> = {
  team: "Team", board: "Board", mail: "Mail", cost: "Cost", questions: "Questions", replay: "Replay",
};

export function Shell({ route, watchedRun, children }: {
  route: Route;
  watchedRun?: WatchedRun;
  children: ComponentChildren;
}) {
  const main = useRef<HTMLElement>(null);
  const context = useContext(RunContext);
  return (
    <div class={`shell ${context ? "shell-run" : ""}`}>
      <button type="button" class="skip" onClick={() => main.current?.focus()}>Go to the page</button>
      <Sidebar route={route} context={context} />
      <div class="content">
        {context && <RunHeader context={context} />}
        <main ref={main} tabIndex={-1}>
          {children}
          {watchedRun && !watchedRun.isLoaded && (watchedRun.failure
            ? <Empty title={watchedRun.failure}><a href="#/runs">All runs</a></Empty>
            : <p class="loading soft" role="status">Reading…</p>)}
        </main>
      </div>
      {watchedRun?.isLoaded && !watchedRun.isConnected && (
        <p class="toast" role="status">
          {watchedRun.failure || "The connection was lost. The view will continue when the server responds."}
        </p>
      )}
    </div>
  );
}

function Sidebar({ route, context }: { route: Route; context: RunContextValue | null }) {
  const source = useSource();
  const questions = useQuestions();
  const questionCount = questions.filter((each) => each.session === context?.session).length;
  return (
    <aside class="side">
      {source.canSteer && (
        <nav aria-label="Shoal" class="side-home">
          <a class="brand" href="#/runs" aria-label="Shoal, all runs"><Icon name="fish" />Shoal</a>
          <NavLink href="#/runs" icon="runs" label="Runs" isCurrent={route.page === "runs"} />
          <NavLink href="#/questions" icon="questions" label="All questions" badge={questions.length}
            isCurrent={route.page === "questions" && !context} />
        </nav>
      )}
      {!source.canSteer && <p class="brand"><Icon name="fish" />Shoal</p>}
      {context && "session" in route && (
        <>
          <nav aria-label="This run" class="side-run">
            {RUN_PAGES.map((page) => (
              <NavLink key={page} icon={page} label={TITLES[page]} badge={page === "questions" ? questionCount : 0}
                href={buildRunPath(context.session, page)}
                isCurrent={route.viewMode ? page === "replay" : page === route.page || (page === "team" && route.page === "agent")} />
            ))}
          </nav>
          <AgentList context={context} current={route.agent} />
        </>
      )}
    </aside>
  );
}

function NavLink(props: { href: string; icon: IconName; label: string; badge?: number; isCurrent: boolean }) {
  return (
    <a class="nav-link" href={props.href} aria-current={props.isCurrent ? "page" : undefined}>
      <Icon name={props.icon} />
      <span class="nav-label">{props.label}</span>
      {!!props.badge && <span class="badge" aria-label={`${props.badge} open`}>{props.badge}</span>}
    </a>
  );
}

function AgentList({ context, current }: { context: RunContextValue; current: string }) {
  const agents = context.runView.agents.list;
  if (!agents.length) return null;
  return (
    <section class="side-members" aria-label="Agents">
      <h2>Agents <span class="figures">{agents.length}</span></h2>
      <VirtualList count={agents.length} height={28} keyOf={(index) => agents[index]!.id} label="Agents"
        show={current || null}>
        {(index) => {
          const agent = agents[index]!;
          const tint = getTint(agent.color);
          return (
            <a class={`member ${tint.class}`} style={{ ...tint.style, "--depth": String(Math.min(agent.depth, 4)) }}
              href={buildAgentPath(context, agent)} aria-current={agent.id === current ? "page" : undefined}>
              <i aria-hidden="true" />
              <span class="member-name">{agent.name}</span>
              <StateMark state={agent.state} showLabel={false} />
            </a>
          );
        }}
      </VirtualList>
    </section>
  );
}

function RunHeader({ context }: { context: RunContextValue }) {
  const source = useSource();
  const { run, live, spend } = context.runView;
  const spent = spend.list.at(-1);
  return (
    <header class="top">
      {source.canSteer && <a class="top-back" href="#/runs" aria-label="All runs"><Icon name="back" /></a>}
      <div class="top-title">
        <h1 title={run.prompt}>{toOneLine(run.prompt) || run.session || "…"}</h1>
        <p class="top-facts">
          <RunBadge live={live} ended={run.ended} began={run.began} />
          <span title={run.cwd}>{shortenPath(run.cwd)}</span>
          <span class="wide">{run.model}</span>
          {run.mode && run.mode !== "default" && <span class="wide">{run.mode}</span>}
        </p>
      </div>
      <SpentFigure usd={spent?.usd ?? 0} tokens={spent?.tokens ?? 0} run={run} />
    </header>
  );
}

export function RunBadge({ live, ended, began = 1 }: { live: boolean; ended: boolean; began?: number }) {
  if (!began) return null;
  if (live) return <span class="pill pill-live"><i aria-hidden="true" />live</span>;
  return ended ? <span class="pill">ended</span> : <span class="pill pill-gone">not running</span>;
}

function SpentFigure({ usd, tokens, run }: { usd: number; tokens: number; run: RunContextValue["runView"]["run"] }) {
  const share = Math.max(
    run.budget_usd ? usd / run.budget_usd : 0,
    run.budget_tokens ? tokens / run.budget_tokens : 0,
  );
  const of = run.budget_usd ? ` of ${formatDollars(run.budget_usd)}` : "";
  return (
    <div class="top-spent">
      <p><strong>{formatDollars(usd)}</strong><span class="soft">{of}</span></p>
      <p class="soft">{formatCount(tokens)}{run.budget_tokens ? ` of ${formatCount(run.budget_tokens)}` : ""} tokens</p>
      {share > 0 && (
        <div class={`meter ${share >= 0.9 ? "meter-high" : ""}`} role="meter" aria-label="Share of the budget"
          aria-valuemin={0} aria-valuemax={100} aria-valuenow={Math.round(share * 100)}>
          <i style={{ width: `${Math.min(100, share * 100)}%` }} />
        </div>
      )}
    </div>
  );
}
