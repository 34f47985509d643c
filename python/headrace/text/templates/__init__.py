"""Chat templates: conversations made text, within limits."""
