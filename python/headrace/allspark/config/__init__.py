"""DashInfer's module path of DIConfig files."""
