"""Ray clusters: their machines, and a cluster on one machine to try."""
