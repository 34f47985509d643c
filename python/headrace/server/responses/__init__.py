"""OpenAI's /v1/responses: bodies read, and answers and their events written."""
