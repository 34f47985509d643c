"""A call's requests: made ready, submitted, and their output collected."""
