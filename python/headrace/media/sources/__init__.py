"""Where items come from: bytes that callers hold, `data:` addresses, files, the web."""
