"""Configuration of a model as a file."""
