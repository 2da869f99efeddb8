/** The web view of Shoal's runs. */

import { render } from "preact";
import { useEffect, useMemo, useState } from "preact/hooks";
import { QuestionsContext, RunContext, SourceContext, StirContext, useRedraw, useSource, type RunView } from "./context";
import { foundSource } from "./data";
import { Shell } from "./shell";
import { AgentPage } from "./pages/agent";
import { BoardPage } from "./pages/board";
import { CostPage } from "./pages/cost";
import { MailPage } from "./pages/mail";
import { QuestionsPage, RunQuestionsPage } from "./pages/questions";
import { Replay } from "./pages/replay";
import { RunsPage } from "./pages/runs";
import { TeamPage } from "./pages/team";
import { useRoute, type RunRoute } from "./router";
import { Watched } from "./store";
import type { OpenQuestion } from "./types";
import "./styles/app.css";

const source = foundSource();

function App() {
  const route = useRoute();
  const [questions, setQuestions] = useState<OpenQuestion[]>([]);
  const [stirs, setStirs] = useState(0);
  useEffect(() => source.questions(setQuestions, () => setStirs((before) => before + 1)), []);
  useEffect(() => {
    document.title = questions.length ? `(${questions.length}) Shoal` : "Shoal";
  }, [questions.length]);
  return (
    <SourceContext.Provider value={source}>
      <StirContext.Provider value={stirs}><QuestionsContext.Provider value={questions}>
        {"session" in route ? (
          <Run key={route.session} route={route} />
        ) : (
          <Shell route={route}>{route.page === "questions" ? <QuestionsPage /> : <RunsPage />}</Shell>
        )}
      </QuestionsContext.Provider></StirContext.Provider>
    </SourceContext.Provider>
  );
}

function Run({ route }: { route: RunRoute }) {
  const { session, within } = route;
  const source = useSource();
  const redraw = useRedraw();
  const watched = useMemo(() => new Watched(), [session]);
  useEffect(() => {
    const deaf = watched.onChange(redraw);
    const end = source.watch(session, watched);
    return () => {
      end();
      deaf();
    };
  }, [watched]);
  const { state } = watched;
  const view: RunView = { session, state, within: "", steers: source.steers && state.live };
  return within ? (
    <Replay view={view} route={route} watched={watched}><Page route={route} /></Replay>
  ) : (
    <RunContext.Provider value={view}>
      <Shell route={route} watched={watched}>{watched.begun && <Page route={route} />}</Shell>
    </RunContext.Provider>
  );
}

function Page({ route }: { route: RunRoute }) {
  switch (route.page) {
    case "agent":
      return <AgentPage key={route.agent} agent={route.agent} />;
    case "board":
      return <BoardPage />;
    case "mail":
      return <MailPage />;
    case "cost":
      return <CostPage />;
    case "questions":
      return <RunQuestionsPage />;
    default:
      return <TeamPage />;
  }
}

if (!location.hash || location.hash === "#") history.replaceState(null, "", source.start);
const place = document.getElementById("app");
if (place) render(<App />, place);
