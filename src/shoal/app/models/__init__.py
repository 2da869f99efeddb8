"""Which model is asked, whether it answers, and how a provider is set up."""
