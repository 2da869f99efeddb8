export function QuestionsPage() {
  return <div class="page" />;
}
export function RunQuestionsPage() {
  return <div class="page" />;
}
