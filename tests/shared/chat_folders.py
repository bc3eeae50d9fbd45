"""Model folders with chat templates in the forms of published families, and small tokenizers with their tokens.

The templates are written for these tests. Published ones are in ``$RLCORE_DATA/chat_templates``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path

from byte_level import byte_level_tokenizer
from tokenizers import AddedToken

LLAMA = """{{- bos_token }}
{%- if messages[0].role == 'system' %}{% set rules = messages[0].content|trim %}{% set messages = messages[1:] %}
{%- else %}{% set rules = '' %}{% endif %}
{{- '<|start_header_id|>system<|end_header_id|>\\n\\nToday: ' + strftime_now('%d %b %Y') + '\\n\\n' + rules }}
{%- if tools %}{% for tool in tools %}{{ '\\n' + tool|tojson(indent=4) }}{% endfor %}{% endif %}
{{- '<|eot_id|>' }}
{%- for message in messages %}
    {%- if message.role == 'tool' %}
        {{- '<|start_header_id|>ipython<|end_header_id|>\\n\\n' + message.content|tojson + '<|eot_id|>' }}
    {%- elif message.tool_calls %}
        {%- if message.tool_calls|length != 1 %}{{ raise_exception('one call at a time') }}{% endif %}
        {%- set call = message.tool_calls[0].function %}
        {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n{"name": "' + call.name + '", "parameters": ' }}
        {{- call.arguments|tojson + '}<|eot_id|>' }}
    {%- else %}
        {{- '<|start_header_id|>' + message.role + '<|end_header_id|>\\n\\n' + message.content|trim + '<|eot_id|>' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif %}"""

MISTRAL = """{{- bos_token }}
{%- if messages[0].role == 'system' %}{% set rules = messages[0].content %}{% set messages = messages[1:] %}{% endif %}
{%- set questions = messages|selectattr('role', 'equalto', 'user')|list %}
{%- for message in messages %}
    {%- if message.role == 'user' %}
        {%- if tools and message == questions[-1] %}
            {{- '[AVAILABLE_TOOLS] ' + tools|tojson + '[/AVAILABLE_TOOLS]' }}
        {%- endif %}
        {{- '[INST] ' + (rules + '\\n\\n' if rules is defined and loop.first else '') + message.content + '[/INST]' }}
    {%- elif message.role == 'tool' %}
        {%- if message.tool_call_id|length != 9 %}{{ raise_exception('ids have 9 characters') }}{% endif %}
        {{- '[TOOL_RESULTS] {"content": ' + message.content|tojson + ', "call_id": "' }}
        {{- message.tool_call_id + '"}[/TOOL_RESULTS]' }}
    {%- elif message.tool_calls is defined %}
        {{- '[TOOL_CALLS] [' }}
        {%- for call in message.tool_calls %}
            {{- '{"name": "' + call.function.name + '", "arguments": ' + call.function.arguments|tojson }}
            {{- ', "id": "' + call.id + '"}' + ('' if loop.last else ', ') }}
        {%- endfor %}
        {{- ']' + eos_token }}
    {%- else %}
        {{- ' ' + message.content + eos_token }}
    {%- endif %}
{%- endfor %}"""

GEMMA = """{{ bos_token }}
{%- if messages[0].role == 'system' %}{% set rules = messages[0].content + '\\n\\n' %}{% set messages = messages[1:] %}
{%- else %}{% set rules = '' %}{% endif %}
{%- for message in messages %}
    {%- if (message.role == 'user') != (loop.index0 % 2 == 0) %}
        {{- raise_exception('users and the model must take turns') }}
    {%- endif %}
    {{- '<start_of_turn>' + ('model' if message.role == 'assistant' else message.role) + '\\n' }}
    {{- (rules if loop.first else '') + message.content|trim + '<end_of_turn>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<start_of_turn>model\\n' }}{% endif %}"""

PHI = """{% for message in messages %}
    {{- '<|' + message.role + '|>\\n' + message.content + '<|end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|assistant|>\\n' }}{% else %}{{ eos_token }}{% endif %}"""

HARMONY = """{{- '<|start|>system<|message|>Valid channels: analysis, final.<|end|>' }}
{%- macro written(tool) %}{{ '\\ntype ' ~ tool.name ~ ' = ' ~ tool.parameters.properties|tojson }}{% endmacro %}
{%- if tools %}
    {{- '<|start|>developer<|message|># Tools' }}
    {%- for tool in tools %}{{ written(tool.function) }}{% endfor %}{{ '<|end|>' }}
{%- endif %}
{%- set last = namespace(name='') %}
{%- for message in messages %}
    {%- if message.tool_calls %}
        {%- set last.name = message.tool_calls[0].function.name %}
        {{- '<|start|>assistant to=functions.' + last.name + '<|channel|>commentary json<|message|>' }}
        {{- message.tool_calls[0].function.arguments|tojson + '<|call|>' }}
    {%- elif message.role == 'assistant' %}
        {{- '<|start|>assistant<|channel|>final<|message|>' + message.content }}
        {{- '<|return|>' if loop.last and not add_generation_prompt else '<|end|>' }}
    {%- elif message.role == 'tool' %}
        {{- '<|start|>functions.' + last.name + ' to=assistant<|channel|>commentary<|message|>' }}
        {{- message.content|tojson + '<|end|>' }}
    {%- else %}
        {{- '<|start|>' + message.role + '<|message|>' + message.content + '<|end|>' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|start|>assistant' }}{% endif %}"""

CODER = """{%- if tools %}
    {{- '<|im_start|>system\\n# Tools' }}
    {%- for tool in tools %}{{ '\\n<function>' ~ tool.function|tojson ~ '</function>' }}{% endfor %}
    {{- '<|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
    {%- if message.role == 'tool' %}
        {{- '<|im_start|>user\\n<tool_response>\\n' + message.content + '\\n</tool_response><|im_end|>\\n' }}
    {%- else %}
        {{- '<|im_start|>' + message.role + '\\n' + message.content }}
        {%- for call in message.tool_calls or [] %}
            {{- '\\n<tool_call>\\n<function=' + call.function.name + '>\\n' }}
            {%- for name, value in call.function.arguments|items %}
                {{- '<parameter=' + name + '>\\n' + value|string + '\\n</parameter>\\n' }}
            {%- endfor %}
            {{- '</function>\\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and not enable_thinking %}{{ '<think>\\n\\n</think>\\n\\n' }}{% endif %}
{%- endif %}"""

CHATML = """{% for message in messages %}
    {%- if loop.first and message.role != 'system' %}
        {{- '<|im_start|>system\nYou are a small assistant.<|im_end|>\n' }}
    {%- endif %}
    {{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"""
"""With a default system message and without tools, as SmolLM2's."""

TEMPLATES: Mapping[str, tuple[str, str, str]] = {
    "llama": (LLAMA, "<|begin_of_text|>", "<|eot_id|>"),
    "mistral": (MISTRAL, "<s>", "</s>"),
    "gemma": (GEMMA, "<bos>", "<eos>"),
    "phi": (PHI, "<s>", "<|endoftext|>"),
    "harmony": (HARMONY, "<|startoftext|>", "<|return|>"),
    "coder": (CODER, "<|endoftext|>", "<|im_end|>"),
    "chatml": (CHATML, "<|im_start|>", "<|im_end|>"),
}
"""The template, the beginning and the end of a sequence, by family."""
_TOKEN = re.compile(r"<\|[a-z_]+\|>|\[/?[A-Z_]{3,}\]|<(?:start|end)_of_turn>")
_TEXTS = (
    "system user assistant tool model ipython commentary analysis final json functions parameters arguments name",
    "Tom has 3 apples and buys 12 more. How many apples does he have? The answer is 15.",
    '{"type": "function", "function": {"name": "calculator", "arguments": {"expression": "12 + 3 * 4"}}}',
)


def write_chat_folder(folder: Path, template: str, bos: str, eos: str, *, vocabulary: int = 500) -> Path:
    """Write a byte-level tokenizer with the special tokens of a template, and the template.

    The vocabulary contains every byte, the words of short texts, and the tokens that the template names.
    """
    tokenizer = byte_level_tokenizer(_TEXTS, vocabulary - 50)
    roles = [f"<|{role}|>" for role in ("system", "user", "assistant", "tool")] if "'<|' + " in template else []
    special = dict.fromkeys([bos, eos, *_TOKEN.findall(template), *roles])
    tokenizer.add_special_tokens([AddedToken(token, normalized=False, special=True) for token in special])
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": bos,
        "eos_token": eos,
        "chat_template": template,
        "clean_up_tokenization_spaces": False,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    return folder
