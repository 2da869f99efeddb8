"""User interfaces for people and programs; they draw and translate."""
