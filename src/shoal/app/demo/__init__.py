"""The demo: a small project with failing tests, and the script of its scripted model."""
