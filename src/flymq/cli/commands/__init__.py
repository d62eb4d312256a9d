"""The commands: `flymq NAME` is the object NAME of the module NAME here."""
