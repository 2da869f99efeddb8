"""Teams: long-lived agents with inboxes, a board and a lead."""
