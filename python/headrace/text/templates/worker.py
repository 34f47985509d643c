"""What process.py asks of its process."""

from __future__ import annotations

import pickle

from headrace.errors import TemplateError
from headrace.limited.worker import Refused
from headrace.text.templates.sandbox import render, variables_read


def answer(request: bytearray) -> bytes:
    """What the template renders, or a name in each line. request: a pickled (template, variables);
    None for variables asks which it reads."""
    try:
        template, variables = pickle.loads(request)
        request.clear()
        if variables is None:
            return "\n".join(sorted(variables_read(template))).encode()
        return render(template, variables).encode("utf-8", "surrogatepass")
    except MemoryError:
        raise
    except TemplateError as error:
        raise Refused(str(error)) from None
    except Exception as error:  # of an object of the caller's that isn't known here
        what = f"a variable of the chat template can't be sent to its process: {error}"
        raise Refused(what[:1000]) from None
