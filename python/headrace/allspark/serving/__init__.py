"""Requests by handles and status codes, and their results."""
