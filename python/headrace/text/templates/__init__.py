"""Chat templates: conversations made text, in a process with limits."""
