"""What is configured: environment and settings files, what of them is trusted, what is kept in them."""
