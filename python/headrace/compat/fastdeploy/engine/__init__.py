"""FastDeploy's module paths of parameters and results."""
