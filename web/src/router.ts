/** Where in the view we are, kept in the address behind `#`. */

import { useEffect, useState } from "preact/hooks";

export const RUN_PAGES = ["team", "board", "mail", "cost", "questions", "replay"] as const;
export type RunPage = (typeof RUN_PAGES)[number];

export type Route =
  | { page: "runs" }
  | { page: "questions" }
  | { page: RunPage | "agent"; session: string; agent: string; within: "" | "replay" };

export type RunRoute = Extract<Route, { session: string }>;

export function parse(hash: string): Route {
  const parts = hash.replace(/^#\/?/, "").split("/").filter(Boolean).map(decoded);
  if (parts[0] === "questions") return { page: "questions" };
  if (parts[0] !== "run" || !parts[1]) return { page: "runs" };
  const session = parts[1];
  let rest = parts.slice(2);
  let within: "" | "replay" = "";
  if (rest[0] === "replay") {
    within = "replay";
    rest = rest.slice(1);
  }
  const [page = "team", agent = ""] = rest;
  if (page === "agent" && agent) return { page: "agent", session, agent, within };
  const known = (RUN_PAGES as readonly string[]).includes(page) && page !== "replay";
  return { page: known ? (page as RunPage) : "team", session, agent: "", within };
}

function decoded(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

/** The address of a page of a run; of its past, where `within` says so. */
export function runPath(session: string, page: RunPage | "agent", agent = "", within: "" | "replay" = ""): string {
  const parts = ["#", "run", encodeURIComponent(session)];
  if (within) parts.push(within);
  if (page !== "replay" && !(within && page === "team")) parts.push(page);
  if (page === "replay" && !within) parts.push("replay");
  if (agent) parts.push(encodeURIComponent(agent));
  return parts.join("/");
}

export function useRoute(): Route {
  const [hash, setHash] = useState(location.hash);
  useEffect(() => {
    const changed = () => setHash(location.hash);
    addEventListener("hashchange", changed);
    return () => removeEventListener("hashchange", changed);
  }, []);
  return parse(hash);
}
