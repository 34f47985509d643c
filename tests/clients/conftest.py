"""headrace serve, for clients in an environment of their own.

HEADRACE_PYTHON names the Python that has headrace, if this one hasn't; `tests/run clients` sets up
both."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

TEMPLATE = """{% for tool in tools or [] %}{{ tool.function | tojson }}
{% endfor %}{% for m in messages %}{{ {"user": "User", "assistant": "Assistant"}.get(m.role, m.role)
}}: {{ m.content }}{% for call in m.tool_calls or [] %}
<tool_call>{{ call.function | tojson }}</tool_call>{% endfor %}
{% endfor %}Assistant: """


@pytest.fixture(scope="session")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The shipped model as "tiny", with a template that shows tools. Ends with /v1."""
    template = tmp_path_factory.mktemp("template") / "tools.jinja"
    template.write_text(TEMPLATE)
    command = [os.environ.get("HEADRACE_PYTHON", sys.executable), "-m", "headrace", "serve"]
    command += ["--port", "0", "--served-model-name", "tiny", "--api-key", "sesame"]
    command += ["--tool-call-parser", "hermes", "--chat-template", str(template)]
    command += ["--guided-decoding-disable-any-whitespace", "--max-model-len", "1024"]
    server = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    log: list[str] = []
    assert server.stderr is not None
    for line in server.stderr:
        log.append(line)
        if found := re.search(r"serving .* on (http://\S+)", line):
            reader = threading.Thread(target=server.stderr.read)
            reader.start()
            yield f"{found[1]}/v1"
            server.terminate()
            assert server.wait(60) == 0
            reader.join()
            return
    raise AssertionError("".join(log))
