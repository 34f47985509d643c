"""DashInfer's low-level API on Headrace's engine. Programs import it as headrace.allspark.

loading/: from a model folder to what the engine installs. serving/: requests and their results.
The modules here, quant/ and config/ have the names of DashInfer's own.
"""
