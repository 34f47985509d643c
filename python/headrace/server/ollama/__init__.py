"""Ollama's /api: bodies read, and answers and their pieces written."""
