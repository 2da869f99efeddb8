/** Mail of a run: filters, and the lanes of the sequence diagram. */

import type { MailRow } from "./types";

export interface MailFilter {
  query: string;
  who: string;
  /** Only messages of agents and people, no protocol messages. */
  onlyMessages: boolean;
}

/** The user writes as `user`, and the lead as `team-lead`. */
export const formatMailName = (name: string): string => (name === "team-lead" ? "lead" : name === "user" ? "you" : name);

export function filterMail(mail: readonly MailRow[], { query, who, onlyMessages }: MailFilter): readonly MailRow[] {
  const parts = query.toLowerCase().split(/\s+/).filter(Boolean);
  if (!parts.length && !who && !onlyMessages) return mail;
  return mail.filter((each) => {
    if (onlyMessages && each.kind !== "message") return false;
    if (who && formatMailName(each.sender) !== who && formatMailName(each.to) !== who) return false;
    const text = `${each.sender} ${each.to} ${each.kind} ${each.summary} ${each.text}`.toLowerCase();
    return parts.every((part) => text.includes(part));
  });
}

/** Counts the messages of each sender and recipient: first the user, then the lead, then the others. */
export function countMailByPerson(mail: readonly MailRow[]): Map<string, number> {
  const counts = new Map<string, number>([["you", 0], ["lead", 0]]);
  for (const each of mail) {
    for (const name of [formatMailName(each.sender), formatMailName(each.to)]) counts.set(name, (counts.get(name) ?? 0) + 1);
  }
  for (const name of ["you", "lead"]) if (!counts.get(name)) counts.delete(name);
  return counts;
}

const OTHERS = "others";

/** Returns the names that get a lane; if there are too many, the busiest, and one lane for all others. */
export function chooseLanes(people: Map<string, number>, most: number): string[] {
  const names = [...people.keys()];
  if (names.length <= most) return names;
  const busiest = new Set(names.toSorted((one, other) => people.get(other)! - people.get(one)!).slice(0, most - 1));
  return [...names.filter((each) => busiest.has(each)), OTHERS];
}
