"""The demo: a small project with failing tests, and the script that stands in for a model's mind."""
