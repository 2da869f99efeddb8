export function CostPage() {
  return <div class="page page-cost"></div>;
}
