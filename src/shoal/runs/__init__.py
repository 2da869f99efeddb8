"""State of a run beyond one loop: sub-agents, queues, questions for people, and the control socket."""
