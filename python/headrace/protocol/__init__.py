"""OpenAI's protocol: JSON bodies of requests read, and results written as OpenAI's objects."""
