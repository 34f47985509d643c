"""Embeddings and scores: requests that give numbers for a prompt instead of text."""
