"""Model selection, model probes and provider setup."""
