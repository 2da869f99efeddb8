/** The mail of a run as a sequence diagram. */

import { Empty } from "../bits";
import { useRun } from "../context";

export function MailPage() {
  const { state } = useRun();
  return (
    <div class="page page-mail">
      <header class="page-head"><h2>Mail</h2></header>
      {state.version >= 0 && <Empty title="Nothing here yet" />}
    </div>
  );
}
