"""FastDeploy's module path of the log-probability types."""
