"""Budgets: limits, reservations, usage and prices."""
