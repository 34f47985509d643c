"""Media in requests: found, loaded beside each other, shown to templates, placed among ids."""
