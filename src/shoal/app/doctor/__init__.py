"""Diagnosis of problems: facts about the setup, symptoms with their causes, and advice."""
