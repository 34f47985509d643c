"""FastDeploy's module paths of the tokenizers."""
