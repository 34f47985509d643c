"""Anthropic's /v1/messages: bodies read, and answers and their events written."""
