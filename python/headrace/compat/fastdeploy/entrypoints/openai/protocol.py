"""FastDeploy's module path of the types of OpenAI's protocol: those of tools."""

from headrace.options.tools import ChatCompletionToolsParam, FunctionDefinition

__all__ = ["ChatCompletionToolsParam", "FunctionDefinition"]
