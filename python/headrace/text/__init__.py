"""Text in, text out: tokenizers, chat templates and incremental detokenization."""
