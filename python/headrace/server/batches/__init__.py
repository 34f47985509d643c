"""OpenAI's files and batches over a local folder."""
