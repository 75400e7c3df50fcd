"""KerasHub presets."""
