"""What pages share: cards, forms, tables, plots, dialogs, code, words for times."""
