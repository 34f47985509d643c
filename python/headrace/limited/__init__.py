"""Work on what strangers send, in child processes that the system keeps within limits."""
