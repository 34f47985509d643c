"""DashInfer's module paths of the settings of weight quantization."""
