"""Chat templates as short as they can be, each with what its family is known by."""

HERMES = """\
{%- if tools %}<|im_start|>system
Call functions within <tool_call></tool_call>:
{%- for tool in tools %}
{{ tool | tojson }}
{%- endfor %}<|im_end|>
{% endif %}
{%- for message in messages %}<|im_start|>{{ message.role }}
{{ message.content }}
{%- for call in message.tool_calls %}
<tool_call>
{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}
</tool_call>
{%- endfor %}<|im_end|>
{% endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""

QWEN3 = (
    HERMES
    + """\
{%- if add_generation_prompt and enable_thinking is defined and enable_thinking is false %}<think>

</think>

{% endif %}"""
)

LLAMA = """\
{%- if tools %}Answer with {"name": function name, "parameters": arguments}:
{%- for tool in tools %} {{ tool | tojson }}{% endfor %}{% endif %}
{%- for message in messages %}<|start_header_id|>{{ message.role }}<|end_header_id|>
{{ message.content }}<|eot_id|>{% endfor %}"""

MISTRAL = """\
{%- if tools %}[AVAILABLE_TOOLS]{{ tools | tojson }}[/AVAILABLE_TOOLS]{% endif %}
{%- for message in messages %}
{%- if message.role == "tool" %}
{%- if message.tool_call_id | length != 9 %}{{ raise_exception("ids have length 9") }}{% endif -%}
[TOOL_RESULTS]{{ message.tool_call_id }} {{ message.content }}[/TOOL_RESULTS]
{%- elif message.tool_calls %}
{%- for call in message.tool_calls %}[TOOL_CALLS]{{ call.function.name }}{{ call.id }}{% endfor %}
{%- else %}[INST]{{ message.content }}[/INST]{% endif %}
{%- endfor %}"""

DEEPSEEK = """\
{%- for message in messages %}{{ message.content.split("</think>")[-1] }}{% endfor %}
{%- if add_generation_prompt %}<｜Assistant｜><think>
{% endif %}"""

PLAIN = "{% for message in messages %}{{ message.role }}: {{ message.content }}\n{% endfor %}"
