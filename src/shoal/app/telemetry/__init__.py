"""OpenTelemetry export of a run."""
