"""Icons, presets, translations, sample prompts, themes: data, no code."""
