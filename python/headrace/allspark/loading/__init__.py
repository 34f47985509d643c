"""From a model folder to what the engine installs."""
