"""A reward that asks a language model behind a chat-completions endpoint whether an answer is right."""
