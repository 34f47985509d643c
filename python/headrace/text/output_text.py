"""The text of an output, id by id, and the stop strings that end it: headrace/text_output.h."""

from headrace._core import Detokenizer, OutputText, StopMatch, StopStrings

__all__ = ["Detokenizer", "OutputText", "StopMatch", "StopStrings"]
