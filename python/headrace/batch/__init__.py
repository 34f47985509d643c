"""Batch jobs: a file of requests in, a file of results out, and a restart goes on where it was."""
