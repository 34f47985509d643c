# ruff: noqa: E501 (lines of templates)
"""Chat templates in the style of the common model families, and conversations for them."""

from __future__ import annotations

from typing import Any

QWEN = """\
{%- if tools %}
    {{- '<|im_start|>system\\n' }}
    {%- if messages[0].role == 'system' %}{{- messages[0].content + '\\n\\n' }}{%- endif %}
    {{- "# Tools\\n<tools>" }}
    {%- for tool in tools %}{{- "\\n" }}{{- tool | tojson }}{%- endfor %}
    {{- "\\n</tools><|im_end|>\\n" }}
{%- elif messages[0].role == 'system' %}
    {{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}
{%- endif %}
{%- set ns = namespace(open=true, last=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.open and message.role == "user" and message.content is string and not(
        message.content.startswith('<answer>') and message.content.endswith('</answer>')) %}
        {%- set ns.open = false %}{%- set ns.last = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages if loop is undefined or message.role != 'system' %}
    {%- set content = message.content if message.content is string else '' %}
    {%- if message.role == "user" %}
        {{- '<|im_start|>user\\n' + content + '<|im_end|>\\n' }}
    {%- elif message.role == "assistant" %}
        {%- set thoughts = message.reasoning_content if message.reasoning_content is string else '' %}
        {%- if not thoughts and '</think>' in content %}
            {%- set thoughts = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1] %}
            {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
        {%- endif %}
        {{- '<|im_start|>assistant\\n' }}
        {%- if thoughts and (loop.last or loop.index0 > ns.last) %}
            {{- '<think>\\n' + thoughts.strip('\\n') + '\\n</think>\\n\\n' }}
        {%- endif %}
        {{- content }}
        {%- for call in message.tool_calls or [] %}
            {%- if (loop.first and content) or (not loop.first) %}{{- '\\n' }}{%- endif %}
            {%- if call.function %}{%- set call = call.function %}{%- endif %}
            {{- '<call>\\n{"name": "' }}{{- call.name }}{{- '", "arguments": ' }}
            {%- if call.arguments is string %}{{- call.arguments }}
            {%- else %}{{- call.arguments | tojson }}{%- endif %}
            {{- '}\\n</call>' }}
        {%- endfor %}
        {{- '<|im_end|>\\n' }}
    {%- elif message.role == "tool" %}
        {%- if loop.previtem is undefined or loop.previtem.role != "tool" %}
            {{- '<|im_start|>user' }}
        {%- endif %}
        {{- '\\n<answer>\\n' ~ content ~ '\\n</answer>' }}
        {%- if loop.last or loop.nextitem.role != "tool" %}{{- '<|im_end|>\\n' }}{%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\\n\\n</think>\\n\\n' }}
    {%- endif %}
{%- endif %}
"""

LLAMA = """\
{{- bos_token }}
{%- if custom_tools is defined %}{%- set tools = custom_tools %}{%- endif %}
{%- if not date_string is defined %}{%- set date_string = "26 Jul 2024" %}{%- endif %}
{%- if not tools is defined %}{%- set tools = none %}{%- endif %}
{%- if messages and messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content']|trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system_message = "" %}
{%- endif %}
{{- "<|start_header_id|>system<|end_header_id|>\\n\\n" }}
{%- if tools is not none %}{{- "Environment: ipython\\n" }}{%- endif %}
{{- "Today Date: " + date_string + "\\n\\n" }}
{%- if tools is not none %}
    {%- for t in tools %}{{- t | tojson(indent=4) }}{{- "\\n\\n" }}{%- endfor %}
{%- endif %}
{{- system_message }}{{- "<|eot_id|>" }}
{%- for message in messages %}
    {%- if not (message.role == 'ipython' or message.role == 'tool' or 'tool_calls' in message) %}
        {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n' }}
        {{- (message['content'] or '')|string|trim + '<|eot_id|>' }}
    {%- elif 'tool_calls' in message %}
        {%- if not message.tool_calls|length == 1 %}
            {{- raise_exception("This model only supports single tool-calls at once!") }}
        {%- endif %}
        {%- set call = message.tool_calls[0].function %}
        {{- '{"name": "' + call.name + '", "parameters": ' }}{{- call.arguments | tojson }}
        {{- "}<|eot_id|>" }}
    {%- else %}
        {{- "<|start_header_id|>ipython<|end_header_id|>\\n\\n" }}
        {%- if message.content is mapping or message.content is iterable %}
            {{- message.content | tojson }}
        {%- else %}
            {{- message.content }}
        {%- endif %}
        {{- "<|eot_id|>" }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}
{%- endif %}
"""

GEMMA = """\
{{ bos_token }}
{%- if messages[0]['role'] == 'system' -%}
    {%- set first_user_prefix = messages[0]['content'] + '\\n\\n' -%}
    {%- set loop_messages = messages[1:] -%}
{%- else -%}
    {%- set first_user_prefix = "" -%}{%- set loop_messages = messages -%}
{%- endif -%}
{%- for message in loop_messages -%}
    {%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) -%}
        {{ raise_exception("Conversation roles must alternate user/assistant/user/assistant/...") }}
    {%- endif -%}
    {%- set role = "model" if message['role'] == 'assistant' else message['role'] -%}
    {{ '<start_of_turn>' + role + '\\n' + (first_user_prefix if loop.first else "") }}
    {%- if message['content'] is string -%}
        {{ message['content'] | trim }}
    {%- elif message['content'] is iterable -%}
        {%- for item in message['content'] -%}
            {%- if item['type'] == 'image' -%}{{ '<start_of_image>' }}
            {%- elif item['type'] == 'text' -%}{{ item['text'] | trim }}{%- endif -%}
        {%- endfor -%}
    {%- else -%}{{ raise_exception("Invalid content type") }}{%- endif -%}
    {{ '<end_of_turn>\\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}{{'<start_of_turn>model\\n'}}{%- endif -%}
"""

MISTRAL = """\
{%- if messages[0]["role"] == "system" %}
    {%- set system_message = messages[0]["content"] %}{%- set loop_messages = messages[1:] %}
{%- else %}{%- set loop_messages = messages %}{%- endif %}
{%- set user_messages = loop_messages | selectattr("role", "equalto", "user") | list %}
{{- bos_token }}
{%- for message in loop_messages %}
    {%- if message["role"] == "user" %}
        {%- if tools is not none and (message == user_messages[-1]) %}
            {{- "[AVAILABLE_TOOLS] [" }}
            {%- for tool in tools %}
                {%- set tool = tool.function %}{{- '{"type": "function", "function": {' }}
                {%- for key, val in tool.items() if key != "return" %}
                    {%- if val is string %}{{- '"' + key + '": "' + val + '"' }}
                    {%- else %}{{- '"' + key + '": ' + val|tojson }}{%- endif %}
                    {%- if not loop.last %}{{- ", " }}{%- endif %}
                {%- endfor %}
                {{- "}}" }}{%- if not loop.last %}{{- ", " }}{%- else %}{{- "]" }}{%- endif %}
            {%- endfor %}
            {{- "[/AVAILABLE_TOOLS]" }}
        {%- endif %}
        {%- if loop.last and system_message is defined %}
            {{- "[INST] " + system_message + "\\n\\n" + message["content"] + "[/INST]" }}
        {%- else %}{{- "[INST] " ~ message["content"] ~ "[/INST]" }}{%- endif %}
    {%- elif message.tool_calls is defined and message.tool_calls is not none %}
        {{- "[TOOL_CALLS] [" }}
        {%- for tool_call in message.tool_calls %}
            {%- set out = tool_call.function|tojson %}{{- out[:-1] }}
            {%- if tool_call.id|length != 9 %}{{- raise_exception("ids have 9 characters") }}{%- endif %}
            {{- ', "id": "' + tool_call.id + '"}' }}
            {%- if not loop.last %}{{- ", " }}{%- else %}{{- "]" + eos_token }}{%- endif %}
        {%- endfor %}
    {%- elif message["role"] == "assistant" %}
        {{- " " + message["content"]|trim + eos_token }}
    {%- elif message["role"] in ["tool_results", "tool"] %}
        {%- if message.content is defined and message.content.content is defined %}
            {%- set content = message.content.content %}
        {%- else %}{%- set content = message.content %}{%- endif %}
        {{- '[TOOL_RESULTS] {"content": ' + content|string + "}[/TOOL_RESULTS]" }}
    {%- else %}{{- raise_exception("unknown role " ~ message["role"]) }}{%- endif %}
{%- endfor %}
"""

DEEPSEEK = """\
{% if not add_generation_prompt is defined %}{% set add_generation_prompt = false %}{% endif %}\
{% set ns = namespace(is_first=false, is_tool=false, system_prompt='', first_system=true) %}\
{%- for message in messages %}{%- if message['role'] == 'system' %}\
{%- if ns.first_system %}{% set ns.system_prompt = ns.system_prompt + message['content'] %}\
{% set ns.first_system = false %}\
{%- else %}{% set ns.system_prompt = ns.system_prompt + '\\n\\n' + message['content'] %}{%- endif %}\
{%- endif %}{%- endfor %}{{ bos_token }}{{ ns.system_prompt }}
{%- for message in messages %}
    {% set content = message['content'] %}
    {%- if message['role'] == 'user' %}{%- set ns.is_tool = false -%}{{'<｜User｜>' ~ content}}{%- endif %}
    {%- if message['role'] == 'assistant' and message['tool_calls'] %}
        {%- for tool in message['tool_calls'] %}
            {%- if not ns.is_first %}
                {{'<｜Assistant｜>' + '<｜tool▁call▁begin｜>' + tool['function']['name'] + '\\n' + (
                    tool['function']['arguments']|tojson) + '<｜tool▁call▁end｜>'}}
                {%- set ns.is_first = true -%}
            {%- else %}{{'\\n' + tool['type'] + tool['function']['name']}}{%- endif %}
        {%- endfor %}
    {%- elif message['role'] == 'assistant' and content is not none %}
        {% if '</think>' in content %}{% set content = content.split('</think>')[-1] %}{% endif %}\
{{'<｜Assistant｜>' + content + '<｜end▁of▁sentence｜>'}}
    {%- endif %}
    {%- if message['role'] == 'tool' %}{%- set ns.is_tool = true -%}
        {{'<｜tool▁output▁begin｜>' ~ message['content'] ~ '<｜tool▁output▁end｜>'}}
    {%- endif %}
{%- endfor -%}
{% if add_generation_prompt and not ns.is_tool %}{{'<｜Assistant｜>'}}{% endif %}
"""

HARMONY = """\
{%- macro spelled(spec, required=[], level=0) -%}
    {%- if spec.type == "array" -%}
        {{- spelled(spec['items'], level=level + 1) + "[]" if spec['items'] else "any[]" }}
    {%- elif spec.type is defined and spec.type is iterable and spec.type is not string -%}
        {{- spec.type | join(" | ") }}
    {%- elif spec.type == "string" -%}
        {{- '"' + spec.enum | join('" | "') + '"' if spec.enum else "string" }}
    {%- elif spec.type in ["number", "integer"] -%}{{- "number" }}
    {%- elif spec.type == "object" and spec.properties -%}
        {{- "{\\n" }}
        {%- for name, inner in spec.properties.items() -%}
            {%- if inner.description %}{{- "  " * level ~ "// " ~ inner.description ~ "\\n" }}{%- endif %}
            {{- "  " * level + name + ("" if name in (spec.required or []) else "?") + ": " }}
            {{- spelled(inner, spec.required or [], level + 1) }}
            {%- if inner.default is defined %}{{- ", // default: " ~ inner.default|tojson }}
            {%- elif not loop.last %}{{- "," }}{%- endif %}
            {{- "\\n" }}
        {%- endfor -%}
        {{- "}" }}
    {%- else -%}{{- "any" }}{%- endif -%}
{%- endmacro -%}
{%- macro system(identity) %}
    {{- identity ~ "\\nCurrent date: " ~ date_string|default("2025-01-01") }}
    {{- "\\nReasoning: " ~ (reasoning_effort if reasoning_effort is defined else "medium") }}
{%- endmacro -%}
{{- "<|start|>system<|message|>" }}{{- system("You are helpful.") }}{{- "<|end|>" }}
{%- if tools %}
    {{- "<|start|>developer<|message|>namespace functions {\\n" }}
    {%- for tool in tools %}{%- set tool = tool.function %}
        {{- "// " + tool.description + "\\ntype " + tool.name + " = (_: " }}
        {{- spelled(tool.parameters) }}{{- ") => any;\\n\\n" }}
    {%- endfor %}
    {{- "}<|end|>" }}
{%- endif %}
{%- set last_call = namespace(name=none) %}
{%- for message in messages -%}
    {%- if message.role == 'assistant' -%}
        {%- set future = namespace(found=false) %}
        {%- for later in messages[loop.index:] if later.role == 'assistant' and not later.tool_calls %}
            {%- set future.found = true %}{%- break %}
        {%- endfor %}
        {%- if message.reasoning_content and not future.found %}
            {{- "<|start|>assistant<|channel|>analysis<|message|>" + message.reasoning_content + "<|end|>" }}
        {%- endif %}
        {%- if message.tool_calls %}
            {%- set call = message.tool_calls[0].function %}{%- set last_call.name = call.name %}
            {{- "<|start|>assistant to=functions." ~ call.name ~ "<|channel|>commentary json<|message|>" }}
            {{- call.arguments|tojson }}{{- "<|call|>" }}
        {%- else %}
            {%- generation %}
            {{- "<|start|>assistant<|channel|>final<|message|>" ~ message.content ~ "<|end|>" }}
            {%- endgeneration %}
        {%- endif %}
    {%- elif message.role == 'tool' -%}
        {%- if last_call.name is none %}{{- raise_exception("a tool answers, and no one called") }}{%- endif %}
        {{- "<|start|>functions." ~ last_call.name ~ " to=assistant<|message|>" }}
        {{- message.content|tojson }}{{- "<|end|>" }}
    {%- elif message.role == 'user' -%}
        {{- "<|start|>user<|message|>" ~ message.content ~ "<|end|>" }}
    {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}<|start|>assistant{%- endif -%}
"""

ERNIE = """\
{%- if not sep_token is defined %}{%- set sep_token = "<|end_of_sentence|>" %}{%- endif %}
{%- if messages|length and messages[0].role == 'system' %}{{ messages[0].content|trim ~ '\\n' }}
{%- endif %}
{%- for message in messages|rejectattr('role', 'in', ['system', 'tool']) %}
  {%- if message.role == 'user' %}
    {{- "User: " ~ message.content ~ "\\n" }}
  {%- else %}
    {{- "Assistant: " ~ (message.content|default('', true)) ~ sep_token }}
  {%- endif %}
{%- else %}
nothing
{%- endfor %}
{%- if add_generation_prompt is not defined or add_generation_prompt is true %}
    {{- "Assistant: " }}
{%- endif %}
"""

FAMILIES = {
    "qwen": QWEN,
    "llama": LLAMA,
    "gemma": GEMMA,
    "mistral": MISTRAL,
    "deepseek": DEEPSEEK,
    "harmony": HARMONY,
    "ernie": ERNIE,
}

TOOLS: list[Any] = [
    {
        "type": "function",
        "function": {
            "name": "weather",
            "description": 'Weather of <a> "city" é',
            "parameters": {
                "type": "object",
                "properties": {
                    "city": {"type": "string", "description": "The city", "enum": ["a", "b"]},
                    "n": {"type": ["integer", "null"], "default": 3},
                    "o": {"type": "object", "properties": {"items": {"type": "array"}}},
                },
                "required": ["city"],
            },
            "return": {"type": "string"},
        },
    }
]


def _call(arguments: Any) -> dict[str, Any]:
    function = {"name": "weather", "arguments": arguments}
    return {"id": "call00001", "type": "function", "function": function}


def _turns(*contents: Any) -> list[dict[str, Any]]:
    roles = ("user", "assistant")
    return [{"role": roles[i % 2], "content": content} for i, content in enumerate(contents)]


_SYSTEM: dict[str, Any] = {"role": "system", "content": " Be kind. "}
_ANSWER: dict[str, Any] = {"role": "tool", "tool_call_id": "call00001", "content": "22"}

CONVERSATIONS: list[list[dict[str, Any]]] = [
    [],
    _turns("Hi"),
    [_SYSTEM, *_turns("Hello 你好", "Hey\n", "  <more> ")],
    [
        _SYSTEM,
        *_turns("How warm?"),
        {"role": "assistant", "content": None, "tool_calls": [_call({"city": "Paris", "n": 1.5})]},
        _ANSWER,
        *_turns("and now?", "22"),
    ],
    [
        *_turns("How warm?"),
        {"role": "assistant", "content": "", "tool_calls": [_call("{}"), _call({"x": [None]})]},
        {**_ANSWER, "content": {"t": 22}},
        _ANSWER,
    ],
    _turns([{"type": "text", "text": "look"}, {"type": "image"}]),
    _turns("q", "<think>\nhm\n</think>\n\nanswer", "r"),
    [*_turns("q"), {"role": "assistant", "content": "a", "reasoning_content": "since"}],
    [*_turns("q"), *_turns("r")],
    [{"role": "assistant", "content": "first"}],
    [_SYSTEM, *_turns(*(f"turn {i} " * 9 for i in range(10)))],
]
