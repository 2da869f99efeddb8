/** The board of a run: its tasks in columns, and what waits for what. */

import { Empty } from "../bits";
import { useRun } from "../context";

export function BoardPage() {
  const { state } = useRun();
  return (
    <div class="page page-board">
      <header class="page-head"><h2>Board</h2></header>
      {state.version >= 0 && <Empty title="Nothing here yet" />}
    </div>
  );
}
