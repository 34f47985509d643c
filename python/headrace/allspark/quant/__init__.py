"""Settings of weight quantization. They are checked here; install_model says what can run."""
