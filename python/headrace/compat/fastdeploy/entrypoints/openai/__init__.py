"""FastDeploy's module path of the types of OpenAI's protocol."""
