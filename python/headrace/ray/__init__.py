"""Headrace on a Ray cluster: what `headrace batch --ray` runs (`pip install "headrace[ray]"`)."""
