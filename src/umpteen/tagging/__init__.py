"""What `Tagger` is made of: its parameters, training, growing, texts as rows, figures, storage, reasons in words."""
