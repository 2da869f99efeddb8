export function AgentPage({ agent }: { agent: string }) {
  return <div class="page page-agent">{agent}</div>;
}
