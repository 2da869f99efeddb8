"""What a run tells OpenTelemetry."""
